"""What arrives: the order of texts, gaps and clients; and requests of a workload file."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.engine.arrivals import BLOCK, LazyWorkload, gaps, make_workload
from simulator.engine.run import Job, simulate
from simulator.engine.settings import Settings, WorkloadSettings
from simulator.engine.traffic_file import Lengths
from tests.serving import STEP_S, ConstantCost, Plain, serve
from tests.synthetic import make_geometric, make_pool
from traces.common.errors import InputError


@pytest.fixture(scope="module")
def equal():
    return make_geometric(0.5, np.random.default_rng(0), sequences=9, length=12, depths=3)


def workload(equal, **settings):
    return make_workload(Settings(**settings), equal, equal.sequences_of("report"))


def test_requests_cycle_through_one_shuffle_of_the_split(equal):
    sequence = workload(equal, num_prompts=10).sequence
    report = equal.sequences_of("report").tolist()  # every third: 2, 5, 8
    assert sorted(sequence[:3].tolist()) == report == [2, 5, 8]
    assert sequence[3:6].tolist() == sequence[6:9].tolist() == sequence[:3].tolist()
    assert sequence[9] == sequence[0]


def test_the_order_depends_on_the_seed_alone(equal):
    sequences = np.arange(9)

    def order(**settings):
        return make_workload(Settings(num_prompts=9, **settings), equal, sequences).sequence

    base = order(seed=1)
    assert (base == order(seed=1, max_concurrency=3)).all()
    assert (base == order(seed=1, request_rate=2.0, burstiness=0.3)).all()
    assert (base != order(seed=2)).any()


def test_arrivals_do_not_depend_on_how_many_there_are(equal):
    few = workload(equal, request_rate=5.0, num_prompts=20, burstiness=2.0)
    many = workload(equal, request_rate=5.0, num_prompts=40, burstiness=2.0, max_concurrency=3)
    assert (few.gap_s == many.gap_s[:20]).all()


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_asked_rate_and_variation(burstiness):
    """Gamma of shape k and mean m: standard deviation m / sqrt(k)."""
    count, rate = 100_000, 8.0
    gap_s = gaps(rate, burstiness, count, np.random.default_rng(3))
    spread = burstiness**-0.5
    assert gap_s.mean() * rate == pytest.approx(1, abs=4 * spread / count**0.5)
    # Relative standard error of a gamma sample's deviation: sqrt((2 + 6 / k) / (4 n)), 0.8 % for
    # k = 1/4.
    assert gap_s.std() / gap_s.mean() == pytest.approx(spread, rel=0.03)
    assert gap_s.min() < 0.1 / rate  # not clipped from below


def test_first_requests_of_clients_start_anywhere_in_their_text(equal):
    work = workload(equal, max_concurrency=400, num_prompts=450)
    anchors = equal.anchor_counts[work.sequence]
    assert work.warmup.tolist() == [True] * 400 + [False] * 50
    assert (work.first_output[400:] == 0).all()
    assert ((work.first_output >= 0) & (work.first_output < anchors)).all()
    assert set(work.first_output[:400]) == set(range(11))  # L = 12: roots 0..10


def test_a_client_sends_its_next_request_when_its_last_one_ends(equal):
    facts = serve(equal, Plain(), max_concurrency=3, num_prompts=20)
    arrival_s, finish_s = facts.requests["arrival_s"], np.sort(facts.requests["finish_s"])
    assert (arrival_s[:3] == 0).all()
    assert arrival_s[3:].tolist() == finish_s[:17].tolist()
    # With room for every client nobody waits, and a slot is refilled before the next step.
    assert (facts.requests["admitted_s"] == arrival_s).all()
    assert set(np.diff(facts.steps["time_s"])) == {STEP_S}


@pytest.mark.parametrize(
    ("settings", "requests"),
    [
        ({"max_concurrency": 1}, 64),
        ({"max_concurrency": 256}, 1536),
        ({"max_concurrency": 256, "request_rate": 3.0}, 256),
        ({"max_concurrency": 4, "num_prompts": 7}, 7),
    ],
)
def test_number_of_requests(settings, requests):
    assert Settings(**settings).requests == requests


# ---------------------------------------------------------------- a file of requests


@pytest.fixture(scope="module")
def recording():
    """Texts of 5, 9, 1 and 3 outputs."""
    return make_pool(np.random.default_rng(0), sequences=4, depths=3, lengths=[5, 9, 1, 3])


def written(folder, text: str) -> str:
    path = folder / "requests.csv"
    path.write_text(text)
    return str(path)


def lengths_of(recording, path: str, limit=None, **settings) -> Lengths:
    return Lengths(WorkloadSettings(path=path, **settings), recording, np.arange(4), limit)


def run(recording, lengths: Lengths, **load):
    settings = Settings(num_prompts=lengths.count, workload=lengths._settings, **load)
    job = Job({}, settings, recording, np.arange(4), ConstantCost(), Plain(), None, lengths)
    return simulate(job)


def test_outputs_are_as_long_as_the_file_says(recording, tmp_path):
    """12 tokens from texts of 5, 9 and 3: one of each pair of neighbours stands for both ends."""
    path = written(tmp_path, "time_s,prompt_tokens,output_tokens\n0,7,12\n1,30,1\n2.5,4,2\n")
    lengths = lengths_of(recording, path, arrivals="file")
    facts = run(recording, lengths)
    requests = facts.requests
    assert requests["prompt_tokens"].tolist() == [7, 30, 4]
    assert requests["output_tokens"].tolist() == [12, 1, 2]
    assert requests["arrival_s"].tolist() == [0.0, 1.0, 2.5]
    assert requests["rounds"].tolist() == [11, 0, 1]
    # 11 rounds over texts of 4, 8 and 2 anchors: at least one boundary, at most four.
    own = facts.rounds["anchor"][facts.rounds["request"] == 0]
    boundaries = np.count_nonzero(np.diff(recording.anchor_sequence[own]))
    assert requests["hand_overs"].tolist() == [boundaries, 0, 0]
    assert 1 <= boundaries <= 4


def test_a_domain_column_chooses_among_its_texts(tmp_path):
    texts = make_pool(np.random.default_rng(5), sequences=8, depths=3, lengths=[6] * 8)
    names = texts.domains
    rows = "".join(f"3,9,{names[i % len(names)]}\n" for i in range(12))
    path = written(tmp_path, "prompt_tokens,output_tokens,domain\n" + rows)
    lengths = Lengths(WorkloadSettings(path=path), texts, np.arange(8))
    work = make_workload(Settings(num_prompts=12, max_concurrency=2), texts, np.arange(8), lengths)
    assert work.domain.tolist() == [i % len(names) for i in range(12)]
    bad = written(tmp_path, "prompt_tokens,output_tokens,domain\n3,9,nowhere\n")
    with pytest.raises(InputError, match="line 2, domain 'nowhere'; accepted: "):
        Lengths(WorkloadSettings(path=bad), texts, np.arange(8))


def test_clients_join_in_the_middle_of_long_outputs(recording, tmp_path):
    path = written(tmp_path, "prompt_tokens,output_tokens\n" + "2,400\n" * 40)
    lengths = lengths_of(recording, path)
    settings = Settings(num_prompts=40, max_concurrency=20)
    work = make_workload(settings, recording, np.arange(4), lengths)
    emitted = work.context - 2  # of all texts so far
    assert (emitted[:20] + work.output_tokens[:20] + 1 == 400).all()
    assert emitted[:20].max() > 100
    assert (work.output_tokens[20:] == 400).all()
    assert (work.first_output < recording.anchor_counts[work.sequence]).all()


@pytest.mark.parametrize("load", [{"max_concurrency": 7}, {"request_rate": 20.0}])
def test_lazy_rows_are_the_rows(recording, tmp_path, load):
    """More than two blocks, read in uneven pieces, from a file and from the recording."""
    count = 2 * BLOCK + 100
    rng = np.random.default_rng(1)
    rows = "".join(f"{a},{b}\n" for a, b in rng.integers(1, 30, (count, 2)).tolist())
    path = written(tmp_path, "prompt_tokens,output_tokens\n" + rows)
    settings = Settings(num_prompts=count, **load)
    for lengths in (None, lengths_of(recording, path)):
        whole = make_workload(settings, recording, np.arange(4), lengths)
        lazy = LazyWorkload(settings, recording, np.arange(4), lengths)
        first, pieces = 0, [1, 5000, 3, 4000]
        for size in pieces:
            ours, theirs = lazy.block(first, size), whole.block(first, size)
            assert ours.keys() == theirs.keys()
            for name, column in theirs.items():
                assert ours[name].tolist() == column.tolist(), name
            first += size
        assert len(lazy) == len(whole) == count


def test_recorded_texts_may_stand_behind_longer_prompts(recording):
    """Only what is paid changes: contexts, not rounds."""
    results = {}
    for prompt in (None, 5000):
        settings = Settings(
            num_prompts=9, max_concurrency=2, workload=WorkloadSettings(prompt_tokens=prompt)
        )
        job = Job({}, settings, recording, np.arange(4), ConstantCost(), Plain(), None)
        results[prompt] = simulate(job), job.cost.asked
    (own, own_asked), (long, long_asked) = results.values()
    assert long.rounds["anchor"].tolist() == own.rounds["anchor"].tolist()
    assert (long.requests["prompt_tokens"] == 5000).all()
    for ours, theirs in zip(own_asked, long_asked, strict=True):
        assert (theirs["context"] >= 5000).all()
        assert (ours["context"] < 100).all()
    with pytest.raises(InputError, match="null with workload.path"):
        WorkloadSettings(prompt_tokens=5, path="file.csv")


def test_what_cannot_be_served_is_refused(recording, tmp_path):
    path = written(tmp_path, "prompt_tokens,output_tokens\n3,4\n")
    with pytest.raises(InputError, match="no arrival times; accepted with workload.arrivals=file"):
        lengths_of(recording, path, arrivals="file")
    with pytest.raises(InputError, match="workload.path is None"):
        WorkloadSettings(max_prompt_tokens=2)
    with pytest.raises(InputError, match="time_scale is 2.0; accepted: 1.0 with workload.arr"):
        WorkloadSettings(path=path, time_scale=2.0)
    with pytest.raises(InputError, match="workload.path is None; accepted: with workload=file"):
        WorkloadSettings(name="file")
    with pytest.raises(InputError, match="ramp is 3; accepted: in a closed loop 0"):
        Settings(ramp=3)
    with pytest.raises(InputError, match="no text of more than one token"):
        Lengths(WorkloadSettings(path=path), recording, np.array([2]))
    with pytest.raises(InputError, match="request_rate is 5.0; accepted: with workload"):
        Settings(request_rate=5, workload=WorkloadSettings(path=path, arrivals="file"))
