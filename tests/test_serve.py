"""Serving live: texts, results beside the simulator's, interruptions, and every refusal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pyarrow import parquet

from analysis.__main__ import main as analyse
from real_runner.app import main
from real_runner.models.loading import enough_memory
from real_runner.models.small.config import EOS
from real_runner.recording.record import corpus_prompts
from real_runner.serving.prompts import DOMAIN
from real_runner.serving.results import OutputLog
from simulator.engine.arrivals import make_workload
from simulator.engine.run import load, prepare, run_job
from simulator.engine.settings import Settings
from tests.test_prompts import LINES
from tests.tiny_pair import continuation
from traces.common.errors import InputError
from traces.recordings.catalog import find_recording

DOMAINS = "record.small.domains=[arithmetic,report]"  # the others read the whole library first
SHORT = ("max_new_tokens=12", "num_prompts=7", "max_concurrency=3", DOMAINS)
pytestmark = pytest.mark.usefixtures("loaded")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("serve")


@pytest.fixture(scope="module")
def runs(folder) -> dict[str, Path]:
    """Two policies over seven corpus prompts, three at a time."""
    found = {name: folder / name for name in ("cast", "treespark")}
    for name, path in found.items():
        assert serve(f"policy={name}", f"output={path}", *SHORT) == 0
    return found


def serve(*words: str) -> int:
    return main(["task=serve", *words])


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / "outputs.jsonl").read_text().splitlines()]


def summary_of(path: Path) -> dict:
    return json.loads((path / "summary.json").read_text())


def test_texts_are_those_of_plain_decoding(pair, runs):
    corpus = corpus_prompts(pair, ("arithmetic", "report"), 30, 20_261)
    plain = {}
    for path in runs.values():
        found = lines_of(path)
        assert sorted(line["request"] for line in found) == list(range(7))
        for line in found:
            index = line["prompt"]
            assert corpus[index].split == 2  # policies are fitted on the others
            if index not in plain:  # greedy decoding without a cache, a full forward pass a token
                outputs = continuation(pair.target, corpus[index].tokens, 12)
                ended = [*outputs, EOS].index(EOS) + 1
                plain[index] = pair.tokenizer.decode(outputs[:ended])
            assert line["text"] == plain[index]


def test_results_have_the_simulators_schema(runs, folder):
    recording, profile = {"recording": "small_semi_t0"}, {"profile": "b300"}
    policy = {"_target_": "simulator.policies.fixed_chain.FixedChain", "length": 3}
    settings = {"max_concurrency": 3, "num_prompts": 7, "server": {"max_num_seqs": 256}}
    job = load({"policy": policy, "trace": recording, "latency": profile, **settings})
    predicted = run_job(prepare(job), folder / "simulated")
    for path in runs.values():
        measured = summary_of(path)
        assert set(predicted) <= set(measured)
        assert set(measured) - set(predicted) == {
            *("live", "hardware", "device", "dtype", "packing", "graphs", "threads", "pair"),
            *("drafter", "phase_ms", "prefill_ms_total", "prefill_modelled_share"),
        }
        for key in ("window", "step_ms", "near_ties", "cost_shares"):
            assert set(measured[key]) == set(predicted[key])
        assert (measured["live"], measured["what_if"], measured["completed"]) == (True, False, 7)
        assert measured["cost_shares"]["time"]["measured"] == 1
        for table, more in (
            ("requests", set()),
            ("steps", {"order_s", "allocate_s", "commit_s", "prefill_s"}),
        ):
            ours, theirs = (
                set(parquet.read_schema(where / f"{table}.parquet").names)
                for where in (path, folder / "simulated")
            )
            assert ours == theirs | more


def test_tables_and_lines_agree(runs):
    for path in runs.values():
        table = parquet.read_table(path / "requests.parquet").to_pydict()
        steps = parquet.read_table(path / "steps.parquet").to_pydict()
        for line in lines_of(path):
            row = line["request"]
            assert line["tokens"] == table["output_tokens"][row]
            assert [line[k] for k in ("prompt", "domain", "rounds", "accepted", "draft_nodes")] == [
                table[k][row] for k in ("sequence", "domain", "rounds", "accepted", "draft_nodes")
            ]
        assert sum(table["output_tokens"]) == sum(steps["committed"]) + 7  # prefill's own
        seconds = {name[:-2]: np.array(steps[name]) for name in steps if name.endswith("_s")}
        parts = seconds["draft"] + seconds["verify"] + seconds["host"]
        np.testing.assert_allclose(parts, seconds["step"])
        named = seconds["order"] + seconds["allocate"] + seconds["commit"]
        assert np.all((named > 0) & (named <= seconds["host"] + 1e-9))


def test_analysis_puts_live_runs_in_one_table(runs, capsys):
    assert analyse([*map(str, runs.values()), "--no-figures", "--format", "csv"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    assert len(rows) == 2
    assert {name for row in rows for name in runs if f",{name}," in row} == set(runs)


@pytest.mark.parametrize("rate", [float("inf"), 30.0])
def test_the_simulator_sends_the_same_requests(rate):
    recording = find_recording("small_semi_t0")
    sequences = recording.sequences_of("report")
    load = {"max_concurrency": 4, "burstiness": 0.5, "num_prompts": 150, "seed": 9}
    settings = Settings(request_rate=rate, **load)
    ours, theirs = (make_workload(settings, one, sequences) for one in (None, recording))
    assert ours.clients == theirs.clients
    for name in ("sequence", "gap_s"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    assert not ours.warmup.any()
    assert not ours.first_output.any()


def test_a_file_in_an_open_loop_writes_the_same_draws_whatever_the_policy(folder):
    prompts_file, texts = folder / "prompts.jsonl", []
    prompts_file.write_text("\n\n".join(map(json.dumps, LINES)) + "\n")
    for policy, rate in (("autoregressive", "inf"), ("cast", "200")):
        path = folder / f"drawn_{policy}"
        words = ("temperature=1", "trace=small_semi_t1", "max_new_tokens=9", "burstiness=2")
        words += (f"prompts={prompts_file}", f"output={path}", f"request_rate={rate}")
        assert serve(f"policy={policy}", *words) == 0
        found = lines_of(path)
        texts.append({line["prompt"]: (line["text"], line["domain"]) for line in found})
        assert sorted(line["prompt"] for line in found) == [0, 1, 2, 3]  # each line once
        assert all(line["tokens"] <= (5 if line["prompt"] == 1 else 9) for line in found)
    assert texts[0] == texts[1]
    assert [texts[0][i][1] for i in range(4)] == ["freight", DOMAIN, "code", DOMAIN]
    arrived = parquet.read_table(path / "requests.parquet")["arrival_s"].to_numpy()
    gaps = np.random.default_rng(np.random.SeedSequence(0).spawn(3)[1]).gamma(2, 1 / 400, 4)
    np.testing.assert_allclose(arrived, np.cumsum(gaps))
    summary = summary_of(path)
    assert (summary["request_rate"], summary["trace"]["prompts"]) == (200, str(prompts_file))


@pytest.mark.parametrize("ends", [False, True])
def test_requests_of_one_token_have_no_round(pair, folder, monkeypatch, ends):
    """Limited to it, or ended by it."""
    if ends:
        monkeypatch.setattr(pair.target, "eos_tokens", tuple(range(pair.target.vocab_size)))
    path, tokens = folder / f"one{ends}", 12 if ends else 1
    words = (f"max_new_tokens={tokens}", "num_prompts=5", "max_concurrency=4", DOMAINS)
    assert serve(f"output={path}", *words) == 0
    reason = "stop" if ends else "length"
    found = [
        [line[key] for key in ("tokens", "rounds", "finish_reason")] for line in lines_of(path)
    ]
    assert found == [[1, 0, reason]] * 5
    summary = summary_of(path)
    assert (summary["completed"], summary["mean_tpot_ms"]) == (5, None)
    assert (summary["window"]["kind"], summary["total_output_tokens"]) == ("whole run", 5)


def stop_after(monkeypatch, requests: int, error: BaseException) -> None:
    """Raise `error` in the first step after so many requests have ended."""
    whole = OutputLog.on_step

    def on_step(self, outcome):
        whole(self, outcome)
        if self.written >= requests:
            raise error

    monkeypatch.setattr(OutputLog, "on_step", on_step)


FULL = torch.OutOfMemoryError("CUDA out of memory. Tried 3 GiB.\nmore")
LINE = "error: out of memory (CUDA out of memory. Tried 3 GiB.); "


@pytest.mark.parametrize(
    ("error", "status", "start", "end"),
    [(KeyboardInterrupt(), 130, "interrupted", ""), (FULL, 2, LINE, "accepted: ")],
)
def test_a_run_cut_short_keeps_its_texts_alone(
    runs, folder, monkeypatch, capsys, error, status, start, end
):
    path = folder / f"again{status}"
    shutil.copytree(runs["cast"], path)  # a complete run was there before
    stop_after(monkeypatch, 2, error)
    assert serve(f"output={path}", *SHORT, "seed=5") == status
    assert [file.name for file in path.iterdir()] == ["outputs.jsonl"]
    kept = lines_of(path)
    assert 2 <= len(kept) < 7
    assert len({line["request"] for line in kept}) == len(kept)
    said = capsys.readouterr().err
    assert said.startswith(start)
    assert said.count("\n") == 1
    if end:
        assert f"{len(kept)} of 7 requests ended, kept in {path / 'outputs.jsonl'}; {end}" in said


def test_a_run_that_ends_nothing_leaves_the_earlier_one(runs, monkeypatch):
    path = runs["cast"]
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    stop_after(monkeypatch, 0, MemoryError())
    assert serve(f"output={path}", *SHORT) == 2
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_which_errors_are_lack_of_memory():
    cpu = "[enforce fail at alloc_cpu.cpp:119] . DefaultCPUAllocator: can't allocate memory"
    line = "out of memory .*DefaultCPUAllocator.*; try less"
    with pytest.raises(InputError, match=line), enough_memory(lambda: "try less"):
        raise RuntimeError(cpu)
    with pytest.raises(RuntimeError, match="shapes differ"), enough_memory(lambda: ""):
        raise RuntimeError("shapes differ")
