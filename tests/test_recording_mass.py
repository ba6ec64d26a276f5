"""Probabilities of one law add up to at most 1, but for the rounding of their logarithms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.synthetic import make_pool, make_tree
from traces.common.errors import InputError
from traces.recordings.catalog import known_recordings
from traces.recordings.files import build_recording, read_recording
from traces.recordings.validate import most_mass


def _bfloat16(values: np.ndarray) -> np.ndarray:
    """Rounded to the nearest with 8 significant bits, as float32."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)


def test_bound_by_hand():
    """16^(1/256) = e^(2.7726 / 256) = e^0.010830; 2^18 entries: e^(12.4766 / 256) = e^0.048737."""
    assert most_mass(1) == 1
    assert most_mass(16) == pytest.approx(1.010889, abs=1e-6)
    assert most_mass(2**18) == pytest.approx(1.049944, abs=1e-6)
    assert most_mass(np.array([0, 1, 16])).tolist() == [1, 1, most_mass(16)]


@pytest.mark.parametrize("rounded", [lambda x: x.astype(np.float16), _bfloat16])
@pytest.mark.parametrize("entries", [2, 5, 16, 300, 4096])
def test_rounded_laws_stay_below_it(entries, rounded):
    rng = np.random.default_rng(entries)
    for sharpness in (0.0, 0.1, 1.0, 4.0):
        logits = rng.normal(size=(200, entries)) * sharpness
        logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        total = np.exp(rounded(logs).astype(np.float64)).sum(axis=1)
        assert (total <= most_mass(entries)).all()


def test_bfloat16_needs_it():
    """From 4 to 8 it has steps of 2^-5: -ln 57 = -4.04305 becomes -4.03125, 57 of which are 1.0119.

    float16's own bound, 57^(1/2048) = 1.0020, would refuse them; 57^(1/256) = 1.0159.
    """
    logs = _bfloat16(np.full(57, -math.log(57)))
    total = float(np.exp(logs.astype(np.float64)).sum())
    assert total == pytest.approx(57 * math.exp(-4.03125))
    assert 57 ** (1 / 2048) < total < most_mass(57)


def _with_row(row: list[float], path: float | None = None):
    """A pool recording whose first row holds these probabilities; the realised token is outside."""
    made = make_pool(np.random.default_rng(0), sequences=2, depths=2, pool=4, max_new_tokens=6)
    arrays = {name: array.copy() for name, array in made.arrays.items()}
    realised = int(made.realised(np.array([0]))[0, 0])
    arrays["pool_token"][0, 0] = [token for token in range(5) if token != realised][:4]
    arrays["pool_logprob"][0, 0] = np.log(row)
    arrays["path_logq"][0, 0] = math.log(min(row) if path is None else path)
    return made.meta, arrays


@pytest.mark.parametrize(
    ("row", "path", "fits"),
    [
        ((0.5, 0.3, 0.1, 0.05), 0.05, True),
        ((0.5, 0.3, 0.1, 0.0999), 1e-5, True),
        ((0.5, 0.3, 0.15, 0.1), 1e-5, False),  # 1.05
        ((0.5, 0.3, 0.11, 0.1), 1e-5, False),  # 1.01; 4^(1/256) is 1.0054
        ((0.3, 0.25, 0.25, 0.2), 1e-5, True),
        ((0.3, 0.25, 0.25, 0.2), 0.15, False),  # what is left for a token outside is nothing
        ((0.3, 0.2, 0.2, 0.2), 0.1, True),
    ],
)
def test_a_pool_that_adds_up_to_more_is_refused(row, path, fits):
    meta, arrays = _with_row(row, path)
    if fits:
        build_recording(meta, arrays)
        return
    with pytest.raises(InputError, match=r"array (pool_logprob|path_logq)\[0, 0.*a probability of"):
        build_recording(meta, arrays)


def test_renormalised_candidates_leave_nothing_outside():
    """Of a log of rounds: its candidates are the whole law, what is none has the last one's."""
    meta, arrays = _with_row([0.4, 0.2, 0.2, 0.2])
    build_recording(meta | {"per_round": True}, arrays)
    with pytest.raises(InputError, match="what its pool leaves"):
        build_recording(meta, arrays)


def test_siblings_that_add_up_to_more_are_refused():
    rng = np.random.default_rng(1)
    made = make_tree(rng, sequences=2, depths=2, vocab=12, max_new_tokens=5, children=3)
    arrays = {name: array.copy() for name, array in made.arrays.items()}
    first = np.flatnonzero(arrays["tree_parent"][0] == -1)
    for total, fits in ((1.0, True), (1.05, False)):
        arrays["tree_logq"][0, first] = math.log(total / len(first))
        if fits:
            build_recording(made.meta, arrays)
        else:
            with pytest.raises(InputError, match="siblings that add up to a probability of"):
                build_recording(made.meta, arrays)


@pytest.mark.parametrize("name", ["small_block_t0", "small_block_t1"])
def test_shipped_pools_pass_with_room(name):
    """Rounded to float16: below 16^(1/2048) = e^0.0013538."""
    recording = read_recording(known_recordings()[name])
    total = np.exp(recording["pool_logprob"].astype(np.float64)).sum(axis=-1)
    assert total.max() < math.exp(math.log(16) / 2048) < most_mass(16)
