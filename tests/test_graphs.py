"""Verify passes at fixed sizes: the same results as unpadded ones, wherever they are captured."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from real_runner.engine import graphs as graphs_module
from real_runner.engine.attend import mixed
from real_runner.engine.draws import KeyedDraws
from real_runner.engine.engine import Engine, Settings, block_scores, draft_head
from real_runner.engine.graphs import GRAPH_SIZES, GraphedVerify
from real_runner.engine.pack import PACKINGS, pack
from real_runner.engine.walk import DrawAndMatch, GreedyMatch
from real_runner.probing.shapes import random_pair
from simulator.orders import BestFirstOrder
from tests.tiny_pair import KINDS, random_prompts, random_trees, tiny_pair
from traces.common.errors import InputError

CPU = torch.device("cpu")
SIZES = (1, 2, 4, 8, 16, 24, 32)


@pytest.fixture(scope="module")
def pair():
    return tiny_pair(dtype=torch.float64)


@pytest.fixture(scope="module")
def grouped():
    """Two query heads to a key-value head, as real pairs have."""
    pytest.importorskip("transformers")
    return random_pair("tiny", CPU, torch.float64)


def admitted(pair, rng: np.random.Generator, count: int, rows: int = 6):
    """An engine with requests, and their roots and lengths."""
    engine = Engine(pair.target, None, rows, 40)
    prompts = random_prompts(rng, count, 30)
    roots = [engine.admit(np.array(prompt), 0) for prompt in prompts]
    return engine, roots, [len(prompt) for prompt in prompts]


def verify_random(engine: Engine, nodes: int, packing: str = "ragged") -> None:
    """A pass over random trees of so many nodes."""
    trees = random_trees(np.random.default_rng(0), engine.root, engine.length, nodes)
    trees.width[:] = nodes
    with torch.inference_mode():
        engine._forward(pack(trees, engine.cache, packing, torch.float64))


# ---- sizes


@pytest.mark.parametrize("sizes", [(), (0, 1), (4, 4), (8, 2)])
def test_sizes_must_rise(sizes):
    with pytest.raises(InputError, match="graph_sizes is .*; accepted: rising numbers"):
        Settings(graphs=True, graph_sizes=sizes)


@pytest.mark.parametrize("packing", PACKINGS)
def test_passes_are_padded_up_to_a_cliff(pair, monkeypatch, packing):
    """Two requests of w + 1 tokens each: 2 (w + 1) tokens in all."""
    seen, plain = [], type(pair.target).forward

    def forward(target, tokens, *rest):
        seen.append(tuple(tokens.shape))
        return plain(target, tokens, *rest)

    settings = Settings(packing, graphs=True, graph_sizes=SIZES)
    engine = Engine(pair.target, None, 2, 40, settings=settings)
    for prompt in ([1, 5, 9], [1, 7]):
        engine.admit(np.array(prompt), 0)
    monkeypatch.setattr(type(pair.target), "forward", forward)
    for nodes in (0, 4, 15, 16):
        verify_random(engine, nodes, packing)
    beyond = (1, 34) if packing == "ragged" else (2, 17)  # no graph: as it is
    assert seen == [(1, 2), (1, 16), (1, 32), beyond]


# ---- results


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("which", ["pair", "grouped"])
def test_a_padded_pass_equals_the_unpadded_one(request, which, packing, seed):
    """States, taps and new keys; and nothing that another request holds is touched."""
    target = request.getfixturevalue(which).target
    rng = np.random.default_rng(seed)
    engine, roots, lengths = admitted(request.getfixturevalue(which), rng, 3)
    trees, cache = random_trees(rng, roots, lengths, 5), engine.cache
    cache.ensure(256)
    cache.key[:, 3:].normal_()  # rows behind the batch: of nobody, but finite
    with torch.inference_mode():
        packed = pack(trees, cache, packing, torch.float64)
        before = cache.key.clone()
        plain = target.forward(packed.tokens, packed.positions, packed.attend, (1, 2))
        wanted, kept = [packed.per_request(part) for part in plain], cache.key.clone()
        cache.key.copy_(before)
        graphed = GraphedVerify(target, (1, 2), cache, SIZES)
        assert graphed.covers(packed)
        found = [packed.per_request(part) for part in graphed(packed)]
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-11)
        for row, (length, width) in enumerate(zip(lengths, trees.width.tolist(), strict=True)):
            end = length + width + 1
            torch.testing.assert_close(cache.key[:, row, :, :end], kept[:, row, :, :end])
        assert torch.equal(cache.key[:, 3:], before[:, 3:])
        twice = [packed.per_request(part) for part in graphed(packed)]
        for one, other in zip(twice, wanted, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


def rounds(pair, kind: str, settings: Settings, verifier=None) -> list:
    """Five rounds of five requests, one of which leaves in between."""
    drafter = pair.drafters[kind]
    engine = Engine(pair.target, drafter, 5, 12, verifier, settings)
    rng, walked = np.random.default_rng(1), []
    for seed, prompt in enumerate(random_prompts(rng, 5)):
        engine.admit(np.array(prompt), seed)
    for index in range(5):
        table = engine.order(BestFirstOrder(nodes=24, branch=12), engine.draft())
        width = np.minimum(rng.integers(0, 25, engine.batch), table.size)
        seeds = np.arange(engine.batch)
        walk = engine.verify(table, width, seeds, np.full(engine.batch, index))
        engine.commit()
        walked.append((walk.accepted.tolist(), walk.token.tolist(), engine.root.tolist()))
        if index == 2:
            engine.release(np.array([True, False, True, True, True]))
    return walked


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rounds_with_and_without_padding_are_the_same(pair, kind, packing, temperature):
    verifier = DrawAndMatch(KeyedDraws(temperature)) if temperature else GreedyMatch()
    plain = rounds(pair, kind, Settings(packing), verifier)
    assert any(any(accepted) for accepted, *_ in plain)
    for sizes in (GRAPH_SIZES, (3, 50), (7,)):  # all covered, and only some
        graphs = Settings(packing, graphs=True, graph_sizes=sizes)
        assert rounds(pair, kind, graphs, verifier) == plain


class Replay:
    """A graph as this file knows it: the pass over what then lies in its inputs.

    Like a captured one it reads the cache where it was.
    """

    def __init__(self, graphed, inputs) -> None:
        self.graphed, self.inputs, self.store = graphed, inputs, graphed.cache.key
        self.replays = 0

    def replay(self) -> None:
        assert self.graphed.cache.key is self.store, "reads a cache that has moved"
        self.replays += 1
        self.graphed._forward(self.inputs)


@pytest.fixture
def captured(monkeypatch) -> list[Replay]:
    """Every capture, made without CUDA."""
    made = []

    def capture(graphed, inputs):
        graphed._forward(inputs)
        made.append(Replay(graphed, inputs))
        return made[-1]

    whole = GraphedVerify.__init__

    def init(self, *args, **kwargs):
        whole(self, *args, **kwargs)
        self.capture = True

    monkeypatch.setattr(GraphedVerify, "_captured", capture)
    monkeypatch.setattr(GraphedVerify, "__init__", init)
    return made


@pytest.mark.parametrize("packing", PACKINGS)
def test_replays_read_what_each_pass_puts_in_place(pair, captured, packing):
    plain = rounds(pair, "block", Settings(packing))
    graphs = Settings(packing, graphs=True, graph_sizes=(1, 60, 128))
    assert rounds(pair, "block", graphs) == plain
    assert sum(graph.replays for graph in captured) > 0
    assert len(captured) + sum(graph.replays for graph in captured) == 5


def test_a_cache_that_grows_makes_new_graphs(pair, captured):
    engine = Engine(pair.target, None, 2, 40, settings=Settings(graphs=True, graph_sizes=SIZES))
    for prompt in ([1, 5, 9], [1, 7]):
        engine.admit(np.array(prompt), 0)
    none, seeds = np.zeros(2, np.int64), np.arange(2)
    first = engine.verify(None, none, seeds, none).token.tolist()
    assert engine.verify(None, none, seeds, none).token.tolist() == first
    assert (len(captured), captured[0].replays) == (1, 1)
    engine.cache.ensure(engine.cache.columns + 1)
    assert engine.verify(None, none, seeds, none).token.tolist() == first
    assert (len(captured), captured[0].replays) == (2, 1)


def test_only_so_many_graphs_are_kept(pair, captured, monkeypatch):
    monkeypatch.setattr(graphs_module, "MOST", 2)
    engine = Engine(pair.target, None, 1, 40, settings=Settings(graphs=True, graph_sizes=SIZES))
    engine.admit(np.array([1, 5, 9]), 0)
    for nodes in (1, 3, 7, 1):
        verify_random(engine, nodes)
    assert [sizes[0] for sizes in engine._graphs.captured] == [8, 2]
    assert len(captured) == 4  # the first was gone


# ---- what CUDA takes another way


@pytest.mark.parametrize("spread", [False, True])
def test_heads_of_a_group_are_as_if_their_keys_were_copied(spread):
    torch.manual_seed(0)
    query, key, value = torch.randn(2, 6, 5, 8), *torch.randn(2, 2, 2, 16, 8)
    mask = torch.zeros(2, 1, 1 if spread else 5, 16).masked_fill_(
        torch.rand(2, 1, 1 if spread else 5, 16) < 0.5, float("-inf")
    )
    mask[..., 0] = 0
    mask = mask.expand(-1, -1, 5, -1)
    wide = (part.repeat_interleave(3, 1) for part in (key, value))
    wanted = torch.nn.functional.scaled_dot_product_attention(query, *wide, mask)
    memo = {}
    for _ in range(2):
        torch.testing.assert_close(mixed(query, key, value, mask, memo), wanted)
    assert list(memo) == [3]
    assert (memo[3].stride(2) == 0) == spread  # a mask for all slots is not copied


# ---- bfloat16


@pytest.mark.parametrize("kind", KINDS)
def test_bfloat16_scores_reach_the_host_as_float32(kind):
    pair = tiny_pair(dtype=torch.bfloat16)
    drafter = pair.drafters[kind]
    logits = torch.randn(3, drafter.depths, pair.target.vocab_size).bfloat16()
    head = draft_head(pair.target, drafter)
    scores = block_scores(drafter, logits, 4, head, np.zeros(3, np.int64))
    found = scores.pool_logprob if drafter.markov is None else scores.logits
    assert found.dtype == np.float32
    wide = logits.float()
    wanted = wide if drafter.markov else wide.log_softmax(-1).topk(4).values
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-6)


def test_wide_laws_are_taken_for_few_requests_at_once(pair, monkeypatch):
    from real_runner.engine import engine as engine_module

    drafter = pair.drafters["block"]
    logits = torch.randn(5, drafter.depths, pair.target.vocab_size, dtype=torch.float64)
    whole = block_scores(drafter, logits, 4, None, np.zeros(5, np.int64))
    monkeypatch.setattr(engine_module, "LAWS", 2 * logits[0].numel())
    parts = block_scores(drafter, logits, 4, None, np.zeros(5, np.int64))
    np.testing.assert_array_equal(whole.pool_token, parts.pool_token)
    np.testing.assert_array_equal(whole.pool_logprob, parts.pool_logprob)
