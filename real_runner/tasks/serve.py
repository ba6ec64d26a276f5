"""task=serve: run a policy live under a load, with results as the simulator writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from real_runner.models.loading import enough_memory
from real_runner.serving.live import open_live
from real_runner.serving.prompts import prompt_lines
from real_runner.serving.results import OUTPUTS, OutputLog, live_summary
from real_runner.settings import LiveSettings
from simulator.engine.arrivals import make_workload
from simulator.engine.settings import ServerSettings, Settings
from simulator.policies.loading import policy_name
from simulator.progress import Progress
from simulator.results.files import write_results
from traces.common.errors import InputError

LOAD = ("max_concurrency", "request_rate", "burstiness", "num_prompts", "seed", "goodput")


def run_serve(config: Mapping[str, Any], live: LiveSettings, log: Callable[[str], None]) -> None:
    """Serve the prompts into `output`; results there when all of them are done.

    Raises:
        InputError: the first bad key, value or file, before anything is written; or no memory
            left, after which outputs.jsonl keeps the requests that had ended.
    """
    lines = prompt_lines(live)
    load = read_load(config, live.server, None if lines is None else len(lines))
    output = Path(live.output or f"serve/{policy_name(config['policy'])}")
    if output.exists() and not output.is_dir():
        raise InputError(f"output is {str(output)!r}, a file; accepted: a folder, or a new name")
    with enough_memory(lambda: "accepted: a pair that fits this device"):
        opened = open_live(config, live, lines)
    workload, capacity = make_workload(load, None, opened.sequences), load.capacity
    policy = opened.arena.fitted(config["policy"], capacity)
    outputs = OutputLog(output, opened, workload)

    def advice() -> str:
        done = f"{outputs.written} of {len(workload)} requests ended"
        kept = f", kept in {output / OUTPUTS}" if outputs.written else ""
        return f"{done}{kept}; accepted: a smaller max_concurrency or max_new_tokens"

    def on_end(request: int, tokens: list[int]) -> None:
        outputs.on_end(request, tokens)
        progress.update(outputs.written)

    with enough_memory(advice), outputs, Progress(len(workload), "requests") as progress:
        opened.warm_up(workload, capacity)
        hooks = opened.requests, on_end, outputs.on_step
        facts = opened.arena.server(policy, workload, capacity, *hooks).run()
    summary = live_summary(opened, load, policy, workload, facts)
    write_results(output, summary, facts, opened.requests.domains)
    for name, value in table(summary):
        log(f"{name:20}{value}")
    log(f"results in {output}")


def read_load(config: Mapping[str, Any], server: ServerSettings, prompts: int | None) -> Settings:
    """The load's settings, as the simulator has them.

    prompts: lines of a prompts file, each sent once by default; None: the corpus.
    """
    defaults, changed = ServerSettings(), server.changed() - {"max_num_seqs"}
    for name in (one for one in ServerSettings.model_fields if one in changed):
        raise InputError(
            f"server.{name} is {getattr(server, name)!r}; accepted live: "
            f"{getattr(defaults, name)!r} (the live server is one replica that prefills whole "
            "prompts)"
        )
    values = {key: config[key] for key in LOAD}
    if values["num_prompts"] is None and prompts is not None:
        values["num_prompts"] = prompts
    return Settings(**values, server=server)


def table(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The main numbers: names and values."""

    def said(value: float | None, digits: int, unit: str = "") -> str:
        return "-" if value is None else f"{value:.{digits}f} {unit}".rstrip()

    trace, rate = summary["trace"], summary["request_rate"]
    load = "closed loop" if rate == "inf" else f"{rate:g} requests/s asked"
    means = (said(summary[f"mean_{name}_ms"], 2, "ms") for name in ("ttft", "tpot"))
    rows = [
        ("policy", f"{summary['policy']} on {summary['pair']}, {summary['drafter']}"),
        ("hardware", f"{summary['hardware']}, {summary['latency']['engine_mode']}"),
        (
            "load",
            f"{summary['max_concurrency']} at most, {load}, {summary['completed']} requests, seed "
            f"{summary['seed']}, T = {trace['temperature']:g}",
        ),
        ("window", summary["window"]["kind"]),
        ("output throughput", said(summary["output_throughput"], 1, "tokens/s")),
        ("TTFT, TPOT mean", " / ".join(means)),
        ("acceptance length", said(summary["acceptance_length"], 3)),
        ("nodes per request", said(summary["draft_nodes_per_request"], 1)),
        ("step", said(summary["step_ms"]["total"], 2, "ms")),
        ("phases, ms", ", ".join(f"{k} {said(v, 3)}" for k, v in summary["phase_ms"].items())),
    ]
    if not trace["recorded_target_is_this"]:
        rows.append(("note", f"{trace['recording']} was recorded from another target's weights"))
    return rows
