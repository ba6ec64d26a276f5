"""The command line: `python -m real_runner task=...`, composed by Hydra."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import traces
from real_runner.settings import SIZES, choice, folder, mapping, whole
from simulator.command_line import CONF
from simulator.one_line import one_line
from traces.errors import InputError

INTERRUPTED = 130
REFUSED = 2
TASKS = ("train", "record", "evaluate")
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
    choice("task", config["task"], TASKS)
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

    sizes = {key: whole(f"train.{key}", v) for key, v in mapping("train", config["train"]).items()}
    train(TrainPlan(**sizes), Path(folder("output", config["output"]) or "trained_pair"), _log)


def _record(config: dict[str, Any]) -> None:
    from real_runner.generate import BANNED
    from real_runner.pair.load import SHIPPED, load_pair
    from real_runner.record import record
    from real_runner.settings import read_plan

    pair_folder = folder("pair", config["pair"]) or SHIPPED
    output = Path(folder("output", config["output"]) or f"record/{config['size']}")
    plan = read_plan(config)
    pair = load_pair(Path(pair_folder))
    drafted = pair.target.config.vocab_size - len(BANNED)
    if plan.pool > drafted:
        raise InputError(
            f"record.pool is {plan.pool}; accepted: up to the {drafted} tokens that are drafted"
        )
    output.mkdir(parents=True, exist_ok=True)
    for path in record(pair, plan, output, _log):
        _log(f"wrote {path}")


def _evaluate(config: dict[str, Any]) -> None:
    from real_runner.evaluate import evaluate
    from real_runner.pair.load import SHIPPED, load_pair

    pair = load_pair(Path(folder("pair", config["pair"]) or SHIPPED))
    size = choice("size", config["size"], SIZES)
    evaluate(pair, Path(folder("output", config["output"]) or DATA), size, _log)
