"""task=probe: which cells, how they are timed, what is kept, and the profile that comes out."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

torch = pytest.importorskip("torch")

from real_runner.app import main
from real_runner.engine.engine import Engine, Settings
from real_runner.probing.grid import Grid, PrefillCell, Samples, StepCell, cells_of, one_pass
from real_runner.probing.measure import DoesNotFit, Probe, made_up_trees
from real_runner.probing.profile import assemble
from real_runner.tasks.probe import command_line
from simulator.cost import Source, StepCost, read_profile
from simulator.engine.inputs import load_recording
from simulator.results.summary import what_if_reason
from traces.common.errors import InputError

TINY = [
    *("task=probe", "output=out", "probe.name=tiny", "probe.batches=[2]", "probe.prefixes=[8]"),
    *("probe.packed_per_request=[1,2,4]", "probe.prompt_tokens=[5]", "probe.edges=false"),
    *("probe.warmup=1", "probe.repeats=3", "probe.passes=2"),
]
PROFILE, PARTIAL = Path("out/tiny.csv"), Path("out/tiny.partial.jsonl")
CELLS = [StepCell(2, 8, 2), StepCell(2, 8, 4), StepCell(2, 8, 8), PrefillCell(5)]
NAMES = [("step", 2, 8, 2), ("step", 2, 8, 4), ("step", 2, 8, 8), ("prefill", 5)]


# ---- which cells


SIXTEENS, BIG = range(16, 129, 16), (192, 256, 320, 384, 448, 512, 640, 768, 896, 1024)


@pytest.mark.parametrize(
    ("grid", "packing", "graph_sizes", "totals"),
    [
        # 2 * (1, 3, 16); 16 and 32 with neighbours, without 33, which is beyond 2 * 16
        (Grid((2,), (1, 3, 16), (8,), (4,), True, 32), "ragged", (), [2, 6, 15, 16, 17, 31, 32]),
        # multiples of the batch: 6 and 3 around the graph of 5, 15 and 18 around 16
        (Grid((3,), (1, 8), (8, 5), (), True, 16), "dense", (5,), [3, 6, 15, 18, 24]),
        (
            Grid((1,), (1, 4096), (8,), (), True, 1024),
            "ragged",
            (),
            sorted({1, 4096, *(jump + d for jump in (*SIXTEENS, *BIG) for d in (-1, 0, 1))}),
        ),
    ],
)
def test_cells_stand_on_either_side_of_a_jump(grid, packing, graph_sizes, totals):
    (batch,) = grid.batches
    steps = [StepCell(batch, prefix, t) for prefix in sorted(grid.prefixes) for t in totals]
    prompts = [PrefillCell(tokens) for tokens in grid.prompt_tokens]
    assert cells_of(grid, packing, graph_sizes) == [*steps, *prompts]


@given(st.integers(1, 40), st.integers(0, 300))
def test_packed_tokens_are_spread_evenly(batch, nodes):
    packed = StepCell(batch, 8, batch + nodes).packed
    assert packed.shape == (batch,)
    assert packed.sum() == batch + nodes
    assert packed.max() - packed.min() <= 1
    assert packed.min() >= 1


def test_a_pass_has_every_cell_in_an_order_of_its_own():
    passes = [one_pass(CELLS * 5, 7, index) for index in range(3)]
    assert all(sorted(map(str, one)) == sorted(map(str, CELLS * 5)) for one in passes)
    assert passes[0] != passes[1]
    assert passes[0] == one_pass(CELLS * 5, 7, 0)


# ---- from samples to rows


# Totals 2, 4, 6 of two requests: medians 3, 7, 5 ms of 3, 3 and 1 samples.
MADE_UP = {
    StepCell(2, 8, 2): Samples(verify_s=(0.003, 0.002, 0.005)),
    StepCell(2, 8, 4): Samples((0.007, 0.007, 0.001), (0.001, 0.001, 0.004)),
    StepCell(2, 8, 6): Samples((0.005,), (0.002,)),
    PrefillCell(9): Samples(prefill_s=(0.004, 0.008)),
}


def test_rows_are_medians_and_their_deviations():
    rows = assemble(MADE_UP, isotonic=False)
    assert [(r.batch, r.kv_prefix_tokens, r.packed_tokens_total) for r in rows.verify] == [
        (2, 8, 2), (2, 8, 4), (2, 8, 6),
    ]  # fmt: skip
    assert [row.verify_ms for row in rows.verify] == [3, 7, 5]
    assert [row.noise_ms for row in rows.verify] == [1, 0, 0]  # of 0 1 2, of 0 0 6, of 0
    (draft,) = rows.draft  # 1 1 2 4 of both drafting totals: 1.5, deviations 0.5 0.5 0.5 2.5
    assert (draft.batch, draft.kv_prefix_tokens) == (2, 8)
    assert (draft.draft_ms, draft.noise_ms) == (1.5, 0.5)
    (prefill,) = rows.prefill
    assert (prefill.prompt_tokens, prefill.prefill_ms, prefill.noise_ms) == (9, 6, 2)
    assert rows.noise["verify_worst_relative_mad"] == pytest.approx(1 / 3, abs=1e-5)
    assert rows.noise["verify_median_relative_mad"] == 0


@pytest.mark.parametrize(
    ("isotonic", "graph_sizes", "rows"),
    [
        (True, (), [(2, 3, False), (4, 6.5, False), (6, 6.5, False)]),  # (3 * 7 + 1 * 5) / 4
        (False, (3, 5), [(3, 3, True), (5, 7, True), (6, 5, False)]),
        (False, (5,), [(5, 7, True), (6, 5, False)]),  # 2 and 4 run one graph: the larger
    ],
)
def test_rows_are_pooled_by_repeats_and_stand_at_their_graphs(isotonic, graph_sizes, rows):
    found = assemble(MADE_UP, isotonic, graph_sizes).verify
    assert [(row.packed_tokens_total, row.verify_ms, row.captured) for row in found] == rows


# ---- how a cell is timed


def test_made_up_trees_branch_and_nest():
    tokens = np.arange(5, 300)
    large, small = (made_up_trees(3, nodes, 6, tokens, 1) for nodes in (60, 20))
    for name in ("token", "parent", "depth"):
        np.testing.assert_array_equal(getattr(large, name)[:, :20], getattr(small, name))
    assert (large.size == 60).all()
    assert (large.parent < np.arange(60)).all()
    assert 1 <= large.depth.min() <= large.depth.max() <= 6
    assert set(large.token.ravel().tolist()) <= set(tokens.tolist())
    for row in range(3):
        children = list(zip(large.parent[row].tolist(), large.token[row].tolist()))
        assert len(set(children)) == 60
        assert 1 < np.count_nonzero(large.parent[row] == -1) < 30  # neither chain nor star
        assert large.depth[row].max() > 3
    assert (large.token[0] != large.token[1]).any()
    table = made_up_trees(1, 50, 1, np.arange(64), 1)  # one depth has room for any number
    assert table.size[0] == 50
    assert (table.parent == -1).all()


def spied(monkeypatch, owner, name, calls, seen) -> None:
    """Note (name, seen(arguments)) before every call."""
    plain = getattr(owner, name)

    def call(*args, **more):
        calls.append((name, seen(*args)))
        return plain(*args, **more)

    monkeypatch.setattr(owner, name, call)


@pytest.mark.parametrize(("packing", "total"), [("ragged", 8), ("dense", 9)])
@pytest.mark.parametrize("kind", ["semi_autoregressive", "block"])
def test_a_step_drafts_and_verifies_in_turn(pair, monkeypatch, packing, total, kind):
    """Calls in the order of a live step, on an unchanged state, over exactly `total` tokens."""
    calls = []
    for name in ("draft", "verify"):
        spied(monkeypatch, Engine, name, calls, lambda engine, *_: engine.length.tolist())
    probe = Probe(pair, pair.drafters[kind], Settings(packing=packing))
    spied(monkeypatch, type(pair.target), "forward", calls, lambda _, tokens, *rest: tokens.numel())
    samples = probe.measure(StepCell(3, 16, total), 1, 2)
    once = [("draft", [16] * 3), ("verify", [16] * 3), ("forward", total)]
    assert calls == once * 3
    assert len(samples.verify_s) == len(samples.draft_s) == 2
    assert min(samples.verify_s + samples.draft_s) > 0


def test_every_draft_takes_in_the_last_round(pair, monkeypatch):
    calls, drafter = [], pair.drafters["block"]
    spied(
        monkeypatch, Engine, "_extend", calls,
        lambda _, states, row, position: (states.shape, row.tolist(), position.tolist()),
    )  # fmt: skip
    Probe(pair, drafter).measure(StepCell(2, 10, 4), 1, 1)
    shape = (6, len(drafter.taps) * pair.target.width)
    assert calls == [("_extend", (shape, [0, 0, 0, 1, 1, 1], [7, 8, 9] * 2))] * 2


def test_plain_steps_draft_nothing_and_prompts_are_admitted_and_released(pair, monkeypatch):
    calls, probe = [], Probe(pair, pair.drafters["block"])
    spied(monkeypatch, Engine, "draft", calls, lambda engine: None)
    spied(monkeypatch, Engine, "admit", calls, lambda engine, prompt: (engine.batch, len(prompt)))
    samples = probe.measure(StepCell(2, 8, 2), 0, 3)
    assert (len(samples.verify_s), samples.draft_s, calls) == (3, (), [])
    assert len(probe.measure(PrefillCell(11), 1, 2).prefill_s) == 2
    assert calls == [("admit", (0, 11))] * 3


def test_one_engine_serves_the_whole_grid(pair, monkeypatch):
    probe, made = Probe(pair, pair.drafters["block"]), []
    spied(monkeypatch, Probe, "_make", made, lambda *_: None)
    cells = probe.cells(Grid((1, 2), (1, 2), (4, 8), (5,)))
    for cell in cells:
        probe.measure(cell, 0, 1)
    assert len(made) == 1


def test_an_engine_too_large_for_all_is_made_for_one(pair, monkeypatch):
    probe, plain = Probe(pair, pair.drafters["block"]), Probe._make
    probe.cells(Grid((1, 2), (1, 2), (4, 8), (5,)))

    def make(self, batch, tokens):
        if batch * tokens > 8:
            raise torch.OutOfMemoryError("no room")
        plain(self, batch, tokens)

    monkeypatch.setattr(Probe, "_make", make)
    assert len(probe.measure(StepCell(2, 4, 4), 0, 1).verify_s) == 1
    with pytest.raises(DoesNotFit, match="batch 2, prefix 8, 4 packed tokens"):
        probe.measure(StepCell(2, 8, 4), 0, 1)
    assert len(probe.measure(StepCell(1, 8, 2), 0, 1).verify_s) == 1

    def fail(*_):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(Engine, "verify", fail)  # other errors are no lack of memory
    with pytest.raises(RuntimeError, match="shapes differ"):
        probe.measure(StepCell(1, 8, 2), 0, 1)


def test_sizes_beyond_the_model_are_refused(pair):
    probe = Probe(pair, pair.drafters["block"])
    slots, last = pair.drafters["block"].slots, pair.target.max_positions
    assert probe.cells(Grid((1,), (1, 2), (last - slots,), (last,)))
    with pytest.raises(InputError, match=f"probe.prefixes holds {last}; accepted .*{last - slots}"):
        probe.cells(Grid((1,), (1, 2), (last,), (last,)))
    with pytest.raises(InputError, match=f"probe.prompt_tokens holds {last + 1}"):
        probe.cells(Grid((1,), (1, 2), (8,), (last + 1,)))


# ---- the task


def test_a_profile_is_written_priced_and_says_where_it_comes_from(loaded, here, capsys):
    assert main([*TINY, "probe.keep_samples=true"]) == 0
    assert "wrote out/tiny.csv" in capsys.readouterr().out
    endings = ("csv", "draft.csv", "partial.jsonl", "prefill.csv", "yaml")
    assert sorted(path.name for path in PROFILE.parent.iterdir()) == [
        f"tiny.{ending}" for ending in endings
    ]
    profile = read_profile(PROFILE)
    cost, entries = StepCost(profile), visits().values()
    plain = cost.step(np.array([1, 1]), np.array([8, 8]), drafted=False, tree=False)
    assert plain.source == Source.MEASURED
    medians = [np.median(times(name)) for name in NAMES[:3]]
    assert plain.verify_s == pytest.approx(isotonic_regression(medians).x[0], abs=2e-9)
    drafted = cost.step(np.array([2, 2]), np.array([8, 8]), drafted=True, tree=True)
    assert drafted.source == Source.MEASURED
    seconds = [one for entry in entries if entry["kind"] == "step" for one in entry["draft_s"]]
    assert len(seconds) == 6  # three repeats of two drafting cells
    assert drafted.draft_s == pytest.approx(np.median(seconds), abs=2e-9)
    prefill = [one for entry in entries for one in entry["prefill_s"]]
    assert cost.prefill_s(5) == pytest.approx(np.median(prefill), abs=2e-9)
    assert (np.diff([row.verify_ms for row in profile.verify]) >= 0).all()
    header = profile.header
    assert (header.kind, header.num_gpus, header.dtype) == ("measured", 1, "float32")
    assert (header.engine, header.graph_sizes, header.license) == ("eager", (), "MIT")
    assert header.model_shape.layers == loaded.target.num_layers
    assert header.model_shape.params_b == pytest.approx(3.5e-3, rel=0.05)
    assert f"{torch.get_num_threads()} thread" in header.hardware
    assert torch.__version__ in header.attention
    assert "ragged" in header.attention
    assert "probe.repeats=3" in header.command
    assert header.command in header.source
    assert loaded.target.sha256 in header.notes
    assert loaded.drafters["semi_autoregressive"].sha256 in header.notes
    assert "1 warm-ups per visit, median of 3 repeats over 2 shuffled passes" in header.timing
    assert set(header.noise) == {
        f"{table}_{kind}_relative_mad"
        for table in ("verify", "draft", "prefill")
        for kind in ("median", "worst")
    }
    text = PROFILE.with_suffix(".yaml").read_text()
    assert str(here) not in text
    assert "out" not in header.command.split("=")
    assert len(platform.node()) < 4 or platform.node() not in text
    job = SimpleNamespace(recording=load_recording({"recording": "small_block_t0"}), cost=cost)
    assert what_if_reason(job) is None


def lines() -> list[dict]:
    return [json.loads(line) for line in PARTIAL.read_text().splitlines()]


def visits() -> dict[tuple, dict]:
    """The line of every kind, cell and pass, each of which stands there once."""
    found = {(one["kind"], *one["cell"], one["pass"]): one for one in lines()[1:]}
    assert len(found) == len(lines()) - 1
    assert set(found) == {(*name, index) for name in NAMES for index in (0, 1)}
    return found


def times(name: tuple) -> list[float]:
    return [one for index in (0, 1) for one in visits()[(*name, index)]["verify_s"]]


def interrupted_after(monkeypatch, count) -> list:
    """Ctrl-C in the measurement after `count` others."""
    plain, seen = Probe.measure, []

    def measure(self, cell, warmup, repeats):
        if len(seen) == count:
            raise KeyboardInterrupt
        seen.append(cell)
        return plain(self, cell, warmup, repeats)

    monkeypatch.setattr(Probe, "measure", measure)
    return seen


def test_an_interrupted_probe_goes_on(loaded, here, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        interrupted_after(patch, 5)
        assert main(TINY) == 130
    told = capsys.readouterr()
    assert "samples are kept in out/tiny.partial.jsonl" in told.out
    assert not PROFILE.exists()
    assert len(lines()) == 6
    with PARTIAL.open("a") as file:
        file.write('{"kind": "step", "cell": [2, 8')  # cut short by a crash
    before, seen = PARTIAL.read_bytes(), interrupted_after(monkeypatch, -1)
    assert main([*TINY, "probe.keep_samples=true"]) == 0
    assert len(seen) == 3
    assert "going on" in capsys.readouterr().out
    assert [len(times(name)) for name in NAMES[:3]] == [3, 3, 3]
    PARTIAL.write_bytes(before)
    assert main(TINY) == 0
    assert not PARTIAL.exists()


OTHER = {
    "probe.repeats=4": "measured with probe.repeats 3, now 4",
    "probe.prefixes=[8,9]": "measured with probe.prefixes [8], now [8, 9]",
    "packing=dense": "measured with packing 'ragged', now 'dense'",
    "drafter=block": "measured with drafter 'specsim-small-semi",
}


def test_samples_of_other_settings_or_kinds_are_left_alone(loaded, here, monkeypatch, capsys):
    interrupted_after(monkeypatch, 1)
    assert main(TINY) == 130
    kinds = "[]\n", "not JSON\n", '{"format": "other", "version": 1}\n'
    known = "accepted: samples of an interrupted probe"
    tries = [(PARTIAL.read_text(), word, message) for word, message in OTHER.items()]
    for text, word, message in [*tries, *((kind, "seed=0", known) for kind in kinds)]:
        PARTIAL.write_text(text)
        capsys.readouterr()
        assert main([*TINY, word]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"error: {PARTIAL}: ")
        assert message in line
        assert PARTIAL.read_text() == text


def test_cells_that_do_not_fit_are_left_out(loaded, here, monkeypatch, capsys):
    plain, tried = Engine.verify, []

    def verify(engine, table, width, *rest):
        tried.append(int(width.sum()) + engine.batch)
        if tried[-1] == 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(engine, table, width, *rest)

    monkeypatch.setattr(Engine, "verify", verify)
    words = [*TINY, "probe.batches=[1,2]"]
    assert main(words) == 0
    # one request: totals 1, 2 and 4, of which 4 goes; two: 2, 4 and 8, of which 4 and 8 go
    profile = read_profile(PROFILE)
    rows = [(row.batch, row.packed_tokens_total) for row in profile.verify]
    assert rows == [(1, 1), (1, 2), (2, 2)]
    assert [row.batch for row in profile.draft] == [1]
    out = capsys.readouterr().out
    for batch in (1, 2):
        reason = f"batch {batch}, prefix 8, 4 packed tokens does not fit into memory"
        assert out.count(reason) == 1
        assert reason in profile.header.notes
    assert tried.count(4) == 2  # once each, not in every pass


def test_the_command_is_told_without_places(tmp_path):
    defaults = {
        **dict.fromkeys(("pair", "target", "threads")),
        **{"drafter": "block", "device": "auto", "dtype": "float32", "packing": "ragged"},
        **{"graphs": False, "temperature": 0.0},
        "probe": {"name": None, "batches": [1, 2], "edges": None, "keep_samples": False},
    }
    assert command_line(defaults, defaults) == "python -m real_runner task=probe"
    config = defaults | {"pair": str(tmp_path), "threads": 2, "packing": "dense"}
    config["probe"] = {"name": "x", "batches": [1, 4], "edges": True, "keep_samples": True}
    assert command_line(config, defaults) == (
        f"python -m real_runner task=probe pair={tmp_path.name} threads=2 packing=dense "
        "probe.batches=[1,4] probe.edges=true"
    )
