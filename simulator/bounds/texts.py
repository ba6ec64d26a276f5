"""The texts that a bound is about: their anchors one after another, and what prefill adds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.cost import StepCost
from traces.errors import InputError
from traces.recording import Recording


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """S sequences of a recording with n anchors in all."""

    recording: Recording
    sequences: np.ndarray  # (S,)
    anchors: np.ndarray  # (n,) anchors of the recording, sequence after sequence
    start: np.ndarray  # (S + 1,) first anchor of each sequence in `anchors`, and n

    @classmethod
    def of(cls, recording: Recording, sequences: np.ndarray) -> Texts:
        """Raises InputError where no text has a drafted position."""
        offset = recording.anchor_offset
        ranges = [np.arange(offset[s], offset[s + 1]) for s in sequences]
        start = np.concatenate([[0], np.cumsum([len(one) for one in ranges])]).astype(np.int64)
        if not start[-1]:
            raise InputError(
                f"{recording.source}: the chosen texts have no drafted positions; accepted: at "
                "least one text of two tokens"
            )
        return cls(recording, np.asarray(sequences), np.concatenate(ranges), start)

    @property
    def context(self) -> np.ndarray:
        """KV tokens before every anchor: (n,), what the server charges a round for."""
        sequence = self.recording.anchor_sequence[self.anchors]
        prompt = self.recording["prompt_len"].astype(np.int64)[sequence]
        return prompt + self.recording.anchor_output[self.anchors]

    @property
    def tokens(self) -> np.ndarray:
        """Output tokens per sequence, the prefill's among them: (S,)."""
        return self.recording["output_len"][self.sequences].astype(np.int64)

    def prefill_s(self, cost: StepCost) -> np.ndarray:
        """Seconds of each prompt, during which the server does nothing else: (S,)."""
        prompts = self.recording["prompt_len"][self.sequences].tolist()
        return np.array([cost.prefill_s(tokens) for tokens in prompts])

    def per_sequence(self, values: np.ndarray) -> np.ndarray:
        """Sums of (n,) values over the anchors of each sequence: (S,)."""
        sequence = np.repeat(np.arange(len(self.sequences)), np.diff(self.start))
        return np.bincount(sequence, values, len(self.sequences))
