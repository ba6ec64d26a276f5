"""task=demo: a policy writing on the terminal, its accepted drafts in colour."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from real_runner.settings import DemoKeys, live_settings
from simulator.policies.loading import policy_name
from traces.common.errors import InputError

LINES = 4  # of a prompts file, by default


def run(config: dict[str, Any], log: Callable[[str], None]) -> None:
    """Write the texts one by one.

    Raises:
        InputError: the first bad key, value or file.
    """
    from real_runner.models.loading import enough_memory
    from real_runner.serving.live import open_live, read_live
    from real_runner.serving.prompts import PromptLine

    asked = live_settings(config).demo
    line = None if asked.prompt is None else (PromptLine("demo.prompt", asked.prompt),)
    plan = read_live(config, line)
    with enough_memory(lambda: "accepted: a pair that fits this device, fewer max_new_tokens"):
        live = open_live(plan)
        recite(live, shown(live, asked), policy_name(config["policy"]))


def shown(live, asked: DemoKeys) -> np.ndarray:
    """Requests to show: lines in order, or corpus prompts of every domain by turns."""
    sequences, domain = live.sequences, live.requests.domain[live.sequences]
    if live.plan.record.prompts is None:
        turn = [int(np.sum(domain[:i] == one)) for i, one in enumerate(domain)]
        sequences = sequences[np.lexsort((domain, turn))]
        default = len(np.unique(domain))
    else:
        default = min(LINES, len(sequences))
    count = asked.count or default
    if count > len(sequences):
        raise InputError(f"demo.count is {count}; accepted: 1 to {len(sequences)}, as there are")
    return sequences[:count]


def recite(live, sequences: np.ndarray, name: str) -> None:
    """One request at a time, on the terminal."""
    from real_runner.serving.typewriter import Ink
    from real_runner.validating.arena import plain_workload
    from real_runner.validating.recital import Recital

    workload = plain_workload(sequences, 1)
    live.warm_up(workload, 1)
    ink, requests, decode = Ink(), live.requests, live.pair.tokenizer.decode
    lines = live.plan.record.prompts
    headings = [
        f"{requests.domains[requests.domain[i]]}> "
        + (decode(requests.prompt[i].tolist()) if lines is None else lines[i].text).strip()
        for i in sequences.tolist()
    ]
    ink.line(f"{name} on {live.pair.name}, drafter {live.drafter.name}")
    ink.legend()
    ink.write("\n")
    recital = Recital(ink, decode, headings)
    server = live.server(live.policy(1), workload, 1, recital.on_end, recital.on_step)
    recital.outputs = server.outputs
    server.run()
