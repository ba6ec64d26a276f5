"""The engine against references without a cache, a batch or a mask, on tiny random weights."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from real_runner.engine import engine as engine_module
from real_runner.engine.attend import read_whole
from real_runner.engine.cache import COLUMNS, KVCache
from real_runner.engine.engine import Engine, Settings
from real_runner.engine.pack import PACKINGS, Trees, pack
from real_runner.engine.residual import make_verifier
from real_runner.engine.walk import DrawAndMatch, GreedyMatch, Round, ban
from real_runner.models.small.config import BANNED
from real_runner.probing.shapes import random_pair
from real_runner.serving.prompts import Requests
from real_runner.serving.server import LiveServer
from simulator.engine.arrivals import Workload
from simulator.orders import BestFirstOrder, ChainOrder
from tests.serving import ConstantCost, Plain, Watched
from tests.tiny_pair import (
    FREE,
    KINDS,
    VOCAB,
    continuation,
    full_draft,
    full_logits,
    random_prompts,
    random_trees,
    tiny_pair,
)

CLOSE = {torch.float32: 2e-3, torch.float64: 1e-9}  # of logits that spread over tens
DTYPES = tuple(CLOSE)


@pytest.fixture(scope="module")
def pairs():
    return {dtype: tiny_pair(dtype=dtype) for dtype in DTYPES}


@pytest.fixture(scope="module")
def pair(pairs):
    return pairs[torch.float64]


def path_to(trees: Trees, request: int, node: int) -> list[int]:
    """Tokens from the root to a node (-1: the root itself)."""
    path = []
    while node >= 0:
        path.append(int(trees.token[request, node]))
        node = int(trees.parent[request, node])
    return [int(trees.root[request]), *reversed(path)]


# ---------------------------------------------------------------- packing


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("which", [*DTYPES, "grouped"])
@pytest.mark.parametrize("seed", range(3))
def test_every_packed_node_sees_its_text_and_its_ancestors_alone(pairs, packing, which, seed):
    if which == "grouped":  # a target of transformers, two query heads to a key-value head
        pytest.importorskip("transformers")
        target = random_pair("tiny", torch.device("cpu"), torch.float32).target
    else:
        target = pairs[which].target
    dtype, rng = target.dtype, np.random.default_rng(seed)
    prompts = random_prompts(rng, 4, 30)
    engine = Engine(target, None, 4, 40)
    roots = [engine.admit(np.array(prompt), 0) for prompt in prompts]
    trees = random_trees(rng, roots, [len(p) for p in prompts], 9)
    with torch.inference_mode():
        packed = pack(trees, engine.cache, packing, dtype)
        hidden, _ = target.forward(packed.tokens, packed.positions, packed.attend)
        logits = ban(target.logits(packed.per_request(hidden)), target.banned_tokens)
        logits = logits.double().numpy()
    if packing == "ragged":
        assert len(logits) == trees.width.sum() + 4  # nothing is padded
    for request, prompt in enumerate(prompts):
        for node in range(-1, trees.width[request]):
            row = packed.index(np.array([request]), np.array([node + 1]))[0]
            alone = full_logits(target, prompt + path_to(trees, request, node))
            assert np.allclose(logits[row], alone, atol=CLOSE[dtype]), (request, node)


# ---------------------------------------------------------------- walks


def dictionary_walk(trees: Trees, request: int, after) -> tuple[list[int], list[int]]:
    """(nodes, tokens) of one request; after(node) is the target's token behind a node."""
    child = {}
    for m in range(trees.width[request]):
        child[int(trees.parent[request, m]), int(trees.token[request, m])] = m
    node, nodes, tokens = -1, [], [after(-1)]
    while (node, tokens[-1]) in child:
        node = child[node, tokens[-1]]
        nodes.append(node)
        tokens.append(after(node))
    return nodes, tokens


def check_walk(walk, trees: Trees, after) -> int:
    """Hold a walk against the dictionary's; returns the tokens accepted in all."""
    for i in range(len(trees)):
        nodes, tokens = dictionary_walk(trees, i, lambda node, i=i: after(i, node))
        room = walk.path.shape[1]
        assert walk.accepted[i] == len(nodes)
        assert walk.path[i].tolist() == nodes + [-1] * (room - len(nodes))
        assert walk.token[i].tolist() == tokens + [-1] * (room + 1 - len(tokens))
    return int(walk.accepted.sum())


