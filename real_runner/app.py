"""The command line: `python -m real_runner task=...`, composed by Hydra."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from real_runner.settings import SEARCH, live_settings
from simulator.cli.errors import one_line
from simulator.cli.overrides import CONF, OPTION_GROUPS, normalised
from traces.common.errors import InputError
from traces.common.files import INTERRUPTED

REFUSED = 2
CHECKED = (*OPTION_GROUPS, "demo", "probe")  # nodes that refuse unknown keys themselves
PROMPT = "demo.prompt="


def main(argv: Sequence[str] | None = None) -> int:
    """Run one task; the exit status is 2 for bad input and 130 after Ctrl-C."""
    words = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(words):
        print(f"python -m real_runner [KEY=VALUE ...]; keys and defaults:\n\n{_text()}")
        return 0
    try:
        from hydra import initialize_config_dir

        with initialize_config_dir(str(CONF), job_name="real_runner", version_base="1.3"):
            return _perform(_composed(words))
    except KeyboardInterrupt:
        print("interrupted; finished files are kept", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        line = one_line(error, _keys()) or _memory_line(error)
        if line is None:
            raise
        print(f"error: {line}", file=sys.stderr)
        return REFUSED


def _memory_line(error: Exception) -> str | None:
    """What to say where a task has nothing of its own to say about memory that ran out."""
    if "torch" not in sys.modules:
        return None
    from real_runner.models.loading import ran_out, said

    return f"{said(error)}; finished files are kept" if ran_out(error) else None


def _text() -> str:
    return (CONF / "real_runner.yaml").read_text()


def _keys() -> list[str]:
    """Every key of the configuration, dotted."""
    from omegaconf import DictConfig, OmegaConf

    def below(node: DictConfig, prefix: str) -> list[str]:
        return [
            name
            for key, value in node.items()
            for name in (
                below(value, f"{prefix}{key}.") if isinstance(value, DictConfig) else [prefix + key]
            )
        ]

    return below(OmegaConf.create(_text()), "")


def _composed(words: list[str]) -> dict[str, Any]:
    from hydra import compose
    from omegaconf import OmegaConf

    # A prompt is any text: Hydra's grammar would trip over its brackets, colons and commas.
    prompts = [word for word in words if word.startswith(PROMPT) and word != f"{PROMPT}null"]
    others = [word for word in words if word not in prompts]
    others = normalised(_searched(others))
    _check_words(others)
    try:
        config = OmegaConf.to_container(compose("real_runner", others), resolve=True)
    except ValueError as error:  # a group set to a number or to null
        raise InputError(str(error)) from error
    for word in prompts:
        config["demo"]["prompt"] = word.removeprefix(PROMPT)
    return config


def _searched(words: list[str]) -> list[str]:
    """`words` with ``--config-dir FOLDER``, as the simulator has it, in Hydra's own form."""
    SEARCH.clear()
    left = []
    waiting = iter(words)
    for word in waiting:
        flag, equals, value = word.partition("=")
        if flag != "--config-dir":
            left.append(word)
            continue
        folder = Path(value if equals else next(waiting, ""))
        if not folder.is_dir():
            raise InputError(f"--config-dir {str(folder)!r}: accepted: a folder of configurations")
        SEARCH.append(f"hydra.searchpath=['file://{folder.resolve()}']")
    return left + SEARCH


def _check_words(words: list[str]) -> None:
    """Refuse words that would take keys away, or add keys that nothing reads."""
    known = _keys()
    for word in words:
        key = word.partition("=")[0]
        if word.startswith("~"):
            raise InputError(f"{word}: accepted: KEY=VALUE; no key can be taken away")
        name = key.lstrip("+")
        if key != name and name.split(".")[0] not in CHECKED and name not in known:
            raise InputError(f"unknown key {name}; accepted: the keys that --help lists")


def _perform(config: dict[str, Any]) -> int:
    task = live_settings(config).task
    try:
        import tokenizers  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"{error.name} is not installed; accepted: an environment with the live extra "
            "(in the clone: pip install -c constraints.txt -e '.[live]')"
        ) from None
    module = import_module(f"real_runner.tasks.{task}")
    return module.run(config, _log) or 0


def _log(line: str) -> None:
    print(line, flush=True)
