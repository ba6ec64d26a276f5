"""task=distribution: three tokens under every policy against plain sampling, independent draws.

They follow a prompt and the first outputs of its recorded text, up to where the target's next token
is least certain. Draws must be independent: keyed draws emit the same text under every policy, so
that a sample would be compared with itself.

A policy that differs is drawn again, and plain sampling with it: chance does not come twice. A
verifier that is known to be wrong goes through the same test, so that one sees what it can find.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import chi2, chi2_contingency

from real_runner.engine.draws import IndependentDraws
from real_runner.engine.residual import Rejection
from real_runner.engine.shared_prefix import SharedPrefixEngine
from real_runner.engine.wrong import TopKWithFullResiduals
from real_runner.models.loading import load_live
from real_runner.serving.arena import Arena, plain_workload, recorded_arena
from real_runner.settings import LiveSettings, policy_nodes
from simulator.engine.inputs import load_cost
from traces.common.errors import InputError
from traces.recordings.recording import Recording

DIFFERENT = 1  # exit status
TOKENS = 3  # compared
PROMPTS, OUTPUTS = 4, 40  # recorded of a domain, and of a text
FALSE_ALARM = 0.01  # over all policies together
BATCH = 125  # requests in flight
AGAIN = 500  # streams of the second samples, where the first ones differ
LEAST = 5.0  # expected count of a category in the smaller sample; rarer ones are put together
Sample = list[tuple]  # of tokens


def run_distribution(
    config: Mapping[str, Any], live: LiveSettings, log: Callable[[str], None]
) -> int:
    """Print p-values, and how often the wrong verifier is found; status 1 if a policy fails."""
    asked = live.distribution
    policies = policy_nodes("distribution.policies", asked.policies)
    if not live.temperature:
        raise InputError("temperature is 0; accepted for task=distribution: above 0, such as 1")
    cost, pair = load_cost(live.latency), load_live(config)
    arena = recorded_arena(config, live, asked, pair, PROMPTS, cost, OUTPUTS, "float16")
    recording, each = arena.recording, -(-asked.samples // len(asked.domains))
    starts = [
        most_open(recording, recording.anchors_of("report", name), each) for name in asked.domains
    ]
    log(
        f"{arena.pair.name}, {arena.drafter.kind} drafter, temperature {live.temperature:g}: "
        f"{TOKENS} tokens behind {len(starts)} texts, {each} samples of each and side"
    )

    def drawn(policy: dict[str, Any], stream: int, verifier=Rejection) -> list[Sample]:
        draws = IndependentDraws(live.temperature, np.random.default_rng([asked.seed, stream]))
        own = replace(arena, verifier=verifier(draws), engine=SharedPrefixEngine)
        return sample(own, policy, starts, each)

    plain, tree = policy_nodes("policy", ["autoregressive", "fixed_tree"])
    base = drawn(plain, 0)
    limit, failed = FALSE_ALARM / len(policies), 0
    for index, policy in enumerate(policies, start=1):
        result = prefix_tests(list(zip(drawn(policy, index), base, strict=True)))
        log(f"{policy['name']:22} {result}")
        if result.p_value < limit:
            sides = drawn(policy, AGAIN + index), drawn(plain, AGAIN)
            again = prefix_tests(list(zip(*sides, strict=True)))
            log(f"{'  both sides drawn again':22} {again}")
            failed += again.p_value < limit
    log(
        f"policies that differ, below {limit:.2g} twice (false alarms of one test {FALSE_ALARM:g} "
        f"over all policies): {failed}"
    )
    tree = tree | {"nodes": 8, "branch": 8}  # the root's top 8 mostly
    found = 0
    for trial in range(asked.trials):
        ours = drawn(tree, 1000 + trial, TopKWithFullResiduals)
        wrong = prefix_tests(list(zip(ours, base, strict=True)))
        found += wrong.p_value < limit
        log(f"top-k set, full-vocabulary residuals (wrong) {wrong}")
    log(f"wrong verifier found in {found} of {asked.trials} trials")
    return DIFFERENT if failed or not found else 0


def most_open(recording: Recording, anchors: np.ndarray, samples: int) -> int:
    """The anchor behind which a test of `samples` draws can see most: an anchor index.

    It has the largest entropy of the target's next token, tokens too rare for a category of their
    own counted as one. (Where the next token is all but certain, no verifier can be found wrong.)
    """
    rows = recording.target_row(anchors, np.zeros(len(anchors), np.int64))
    law = np.exp(recording.target_logp(rows))  # (n, V)
    law = np.where(law * samples >= LEAST, law, 0.0)
    law = np.concatenate([law, 1 - law.sum(1, keepdims=True)], axis=1).clip(0)
    entropy = -(law * np.log(np.where(law > 0, law, 1.0))).sum(1)
    return int(anchors[entropy.argmax()])


def sample(arena: Arena, policy: dict[str, Any], starts: list[int], each: int) -> list[Sample]:
    """`TOKENS` tokens of `each` requests behind every start (an anchor); a list per start.

    Starts are of different texts.
    """
    recording, anchors = arena.recording, np.array(starts)
    sequences, output = recording.anchor_sequence[anchors], recording.anchor_output[anchors]
    cap = np.ones(len(arena.requests), np.int64)
    cap[sequences] = output + 1 + TOKENS
    requests = replace(arena.requests, max_new_tokens=cap)
    asked = np.tile(np.arange(len(starts)), each)
    # As warm-up requests, they start behind recorded outputs.
    work = replace(
        plain_workload(sequences[asked], BATCH),
        first_output=output[asked],
        warmup=np.ones(len(asked), bool),
    )
    served = arena.serve(policy, work, BATCH, requests)
    groups: list[Sample] = [[] for _ in starts]
    for start, tokens in zip(asked.tolist(), served.outputs, strict=True):
        groups[start].append(tuple(tokens[output[start] + 1 :]))
    return groups


# ---------------- Whether two samples of texts have one law.


@dataclass(frozen=True, slots=True)
class TwoSample:
    """Pearson's test of homogeneity of two samples over the same categories."""

    statistic: float
    degrees: int  # 0: nothing to compare
    p_value: float

    def __str__(self) -> str:
        return f"chi2 {self.statistic:.1f} on {self.degrees}, p {self.p_value:.3g}"


