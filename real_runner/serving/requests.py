"""What a live run is asked: prompts, seeds, limits, and where a recording says they go."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from real_runner.engine.models import LiveTarget
from traces.common.errors import InputError
from traces.recordings.recording import Recording

MARGIN = 32  # positions beyond a text that a tree or a block may take


@dataclass(frozen=True, slots=True)
class Requests:
    """S texts that the requests of a workload ask for."""

    prompt: list[np.ndarray]  # S of (t,) int64
    seed: np.ndarray  # (S,) keys of the draws
    max_new_tokens: np.ndarray  # (S,)
    domain: np.ndarray  # (S,) index into `domains`
    domains: tuple[str, ...]
    recorded: list[np.ndarray] | None = None  # outputs, for requests that start in the middle
    anchor_offset: np.ndarray | None = None  # (S,) first anchor of the text in its recording

    def __len__(self) -> int:
        return len(self.prompt)

    @property
    def prompt_tokens(self) -> np.ndarray:
        """(S,) lengths of the prompts."""
        return np.array([len(prompt) for prompt in self.prompt], np.int64)

    @property
    def longest(self) -> int:
        """Most tokens a request can hold."""
        return int((self.prompt_tokens + self.max_new_tokens).max())


def requests_of(recording: Recording) -> Requests:
    """The texts of a recording, to be written again."""
    count = recording.num_sequences
    seeds = recording.arrays.get("seq_request_seed", np.arange(count))
    cap = recording.meta["generation"]["max_new_tokens"]
    return Requests(
        prompt=[recording.prompt_tokens(i).astype(np.int64) for i in range(count)],
        seed=seeds.astype(np.int64),
        max_new_tokens=np.full(count, cap),
        domain=recording["domain"].astype(np.int64),
        domains=recording.domains,
        recorded=[recording.committed_tokens(i) for i in range(count)],
        anchor_offset=recording.anchor_offset[:-1],
    )


def check_fits(requests: Requests, target: LiveTarget, names: list[str]) -> None:
    """Refuse the first request that does not fit the target's context.

    names: what to call each request in the message.
    """
    room = target.max_positions - MARGIN
    for name, prompt, cap in zip(names, requests.prompt, requests.max_new_tokens, strict=True):
        if len(prompt) + int(cap) > room:
            raise InputError(
                f"{name}: {len(prompt)} prompt tokens and max_new_tokens {cap}; accepted: together "
                f"at most {room}, the context of {target.name} less {MARGIN} for drafts"
            )
        if not len(prompt):
            raise InputError(f"{name}: the prompt has no token; accepted: at least one")
