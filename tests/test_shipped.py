"""What ships: the pair's weights and its recordings hold the floors that the project promises."""

from itertools import product

import numpy as np
import pytest

from simulator.orders import BestFirstOrder, ChainOrder, order_table, replay
from traces.recordings.catalog import find_recording, recording_path
from traces.recordings.schema import SPLITS

NAMES = [f"small_{drafter}_t{t}" for drafter, t in product(("semi", "block"), (0, 1))]
SHARES = {"calibration": 0.25, "tuning": 0.25, "report": 0.5}


@pytest.fixture(scope="module")
def semi():
    return find_recording("small_semi_t0")


@pytest.mark.parametrize("name", NAMES)
def test_recordings_are_large_enough_and_split_by_prompt(name):
    recording, sampled = find_recording(name), name.endswith("t1")
    assert recording.num_sequences >= (60 if sampled else 120)
    assert recording.num_anchors >= (3_000 if sampled else 6_000)
    assert recording.temperature == sampled
    assert len(recording.domains) >= 4
    assert recording.depths == (15 if "block" in name else 7)
    assert recording.encoding == ("pool" if "block" in name else "hidden")
    for split, domain in product(SPLITS, recording.domains):
        share = len(recording.sequences_of(split, domain)) / len(
            recording.sequences_of(domain=domain)
        )
        assert abs(share - SHARES[split]) < 0.05


def test_no_prompt_is_in_two_splits(semi):
    prompts = [tuple(semi.prompt_tokens(s)) for s in range(semi.num_sequences)]
    assert len(set(prompts)) == len(prompts)


def test_both_drafters_drafted_the_same_text():
    for t in (0, 1):
        one, other = find_recording(f"small_semi_t{t}"), find_recording(f"small_block_t{t}")
        assert one.num_sequences == other.num_sequences
        for s in range(one.num_sequences):
            assert np.array_equal(one.prompt_tokens(s), other.prompt_tokens(s))
            assert np.array_equal(one.committed_tokens(s), other.committed_tokens(s))


@pytest.mark.parametrize("name", NAMES[:2])
def test_confidence_comes_from_the_head_beside_it(name):
    recording = find_recording(name)
    anchors = np.arange(0, recording.num_anchors, 50)
    chain = order_table(ChainOrder(), recording).token[anchors]  # (n, D)
    parent = np.column_stack([recording.anchor_tokens(anchors), chain[:, :-1]])
    arrays = {key: recording[key].astype(float) for key in ("hidden", "markov_w1")}
    logit = arrays["hidden"][anchors] @ recording["confidence_hidden"].astype(float)
    logit += arrays["markov_w1"][parent] @ recording["confidence_parent"].astype(float)
    logit += float(recording["confidence_bias"][0])
    recorded = recording["confidence"][anchors]
    assert np.abs(1 / (1 + np.exp(-logit)) - recorded).max() < 2e-3  # float16 states and weights


def test_files_are_small_enough():
    folder = recording_path(NAMES[0]).parent
    sizes = [path.stat().st_size for path in folder.iterdir()]
    assert max(sizes) <= 25e6
    assert sum(sizes) <= 60e6
    weights = folder.parents[1] / "real_runner" / "small_pair"
    assert sum(path.stat().st_size for path in weights.glob("*.safetensors")) <= 20e6


def test_chains_are_long_enough_and_trees_gain(semi):
    chain = order_table(ChainOrder(), semi)
    tree = order_table(BestFirstOrder(scores="parent", nodes=31), semi)
    lengths = []
    for domain in semi.domains:
        sequences = semi.sequences_of(domain=domain)
        by_chain = replay(chain, semi, sequences, 7).acceptance_length
        by_tree = replay(tree, semi, sequences, 31).acceptance_length
        assert by_chain >= 1.8, domain
        assert by_tree >= 1.2 * by_chain, domain
        lengths.append(by_chain)
    assert max(lengths) >= 3.5


def test_greedy_text_does_not_repeat_itself(semi):
    for domain in semi.domains:
        repeated = total = 0
        for s in semi.sequences_of(domain=domain):
            output = semi.committed_tokens(s).tolist()
            grams = [tuple(output[i : i + 4]) for i in range(len(output) - 3)]
            repeated += len(grams) - len(set(grams))
            total += len(grams)
        assert repeated / total <= 0.3, domain