class ListedDraws:
    """The argmax, and what was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def rows(self, logits, seeds, output_index) -> np.ndarray:
        self.asked += zip(seeds.tolist(), output_index.tolist())
        return logits.argmax(-1)


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("seed", range(6))
def test_both_verifiers_walk_packed_logits_alike(pair, packing, seed):
    rng = np.random.default_rng(seed)
    trees = random_trees(rng, [1] * 5, [3] * 5, 10, np.arange(5, 18))
    packed = pack(trees, KVCache(pair.target, 5, 40), packing, torch.float64)
    rows = packed.tokens.numel()
    logits = torch.zeros(rows, VOCAB, dtype=torch.float64)
    best = rng.choice(FREE, rows)
    for i, m in np.argwhere(rng.random(trees.token.shape) < 0.8):  # many nodes are gone to
        if m < trees.width[i]:
            above = trees.parent[i, m] + 1
            best[packed.index(np.array([i]), np.array([above]))[0]] = trees.token[i, m]
    logits[torch.arange(rows), torch.from_numpy(best)] = 1.0
    seeds, output_index = np.arange(70, 75), np.arange(0, 50, 10)
    seen = Round(trees, packed, logits, seeds, output_index, None)
    draws = ListedDraws()

    def after(i, node):
        return int(best[packed.index(np.array([i]), np.array([node + 1]))[0]])

    assert check_walk(GreedyMatch().walk(seen), trees, after) >= 3
    walk = DrawAndMatch(draws).walk(seen)
    check_walk(walk, trees, after)
    expected = [
        (int(seeds[i]), int(output_index[i]) + 1 + step)
        for i in range(5)
        for step in range(int(walk.accepted[i]) + 1)
    ]
    assert sorted(draws.asked) == sorted(expected)


# ---------------------------------------------------------------- rounds


class Driver:
    """Requests that come, go, draft and decode plainly at random, each held against its own text.

    Trees hold the right continuation to a random depth among wrong tokens, so that every length
    is accepted.
    """

    def __init__(self, pair, kind: str, packing: str, rng, temperature: float = 0.0) -> None:
        self.target, self.drafter, self.rng = pair.target, pair.drafters[kind], rng
        self.temperature, self.capacity = temperature, 4
        self.engine = Engine(
            *(self.target, self.drafter, self.capacity, 1),
            make_verifier(temperature),
            Settings(packing=packing, pool=8),
        )
        self.running: list[dict] = []
        self.accepted = self.compared = self.moved = self.ended = 0

    def admit(self) -> None:
        (prompt,) = random_prompts(self.rng, 1)
        seed, cap = int(self.rng.integers(1000)), int(self.rng.integers(3, 16))
        expected = continuation(self.target, prompt, cap + 8, self.temperature, seed)
        text = [self.engine.admit(np.array(prompt), seed)]
        self.running.append(
            {"prompt": prompt, "seed": seed, "cap": cap, "text": text, "expected": expected}
        )

    def step(self) -> None:
        rows = self.engine.row.copy()
        table, width = None, np.zeros(len(self.running), np.int64)
        if self.rng.random() < 0.6:
            self.check_draft(self.engine.draft())
            trees = [self.tree(one) for one in self.running]
            most = max(max(len(tree[0]) for tree in trees), 1)
            pad = [[np.pad(part, (0, most - len(part))) for part in tree] for tree in trees]
            token, parent, depth = (np.array(part, np.int64) for part in zip(*pad))
            table = SimpleNamespace(token=token, parent=parent, depth=depth)
            width = np.array([len(tree[0]) for tree in trees])
        seeds = np.array([one["seed"] for one in self.running])
        index = np.array([len(one["text"]) - 1 for one in self.running])
        walk = self.engine.verify(table, width, seeds, index)
        self.engine.commit()
        self.moved += not np.array_equal(rows, self.engine.row)
        assert sorted(self.engine.row) == list(range(len(self.running)))
        self.read(walk)

    def read(self, walk) -> None:
        """Emit, hold against the expected text, and let go what is over."""
        for i, one in enumerate(self.running):
            one["text"] += walk.token[i, : walk.accepted[i] + 1].tolist()
            assert one["text"] == one["expected"][: len(one["text"])]
            assert self.engine.length[i] == len(one["prompt"]) + len(one["text"]) - 1
            assert self.engine.root[i] == one["text"][-1]
            self.accepted += int(walk.accepted[i])
        going = np.array([len(one["text"]) < one["cap"] for one in self.running])
        if not going.all() or self.rng.random() < 0.2:
            self.engine.release(going)
        self.ended += int(np.count_nonzero(~going))
        self.running = [one for one, stays in zip(self.running, going) if stays]

    def tree(self, one: dict) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(token, parent, depth): the true path to a random depth, wrong siblings and tails."""
        future = one["expected"][len(one["text"]) :]
        true = int(self.rng.integers(0, min(4, len(future)) + 1))
        token, parent, tip = [], [], -1
        for step in range(true):
            for _ in range(int(self.rng.integers(0, 3))):  # before the true one
                self.wrong(token, parent, int(self.rng.integers(-1, len(token))), one)
            token.append(future[step])
            parent.append(tip)
            tip = len(token) - 1
        depth: list[int] = []
        for above in parent:
            depth.append(1 if above < 0 else depth[above] + 1)
        return tuple(np.array(part, np.int64) for part in (token, parent, depth))

    def wrong(self, token: list[int], parent: list[int], above: int, one: dict) -> None:
        """A node that the right path does not take."""
        near = set(one["expected"][len(one["text"]) - 1 :])
        token.append(int(self.rng.choice([t for t in FREE if t not in near])))
        parent.append(above)

    def check_draft(self, block) -> None:
        """Scores equal those of the drafter on the exact prefix."""
        close = CLOSE[self.target.dtype]
        for i, one in enumerate(self.running):
            alone = full_draft(self.drafter, self.target, one["prompt"] + one["text"])
            if block.pooled:
                law = alone - np.logaddexp.reduce(alone, axis=-1, keepdims=True)
                best = np.argsort(-law, axis=-1, kind="stable")[:, :8]
                assert block.pool_token[i].tolist() == best.tolist()
                kept = np.take_along_axis(law, best, -1)
                assert np.allclose(block.pool_logprob[i], kept, atol=close)
            else:
                assert np.allclose(block.logits[i], alone, atol=close)
                assert block.anchor_token[i] == one["text"][-1]
            self.compared += 1

    def run(self, steps: int) -> None:
        for _ in range(steps):
            while len(self.running) < self.capacity and self.rng.random() < 0.5:
                self.admit()
            if self.running:
                self.step()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize(("dtype", "temperature"), [(DTYPES[0], 0.0), (DTYPES[1], 0.9)])
