"""A lone request: what it can do at every anchor, and its schedules (O1 to O3).

At an anchor it takes a plain step, or the cheapest round by acceptance. Let k_d be the rank of the
realised path's node at depth d: the first w nodes of a nested order accept the number of k_d up to
w. So at most D + 1 rounds matter per anchor, one for each number of accepted tokens; its cheapest
width is k_d wherever the cost does not fall with the width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.cost import StepCost
from simulator.cost.price import host_s
from simulator.orders.table import ABSENT, OrderTable
from simulator.policies.checks import verifies_trees
from traces.common.errors import InputError
from traces.recordings.recording import Recording


@dataclass(frozen=True, slots=True, eq=False)
class LonePrices:
    """What n anchors cost; anchors of equal context and order size share a row."""

    row: np.ndarray  # (n,) row of round_s
    plain_s: np.ndarray  # (n,) a plain decoding step
    round_s: np.ndarray  # (R, W + 1) a round that verifies w nodes


def lone_prices(
    cost: StepCost,
    context: np.ndarray,
    widest: int,
    *,
    tree: bool,
    ordered: np.ndarray | None = None,
) -> LonePrices:
    """What `StepCost.step` charges one request.

    Args:
        context: (n,) KV tokens before each anchor. widest: W.
        tree: whether rounds with nodes pay the host's tree term.
        ordered: (n,) nodes the host orders per round; None: as many as are verified.
    """
    ordered = np.full(len(context), -1) if ordered is None else ordered
    kinds, row = np.unique(np.stack([context, ordered], axis=1), axis=0, return_inverse=True)
    one, plain, rounds = np.ones(1, np.int64), [], []
    for kv, many in kinds.tolist():
        plain.append(cost.step(one, one * kv, drafted=False, tree=False).total_s)
        device_s = cost.verify_curve_s(1, np.arange(1, widest + 2), kv) + cost.draft_s(1, kv)
        seen_s = []
        for width, seconds in enumerate(device_s.tolist()):
            put = width if many < 0 else many
            seen_s.append(
                host_s(cost.host, width, seconds, 1, True, tree and width > 0, put, False)
            )
        rounds.append(device_s + seen_s)
    row = row.reshape(-1)
    return LonePrices(row, np.array(plain)[row], np.array(rounds))


@dataclass(frozen=True, slots=True, eq=False)
class BoundedTexts:
    """S sequences of a recording with n anchors in all."""

    recording: Recording
    sequences: np.ndarray  # (S,)
    anchors: np.ndarray  # (n,) anchors of the recording, sequence after sequence
    start: np.ndarray  # (S + 1,) first anchor of each sequence in `anchors`, and n

    @classmethod
    def of(cls, recording: Recording, sequences: np.ndarray) -> BoundedTexts:
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


@dataclass(frozen=True, slots=True, eq=False)
class Options:
    """At n anchors of S sequences: the plain step, and rounds that accept exactly 0..D tokens."""

    start: np.ndarray  # (S + 1,) first anchor of each sequence
    plain_s: np.ndarray  # (n,)
    round_s: np.ndarray  # (n, D + 1), inf where no width accepts exactly d
    width: np.ndarray  # (n, D + 1) nodes of that round, -1 = none

    @property
    def left(self) -> np.ndarray:
        """Outputs behind every anchor, which is all that a round can commit: (n,)."""
        return np.repeat(self.start[1:], np.diff(self.start)) - np.arange(len(self.plain_s))


def breakpoints(table: OrderTable, anchors: np.ndarray) -> np.ndarray:
    """The widths that matter, {0, k_1, k_2, ...}: (n, D + 1) smallest that accepts exactly d.

    -1 where none does. Orders that are not nested have their declared widths alone.
    """
    smallest = np.arange(table.max_nodes + 1, dtype=float)[None]
    return _cheapest(table, anchors, np.zeros(len(anchors), np.int64), smallest)[1]


def order_options(table: OrderTable, texts: BoundedTexts, cost: StepCost) -> Options:
    """Rounds in `table`'s order, as the server charges them (O1 and O2)."""
    anchors = texts.anchors
    prices = lone_prices(
        cost,
        texts.context,
        table.max_nodes,
        tree=verifies_trees(table),
        ordered=table.size[anchors],
    )
    round_s, width = _cheapest(table, anchors, prices.row, prices.round_s)
    return Options(texts.start, prices.plain_s, round_s, width)


