"""The command line: `python -m real_runner task=...`, composed by Hydra."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from real_runner.settings import SEARCH, LiveSettings, ValidateKeys, live_settings
from simulator.cli.errors import one_line
from simulator.cli.overrides import OPTION_GROUPS, normalised
from simulator.studies.options import CONF
from traces.common.errors import InputError
from traces.common.files import INTERRUPTED
from traces.common.settings import keys_of

REFUSED = 2
CHECKED = (*OPTION_GROUPS, "demo", "probe")  # nodes that refuse unknown keys themselves
OF_PAIR = ("train", "record", "evaluate")  # tasks in one file
PROMPT = "demo.prompt="


def main(argv: Sequence[str] | None = None) -> int:
    """Run one task; the exit status is 2 for bad input and 130 after Ctrl-C."""
    words = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(words):
        text = (CONF / "real_runner.yaml").read_text()
        print(f"python -m real_runner [KEY=VALUE ...]; keys and defaults:\n\n{text}")
        return 0
    try:
        from hydra import initialize_config_dir

        with initialize_config_dir(str(CONF), job_name="real_runner", version_base="1.3"):
            return _perform(_composed(words))
    except KeyboardInterrupt:
        print("interrupted; finished files are kept", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        line = one_line(error, _keys())
        if line is None and "torch" in sys.modules:
            from real_runner.models.loading import ran_out, said

            line = f"{said(error)}; finished files are kept" if ran_out(error) else None
        if line is None:
            raise
        print(f"error: {line}", file=sys.stderr)
        return REFUSED


def _keys() -> list[str]:
    """Every key of the configuration, dotted."""
    models = (LiveSettings, ""), (ValidateKeys, ValidateKeys.PREFIX)
    return [path for model, prefix in models for path, *_ in keys_of(model, prefix)]


def _composed(words: list[str]) -> dict[str, Any]:
    """The configuration, but for words that would take keys away or add some that nothing reads."""
    from hydra import compose
    from omegaconf import OmegaConf

    # A prompt is any text: Hydra's grammar would trip over its brackets, colons and commas.
    prompts = [word for word in words if word.startswith(PROMPT) and word != f"{PROMPT}null"]
    others = normalised(_searched([word for word in words if word not in prompts]))
    known = _keys()
    for word in others:
        key = word.partition("=")[0]
        if word.startswith("~"):
            raise InputError(f"{word}: accepted: KEY=VALUE; no key can be taken away")
        name = key.lstrip("+")
        if key != name and name.split(".")[0] not in CHECKED and name not in known:
            raise InputError(f"unknown key {name}; accepted: the keys that --help lists")
    try:
        config = OmegaConf.to_container(compose("real_runner", others), resolve=True)
    except ValueError as error:  # a group set to a number or to null
        raise InputError(str(error)) from error
    for word in prompts:
        config["demo"]["prompt"] = word.removeprefix(PROMPT)
    return config


def _searched(words: list[str]) -> list[str]:
    """`words` with ``--config-dir FOLDER``, as the simulator has it, in Hydra's own form."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config-dir", action="append", default=[], nargs="?", type=Path)
    folders, left = parser.parse_known_args(words)
    for folder in folders.config_dir:
        if folder is None or not folder.is_dir():
            raise InputError(f"--config-dir {str(folder)!r}: accepted: a folder of configurations")
    SEARCH[:] = [f"hydra.searchpath=['file://{one.resolve()}']" for one in folders.config_dir]
    return left + SEARCH


def _perform(config: dict[str, Any]) -> int:
    live = live_settings(config)
    try:
        import tokenizers  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"{error.name} is not installed; accepted: an environment with the live extra "
            "(in the clone: pip install -c constraints.txt -e '.[live]')"
        ) from None
    room = import_module(f"real_runner.tasks.{'pair' if live.task in OF_PAIR else live.task}")
    task = getattr(room, f"run_{live.task}")
    return task(config, live, lambda line: print(line, flush=True)) or 0