def test_texts_and_drafts_survive_any_sequence_of_rounds(pairs, kind, packing, dtype, temperature):
    rng = np.random.default_rng([packing == "dense", kind == "block", temperature > 0])
    driver = Driver(pairs[dtype], kind, packing, rng, temperature)
    driver.run(35)
    counts = (driver.accepted, driver.compared, driver.moved, driver.ended)
    assert all(count > least for count, least in zip(counts, (20, 10, 1, 4), strict=True)), counts


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_outgrows_its_cache_unharmed(pair, kind, monkeypatch):
    monkeypatch.setattr(engine_module, "HEADROOM", 0)
    driver = Driver(pair, kind, "ragged", np.random.default_rng(8))
    begun = driver.engine.cache.columns, driver.engine.context.columns
    assert begun == (COLUMNS, COLUMNS)
    driver.run(30)
    assert driver.engine.cache.columns > COLUMNS
    assert driver.engine.context.columns > COLUMNS


def test_waiting_states_go_with_their_requests(pair):
    """Plain steps leave states to the next draft; nothing stays of requests that have ended."""
    driver = Driver(pair, "block", "ragged", np.random.default_rng(1))
    driver.admit()
    walk = driver.engine.verify(None, np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1))
    assert walk.accepted.tolist() == [0]
    driver.engine.commit()
    driver.engine.release(np.zeros(1, bool))
    assert driver.engine.batch == 0
    assert not driver.engine._fresh


# ---------------------------------------------------------------- banned tokens


