"""`recommend.json`, everything, and `recommend.md`, the same to be read."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from simulator.recommend.choose import Place, Ranking
from simulator.recommend.options import Plan
from simulator.recommend.scores import InDomain, in_domains
from simulator.results import write_files
from simulator.run import Job
from simulator.summary import latency_facts, plain, trace_facts, what_if_reason
from traces.bootstrap import Interval

JSON, MARKDOWN = "recommend.json", "recommend.md"
FORMAT, VERSION = "specdec-recommendation", 1


@dataclass(frozen=True, slots=True)
class Report:
    """What was found, and how it is told."""

    plan: Plan
    job: Job  # any of the runs, for what all of them share
    rankings: tuple[Ranking, ...]
    chosen: Ranking
    notes: tuple[str, ...]
    command: str  # that runs the recommended policy at that load, once for each seed

    @property
    def several_domains(self) -> bool:
        return len(self.domains(self.chosen.best)) > 1

    def domains(self, place: Place) -> list[InDomain]:
        """A policy's numbers by domain."""
        recording = self.job.recording
        domain_of = recording["domain"][place.score.sequences]
        return in_domains(place.score, domain_of, recording.domains)


def write(folder: Path, report: Report, text: str) -> None:
    """Both files, or neither; `text` is the Markdown."""
    data = json.dumps(as_json(report), indent=2, allow_nan=False) + "\n"
    write_files(
        folder,
        {
            MARKDOWN: lambda path: path.write_text(text, encoding="utf-8"),
            JSON: lambda path: path.write_text(data, encoding="utf-8"),
        },
    )


def as_json(report: Report) -> dict[str, Any]:
    """All numbers; those of a ranking are of the report split."""
    plan, job, settings = report.plan, report.job, report.plan.settings
    what_if = what_if_reason(job)
    rate = "inf" if settings.closed_loop else plain(settings.request_rate)
    return {
        "format": FORMAT,
        "version": VERSION,
        "trace": trace_facts(job),
        "latency": latency_facts(job),
        "server": plain(asdict(settings.server)),
        "workload": plain(asdict(settings.workload)),
        "what_if": what_if is not None,
        "what_if_reason": what_if,
        "request_rate": rate,
        "burstiness": settings.burstiness,
        "objectives_ms": None if plan.limits is None else dict(plan.limits),
        "attained_from": plan.attained,
        "ranked_by": plan.measure,
        "split_tune": plan.split_tune,
        "split_report": plan.split_report,
        "tuning_seeds": list(plan.tuning_seeds),
        "seeds": list(plan.seeds),
        "resamples": plan.resamples,
        "num_gpus": plan.num_gpus,
        "recommended": _recommended(report),
        "loads": [_load(report, ranking) for ranking in report.rankings],
        "notes": list(report.notes),
    }


def _recommended(report: Report) -> dict[str, Any]:
    chosen = report.chosen
    place = _place(report, chosen.best)
    return {
        "max_concurrency": chosen.concurrency,
        **place,
        "per_gpu": place["value"] / report.plan.num_gpus,
        "indistinguishable": [one.policy for one in chosen.same],
        "command": report.command,
    }


def _load(report: Report, ranking: Ranking) -> dict[str, Any]:
    return {
        "max_concurrency": ranking.concurrency,
        "best": ranking.best.policy,
        "indistinguishable": [one.policy for one in ranking.same],
        "policies": [_place(report, place) for place in ranking.places],
    }


def _place(report: Report, place: Place) -> dict[str, Any]:
    score, ratio = place.score, place.ratio
    entrant = score.entrant
    return {
        "policy": entrant.policy,
        "setting": entrant.setting,
        "policy_config": {
            k: plain(v) for k, v in entrant.node.items() if k != "name" and k[0] != "_"
        },
        "value": score.value,
        **_ends("prompts", score.over_prompts),
        **_ends("seeds", score.over_seeds),
        "by_seed": score.values,
        "output_throughput": score.tokens_s,
        "attained": score.attained if report.plan.limits else None,
        "meets": place.meets,
        "ratio_to_best": _finite(ratio.over_prompts.value),
        **_ends("ratio_prompts", ratio.over_prompts),
        **_ends("ratio_seeds", ratio.over_seeds),
        **{f"p99_{name}_ms": score.level_ms(name) for name in ("ttft", "tpot", "e2el")},
        "draft_nodes_per_request": score.mean("nodes"),
        "share_modelled": score.mean("modelled"),
        "share_clamped": score.mean("clamped"),
        "by_domain": [_domain(one) for one in report.domains(place)],
    }


def _domain(one: InDomain) -> dict[str, Any]:
    return {
        "domain": one.domain,
        "prompts": one.prompts,
        "tokens_per_s_of_a_request": one.speed.value,
        **_ends("tokens_per_s_of_a_request", one.speed),
        "attained": one.attained if one.attained == one.attained else None,  # none was judged
    }


def _ends(name: str, found: Interval) -> dict[str, float | None]:
    """A 95 % interval."""
    return {f"{name}_low": _finite(found.low), f"{name}_high": _finite(found.high)}


def _finite(value: float | None) -> float | None:
    return None if value is None or not abs(value) < float("inf") else value