def free_options(
    prefix: np.ndarray, depths: int, nodes: int, texts: BoundedTexts, cost: StepCost
) -> Options:
    """Rounds that verify the realised path alone, as far as the pool holds it (O3).

    Any order's round with the same acceptance verifies those nodes and more. Where the measured
    cost falls with the width, up to `nodes` more are verified for nothing; no tree term is paid,
    and no more nodes are ordered than verified.

    Args:
        prefix: (n,) longest realised prefix inside the pool, see `pool`. depths: D.
    """
    prices = lone_prices(cost, texts.context, max(nodes, depths), tree=False)
    # For every accepted length the cheapest width of as many nodes or more: (R, D + 1).
    lengths = np.arange(depths + 1)
    at = np.stack([d + prices.round_s[:, d:].argmin(axis=1) for d in lengths], axis=1)
    least_s = np.take_along_axis(prices.round_s, at, axis=1)
    inside = lengths <= prefix[:, None]  # (n, D + 1)
    round_s = np.where(inside, least_s[prices.row], np.inf)
    return Options(texts.start, prices.plain_s, round_s, np.where(inside, at[prices.row], -1))


def _cheapest(table: OrderTable, anchors, row, round_s) -> tuple[np.ndarray, np.ndarray]:
    from simulator.studies.bounds.compiled import cheapest

    allowed = np.ones(table.max_nodes + 1, bool)
    if not table.nested:
        allowed[1:] = False
        allowed[list(table.widths_allowed())] = True
    hits = table.hit_rank[anchors].astype(np.int64)
    return cheapest(hits, table.size[anchors].astype(np.int64), row, round_s, allowed)


_CHUNK = 512  # anchors whose full-vocabulary logits are held at once
_NEAR = 1e-6  # logits: a token this close to the last candidate counts as one


def table_prefix(table: OrderTable, anchors: np.ndarray) -> np.ndarray:
    """Depths of the realised path that are nodes of the order: (n,).

    The pool is the order's own nodes; for sampled orders those that were drawn.
    """
    return (table.hit_rank[anchors] != ABSENT).sum(axis=1)


def pool_prefix(recording: Recording, anchors: np.ndarray, branch: int) -> np.ndarray:
    """Depths of the realised path of which each token is among its parent's `branch` best: (n,).

    No order of that branch or less, calibrated or not, whatever its number of nodes, accepts more.
    With a Markov head there are three kinds of scores (the true parent's, none, and the greedy
    chain's, see `BestFirstOrder`): the longest prefix of the three counts.
    """
    realised = recording.realised(anchors)  # (n, D)
    if recording.encoding == "pool":
        pool = recording["pool_token"][anchors, :, :branch]  # (n, D, branch)
        inside = (pool == realised[..., None]).any(axis=-1)
        return np.cumprod(inside, axis=1).sum(axis=1)
    chunks = range(0, len(anchors), _CHUNK)
    parts = [_hidden_prefix(recording, anchors[i : i + _CHUNK], branch) for i in chunks]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _hidden_prefix(recording: Recording, anchors: np.ndarray, branch: int) -> np.ndarray:
    head, markov = recording["head"].astype(np.float64), "markov_w1" in recording
    if markov:
        w1, w2 = (recording[f"markov_w{i}"].astype(np.float64) for i in (1, 2))
    realised = recording.realised(anchors)
    parent = greedy = recording.anchor_tokens(anchors)
    inside = np.ones((len(anchors), 3 if markov else 1), bool)  # by kind of scores
    length = np.zeros(len(anchors), np.int64)
    for depth in range(recording.depths):
        live = np.flatnonzero(inside.any(axis=1))
        plain = recording["hidden"][anchors[live], depth].astype(np.float64) @ head.T  # (live, V)
        plain[:, recording.banned_tokens] = -np.inf
        kinds = [plain]
        if markov:
            kinds += [plain + w1[parents[live]] @ w2.T for parents in (parent, greedy)]
            greedy = greedy.copy()
            greedy[live] = kinds[2].argmax(axis=1)
        token = realised[live, depth].astype(np.int64)[:, None]
        for kind, logits in enumerate(kinds):  # fewer than `branch` tokens are clearly better
            own = np.take_along_axis(logits, token, axis=1)
            inside[live, kind] &= (logits > own + _NEAR).sum(axis=1) < branch
        length += inside.any(axis=1)
        parent = realised[:, depth]
    return length


