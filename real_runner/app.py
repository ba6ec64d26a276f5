"""The command line: `python -m real_runner task=...`, composed by Hydra."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import traces
from simulator.command_line import CONF
from simulator.one_line import one_line
from traces.errors import InputError

INTERRUPTED = 130
REFUSED = 2
TASKS = ("train", "record", "evaluate")
SIZES = ("small", "large")
DATA = Path(traces.__file__).parent / "data"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one task; the exit status is 2 for bad input and 130 after Ctrl-C."""
    words = list(sys.argv[1:] if argv is None else argv)
    if {"-h", "--help"} & set(words):
        print(f"python -m real_runner [KEY=VALUE ...]; keys and defaults:\n\n{_text()}")
        return 0
    try:
        _perform(_composed(words))
    except KeyboardInterrupt:
        print("interrupted; finished files are kept", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        line = one_line(error, _keys())
        if line is None:
            raise
        print(f"error: {line}", file=sys.stderr)
        return REFUSED
    return 0


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
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(CONF), job_name="real_runner", version_base="1.3"):
        return OmegaConf.to_container(compose("real_runner", words), resolve=True)


def _perform(config: dict[str, Any]) -> None:
    if config["task"] not in TASKS:
        raise InputError(f"task is {config['task']!r}; accepted: {', '.join(TASKS)}")
    try:
        import tokenizers  # noqa: F401
        import torch  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"{error.name} is not installed; accepted: an environment with the live extra "
            "(in the clone: pip install -c constraints.txt -e '.[live]')"
        ) from None
    {"train": _train, "record": _record, "evaluate": _evaluate}[config["task"]](config)


def _log(line: str) -> None:
    print(line, flush=True)


def _train(config: dict[str, Any]) -> None:
    from real_runner.train.task import TrainPlan, train

    sizes = {key: _positive(f"train.{key}", value) for key, value in config["train"].items()}
    train(TrainPlan(**sizes), Path(config["output"] or "trained_pair"), _log)


def _record(config: dict[str, Any]) -> None:
    from real_runner.corpus import DOMAINS
    from real_runner.pair.load import SHIPPED, load_pair
    from real_runner.record import RecordPlan, record

    size, settings = config["size"], config["record"]
    if size not in SIZES:
        raise InputError(f"size is {size!r}; accepted: {', '.join(SIZES)}")
    chosen = settings[size]
    unknown = [name for name in chosen["domains"] if name not in DOMAINS]
    if unknown:
        raise InputError(
            f"record.{size}.domains holds {unknown[0]!r}; accepted: {', '.join(DOMAINS)}"
        )
    bad = [t for t in settings["temperatures"] if not isinstance(t, int | float) or t < 0]
    if bad:
        raise InputError(f"record.temperatures holds {bad[0]!r}; accepted: numbers of at least 0")
    plan = RecordPlan(
        domains=tuple(chosen["domains"]),
        **{
            key: _positive(f"record.{size}.{key}", value)
            for key, value in chosen.items()
            if key != "domains"
        },
        temperatures=tuple(float(t) for t in settings["temperatures"]),
        pool=_positive("record.pool", settings["pool"]),
        seed=_positive("record.seed", settings["seed"]),
        name=size,
    )
    pair = load_pair(Path(config["pair"]) if config["pair"] else SHIPPED)
    folder = Path(config["output"] or f"record/{size}")
    folder.mkdir(parents=True, exist_ok=True)
    for path in record(pair, plan, folder, _log):
        _log(f"wrote {path}")


def _evaluate(config: dict[str, Any]) -> None:
    from real_runner.evaluate import evaluate
    from real_runner.pair.load import SHIPPED, load_pair

    pair = load_pair(Path(config["pair"]) if config["pair"] else SHIPPED)
    evaluate(pair, Path(config["output"] or DATA), config["size"], _log)


def _positive(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InputError(f"{key} is {value!r}; accepted: a whole number of at least 1")
    return value