@dataclass(frozen=True, slots=True)
class PrefixTests:
    """The first token, the second given the first, and so on; corrected for their number."""

    tests: tuple[TwoSample, ...]

    @property
    def p_value(self) -> float:
        """Bonferroni's: the smallest, times the number of tests that compared anything."""
        values = [test.p_value for test in self.tests if test.degrees]
        return min(1.0, len(values) * min(values)) if values else 1.0

    def __str__(self) -> str:
        return f"p {self.p_value:.3g} ({'; '.join(map(str, self.tests))})"


def prefix_tests(groups: list[tuple[Sample, Sample]]) -> PrefixTests:
    """`two_sample` on the first token of every tuple, on the second given the first, and so on.

    Tokens are compared apart behind every frequent prefix, together behind rare ones: where both
    samples have one law, so have their tokens behind the same prefixes. Each test is its own: what
    the tokens before it are has been compared by the tests before.
    """
    tests = []
    for before in range(max(len(one) for pair in groups for side in pair for one in side)):
        split: dict[tuple, tuple[Sample, Sample]] = {}
        for group, pair in enumerate(groups):
            prefixes = ([one[:before] for one in side] for side in pair)
            often = set(_often(*prefixes, 2 * LEAST))
            for index, side in enumerate(pair):
                for one in side:
                    prefix = one[:before] if one[:before] in often else None
                    sides = split.setdefault((group, prefix), ([], []))
                    sides[index].append(one[before : before + 1])
        tests.append(two_sample(list(split.values())))
    return PrefixTests(tuple(tests))


def _often(ours: Sample, theirs: Sample, least: float) -> list[tuple]:
    """What the smaller of both samples holds that often, as both together have it."""
    # The pooled counts alone are looked at, which say nothing about a difference.
    share = min(len(ours), len(theirs)) / (len(ours) + len(theirs))
    return sorted(one for one, count in Counter(ours + theirs).items() if count * share >= least)


def two_sample(groups: list[tuple[Sample, Sample]]) -> TwoSample:
    """Test all groups (prompts) together; each holds a sample of token tuples from either side.

    Categories are the tuples that either sample holds often enough; the others of a group are one
    category. Statistics and degrees of freedom of independent groups add up.
    """
    statistic, degrees = 0.0, 0
    for ours, theirs in groups:
        often, sizes = _often(ours, theirs, LEAST), np.array([len(ours), len(theirs)])
        rows = np.array([[count[one] for one in often] for count in map(Counter, (ours, theirs))])
        rest = sizes - rows.sum(1)
        if rest.sum() * (sizes.min() / sizes.sum()) >= LEAST:
            rows = np.column_stack([rows, rest])
        if rows.shape[1] > 1 and rows.sum(1).all():
            found = chi2_contingency(rows, correction=False)
            statistic, degrees = statistic + float(found.statistic), degrees + found.dof
    return TwoSample(statistic, degrees, float(chi2.sf(statistic, degrees)) if degrees else 1.0)