# ---------------- Whole schedules: the best of all (O2, O3), and the best round by round (O1).


PLAIN = -1  # choice of a plain decoding step, as in `compiled`
_ITERATIONS, _CLOSE = 100, 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A choice at every anchor, and what following it from the first costs each sequence."""

    options: Options
    choice: np.ndarray  # (n,) draft tokens accepted, PLAIN = a plain step
    visited: np.ndarray  # (n,) bool: a round begins there
    seconds: np.ndarray  # (S,)

    @property
    def width(self) -> np.ndarray:
        """Nodes of every round, in the order of the anchors; 0 for plain steps: (rounds,)."""
        choice = self.choice[self.visited]
        width = self.options.width[self.visited, np.maximum(choice, 0)]
        return np.where(choice == PLAIN, 0, width)

    @property
    def drafted(self) -> np.ndarray:
        """Whether a round drafts: (rounds,)."""
        return self.choice[self.visited] != PLAIN


def least_left(options: Options) -> np.ndarray:
    """V(s), the least seconds from every anchor to the end of its sequence: (n,).

    A round from s to s' takes at least V(s) - V(s').
    """
    from simulator.studies.bounds.compiled import backward

    return backward(options.start, options.plain_s, options.round_s)[0]


def best_schedule(options: Options) -> Schedule:
    """The fastest schedule (policies' O2 with `order_options`, O3 with `free_options`).

    V(s) = min over plain steps and rounds of [their seconds + V(where they land)], V(T) = 0: no
    policy that has these options is faster on any sequence.
    """
    from simulator.studies.bounds.compiled import backward

    _, choice = backward(options.start, options.plain_s, options.round_s)
    return _followed(options, choice)


def ratio_rounds(options: Options) -> Schedule:
    """O1: every round the width of the most tokens per second, (1 + a) / R.

    The best of single rounds, NOT a bound: a round that looks worse may land better.
    """
    gain, seconds = _rounds(options)
    return _followed(options, np.argmax(gain / seconds, axis=1) + PLAIN)


def best_rounds(options: Options, price: float) -> Schedule:
    """O1 at a price: every round the width of the largest 1 + a - price * R; NOT a bound.

    Args:
        price: tokens per second that a second must earn, above 0.
    """
    gain, seconds = _rounds(options)
    return _followed(options, np.argmax(gain - price * seconds, axis=1) + PLAIN)


def price_of(options: Options) -> float:
    """The price for `best_rounds` that its rounds earn: price <- tokens / seconds (Dinkelbach).

    Starts from plain decoding. Rounds move their successors, so this need not settle: of the
    prices met, the one whose rounds earned most is returned.
    """
    tokens = int(options.start[-1])
    price = tokens / float(options.plain_s.sum())
    met: dict[float, float] = {}  # price: earned
    for _ in range(_ITERATIONS):
        earned = met[price] = tokens / float(best_rounds(options, price).seconds.sum())
        if abs(earned - price) <= _CLOSE * price:
            break
        price = earned
    return max(met, key=lambda price: (met[price], price))


def _rounds(options: Options) -> tuple[np.ndarray, np.ndarray]:
    """Tokens that plain steps and rounds commit, and their seconds: two (n, D + 2)."""
    depths = options.round_s.shape[1] - 1
    gain = np.concatenate([[1], np.arange(1, depths + 2)])
    seconds = np.concatenate([options.plain_s[:, None], options.round_s], axis=1)
    return np.minimum(gain, options.left[:, None]), seconds


def _followed(options: Options, choice: np.ndarray) -> Schedule:
    from simulator.studies.bounds.compiled import follow

    visited = follow(options.start, choice)
    rounds_s = options.round_s[np.arange(len(choice)), np.maximum(choice, 0)]
    seconds = np.where(choice == PLAIN, options.plain_s, rounds_s)
    begun = np.concatenate([[0.0], np.cumsum(np.where(visited, seconds, 0.0))])
    return Schedule(options, choice, visited, np.diff(begun[options.start]))