@pytest.fixture(scope="module")
def loud_pair():
    """A pair whose banned tokens score best almost everywhere."""
    pair = tiny_pair()
    with torch.no_grad():
        pair.target.head[list(BANNED)] *= 4
    return pair


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_banned_tokens_are_neither_drafted_nor_emitted(loud_pair, kind, temperature):
    target, rng = loud_pair.target, np.random.default_rng(2)
    engine = Engine(
        *(target, loud_pair.drafters[kind], 3, 60),
        make_verifier(temperature),
        Settings(pool=8),
    )
    prompts = random_prompts(rng, 3)
    emitted = [engine.admit(np.array(prompt), i) for i, prompt in enumerate(prompts)]
    best = target.logits(read_whole(target, torch.tensor([prompts[0]]))[0][0]).argmax(-1)
    assert set(best.tolist()) & set(BANNED), "no banned token scores best"
    for step in range(8):
        spec = (ChainOrder(), BestFirstOrder(nodes=20))[step % 2]
        table = engine.order(spec, engine.draft())
        assert not set(table.token[table.token >= 0].tolist()) & set(BANNED)
        walk = engine.verify(table, table.size.astype(np.int64), np.arange(3), np.full(3, step))
        engine.commit()
        emitted += walk.token[walk.token >= 0].tolist()
    assert not set(emitted) & set(BANNED)


# ---------------------------------------------------------------- ends of texts


class Foreseeing(Engine):
    """Drafts the true continuation, past its end too."""

    future: dict[tuple[int, ...], list[int]]

    def order(self, spec, block, *where):
        table = super().order(spec, block, *where)
        token = table.token.copy()
        for i, root in enumerate(self.root.tolist()):
            token[i] = self.future[root][: token.shape[1]]
        return type(table)(
            spec, table.anchors, table.score, table.depth, table.parent, token, table.size,
            table.hit_rank, table.ties,
        )  # fmt: skip


def served(pair, prompt, cap: int, eos: tuple[int, ...], policy, monkeypatch):
    """Facts and outputs of one request twice, one after the other."""
    monkeypatch.setattr(pair.target, "eos_tokens", eos)
    requests = Requests(
        [np.array(prompt)], np.array([0]), np.array([cap]), np.zeros(1, np.int64), ("any",)
    )
    engine = Foreseeing(pair.target, pair.drafters["semi_autoregressive"], 1, requests.longest)
    text = continuation(pair.target, prompt, 30)
    engine.future = {text[i]: text[i + 1 :] for i in reversed(range(20))}
    none = np.zeros(2, np.int64)
    workload = Workload(none, none, none.astype(bool), None, 1)
    server = LiveServer(engine, policy, ConstantCost(), workload, requests, 1)
    return server.run(), server.outputs


@pytest.fixture(scope="module")
def fresh_text(pair):
    """A prompt whose first 12 outputs are all different, and they."""
    rng = np.random.default_rng(0)
    while True:
        (prompt,) = random_prompts(rng, 1)
        text = continuation(pair.target, prompt, 12)
        if len(set(text)) == 12:
            return prompt, text


# Chains of 3, all accepted: output 0 | 1 2 3 4 | 5 6 7 8.
ENDS = [  # cap, output that is the end, tokens committed in each round
    (9, 0, []),
    (1, None, []),
    (20, 6, [4, 2]),  # inside an accepted path: clipped
    (7, None, [4, 2]),
    (20, 8, [4, 4]),  # as the bonus: whole
]


@pytest.mark.parametrize(("cap", "end", "committed"), ENDS)
def test_ends_of_texts(pair, fresh_text, monkeypatch, cap, end, committed):
    """An end in the first token or a cap of one takes no round; others clip what is committed."""
    prompt, text = fresh_text
    eos, count = (1,) if end is None else (text[end],), 1 + sum(committed)
    policies = [Watched(3, ChainOrder(3)), *([] if committed else [Plain()])]
    for policy in policies:
        facts, outputs = served(pair, prompt, cap, eos, policy, monkeypatch)
        assert outputs == [text[:count]] * 2
        assert facts.requests["rounds"].tolist() == [len(committed)] * 2
        assert facts.requests["output_tokens"].tolist() == [count] * 2
        if committed:
            assert facts.rounds["accepted"].tolist() == [3] * 4
            assert facts.rounds["committed"].tolist() == committed * 2
