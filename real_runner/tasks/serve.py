"""task=serve: run a policy live under a load, with results as the simulator writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from simulator.policies.loading import policy_name
from traces.common.errors import InputError


def run(config: dict[str, Any], log: Callable[[str], None]) -> None:
    """Serve the prompts into `output`; results there when all of them are done.

    Raises:
        InputError: the first bad key, value or file, before anything is written; or no memory
            left, after which outputs.jsonl keeps the requests that had ended.
    """
    from real_runner.models.loading import enough_memory
    from real_runner.serving.live import open_live, read_live
    from real_runner.serving.live_summary import live_summary
    from real_runner.serving.load import read_load
    from real_runner.serving.outputs import OUTPUTS, OutputLog
    from simulator.engine.arrivals import make_workload
    from simulator.progress import Progress
    from simulator.results.files import write_results

    plan = read_live(config)
    lines = plan.record.prompts
    load = read_load(config, None if lines is None else len(lines))
    output = output_folder(config)
    with enough_memory(lambda: "accepted: a pair that fits this device"):
        live = open_live(plan)
    workload, capacity = make_workload(load, None, live.sequences), load.capacity
    policy = live.policy(capacity)
    outputs = OutputLog(output, live.pair, live.requests, workload)

    def advice() -> str:
        done = f"{outputs.written} of {len(workload)} requests ended"
        kept = f", kept in {output / OUTPUTS}" if outputs.written else ""
        return f"{done}{kept}; accepted: a smaller max_concurrency or max_new_tokens"

    def on_end(request: int, tokens: list[int]) -> None:
        outputs.on_end(request, tokens)
        progress.update(outputs.written)

    with enough_memory(advice), outputs, Progress(len(workload), "requests") as progress:
        live.warm_up(workload, capacity)
        facts = live.server(policy, workload, capacity, on_end, outputs.on_step).run()
    summary = live_summary(live, load, policy, workload, facts)
    write_results(output, summary, facts, live.requests.domains)
    for line in table(summary):
        log(line)
    log(f"results in {output}")


def output_folder(config: Mapping[str, Any]) -> Path:
    """`output`, by default serve/POLICY; nothing is made yet."""
    path = Path(config["output"] or f"serve/{policy_name(config['policy'])}")
    if path.exists() and not path.is_dir():
        raise InputError(f"output is {str(path)!r}, a file; accepted: a folder, or a new name")
    return path


def table(summary: Mapping[str, Any]) -> list[str]:
    """The main numbers, a line each."""
    trace, rate = summary["trace"], summary["request_rate"]
    load = "closed loop" if rate == "inf" else f"{rate:g} requests/s asked"
    rows = [
        ("policy", f"{summary['policy']} on {summary['pair']}, {summary['drafter']}"),
        ("hardware", f"{summary['hardware']}, {summary['latency']['engine_mode']}"),
        (
            "load",
            f"{summary['max_concurrency']} at most, {load}, {summary['completed']} requests, seed "
            f"{summary['seed']}, T = {trace['temperature']:g}",
        ),
        ("window", summary["window"]["kind"]),
        ("output throughput", _unit(summary["output_throughput"], 1, "tokens/s")),
        ("TTFT, TPOT mean", " / ".join(_unit(summary[f"mean_{n}_ms"], 2, "ms") for n in _MEANS)),
        ("acceptance length", _unit(summary["acceptance_length"], 3)),
        ("nodes per request", _unit(summary["draft_nodes_per_request"], 1)),
        ("step", _unit(summary["step_ms"]["total"], 2, "ms")),
        ("phases, ms", ", ".join(f"{k} {_unit(v, 3)}" for k, v in summary["phase_ms"].items())),
    ]
    if not trace["recorded_target_is_this"]:
        rows.append(("note", f"{trace['recording']} was recorded from another target's weights"))
    return [f"{name:20}{value}" for name, value in rows]


_MEANS = ("ttft", "tpot")


def _unit(value: float | None, digits: int, unit: str = "") -> str:
    return "-" if value is None else f"{value:.{digits}f} {unit}".rstrip()
