"""The command line: what it accepts and what it writes."""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest

from simulator.cli.help import help_text
from simulator.cli.main import main
from simulator.cli.overrides import normalised
from simulator.cli.sweep.job import folder_name, job_name
from simulator.cost import find_profile
from simulator.engine.fingerprint import own_sources
from simulator.engine.settings import SCALARS
from simulator.studies.options import CONF
from simulator.studies.settings import SECTIONS, TASKS
from tests.sweeping import RESULTS
from traces.recordings.catalog import recording_path

SHIPPED = CONF.parent / "traces/latency"
CALIBRATION = recording_path("small_block_t0").with_name("small_block_t0.calibration.json")


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def summary_in(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.parametrize("spelling", ["policy=fixed_chain", "+policy=fixed_chain"])
def test_one_run(here, recorded, spelling):
    words = [spelling, "policy.length=3", f"trace={recorded}", "max_concurrency=2"]
    assert main([*words, "goodput=ttft:500 tpot:50", "hydra.run.dir=out"]) == 0
    assert files(here / "out") == {
        *RESULTS,
        *(".hydra/config.yaml", ".hydra/hydra.yaml", ".hydra/overrides.yaml"),
    }
    summary = summary_in(here / "out")
    assert summary["policy"] == "fixed_chain"
    assert summary["completed"] == summary["num_prompts"] == 64
    assert summary["draft_nodes_per_request"] == 3
    assert summary["what_if"] is True
    assert 0 <= summary["request_goodput"] <= summary["request_throughput"]
    lengths = summary["acceptance_length_by_budget"]
    assert list(lengths) == sorted(lengths)
    assert lengths["1"] <= lengths["3"] <= lengths["7"]  # nested, so more nodes accept no less


def test_a_step_limit_that_nothing_keeps_is_printed(here, recorded, capsys):
    words = ["policy=priced_survival", f"trace={recorded}", "max_concurrency=2", "num_prompts=9"]
    assert main([*words, "policy.max_step_ms=1e-3", "hydra.run.dir=out"]) == 0
    (note,) = summary_in(here / "out")["policy_notes"]
    assert note.startswith("policy.max_step_ms is 0.001: ")
    assert "policy.max_step_ms is 0.001: " in " ".join(capsys.readouterr().out.split())
    assert summary_in(here / "out")["draft_nodes_per_request"] == 0


def test_tables_agree_with_the_summary(here, recorded):
    assert main([f"trace={recorded}", "max_concurrency=2", "hydra.run.dir=out"]) == 0
    summary = summary_in(here / "out")
    steps = parquet.read_table(here / "out/steps.parquet").to_pydict()
    requests = parquet.read_table(here / "out/requests.parquet").to_pydict()
    assert len(requests["request"]) == 64
    assert sum(requests["warmup"]) == 2
    assert sum(requests["draft_nodes"]) == sum(steps["draft_nodes"])
    times = zip(requests["finish_s"], requests["first_token_s"], requests["output_tokens"])
    tpot_ms = [
        1e3 * (end - first) / (tokens - 1)
        for (end, first, tokens), measured in zip(times, requests["measured"])
        if measured
    ]
    assert np.mean(tpot_ms) == pytest.approx(summary["mean_tpot_ms"], rel=1e-12)
    window = summary["window"]
    committed = [
        tokens
        for tokens, start, step_s in zip(steps["committed"], steps["time_s"], steps["step_s"])
        if window["start_s"] <= start and start + step_s <= window["end_s"]
    ]
    assert sum(committed) + window["first_tokens"] == window["tokens"]
    assert set(steps["source"]) <= {"measured", "interpolated", "modelled", "clamped"}


def test_a_seed_gives_the_same_bytes_and_another_does_not(here, recorded):
    words = [f"trace={recorded}", "max_concurrency=3", "request_rate=200", "burstiness=0.5"]
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert main([*words, f"seed={seed}", f"hydra.run.dir={name}"]) == 0
    first, again, other = (Path(name) for name in "abc")
    for file in RESULTS:
        assert (first / file).read_bytes() == (again / file).read_bytes()
        assert (first / file).read_bytes() != (other / file).read_bytes()


def test_sweep_has_a_job_and_a_line_for_each_combination(here, recorded, capsys):
    words = ["-m", "+policy=autoregressive,fixed_chain", f"trace={recorded}", "num_prompts=9"]
    words.append("hydra.sweep.dir=sweep")
    assert main([*words, "max_concurrency=1,4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all("tokens/s" in line for line in lines)
    found = [summary_in(path.parent) for path in Path("sweep").rglob("summary.json")]
    assert sorted((s["policy"], s["max_concurrency"]) for s in found) == [
        ("autoregressive", 1),
        ("autoregressive", 4),
        ("fixed_chain", 1),
        ("fixed_chain", 4),
    ]
    # Once more, with another load: the four are complete already.
    assert main([*words, "max_concurrency=1,4,2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("skipped: ") for line in lines) == 4
    assert len(lines) == 6


def test_another_configuration_in_the_same_folder_is_run_again(here, recorded, capsys):
    own = here / "own.json"
    own.write_bytes(CALIBRATION.read_bytes())
    words = ["policy=treespark", "trace=small_block", "num_prompts=4", "max_concurrency=2"]
    words += [f"policy.calibration={own}", "hydra.run.dir=out"]
    assert main([*words, "seed=0"]) == main([*words, "seed=1"]) == 0
    assert "skipped" not in capsys.readouterr().out
    assert summary_in(here / "out")["seed"] == 1
    assert main([*words, "seed=1"]) == 0
    assert capsys.readouterr().out.startswith("skipped: out")
    changed = json.loads(own.read_text()) | {"platt": {"a": 0.2, "b": -2.0}}
    own.write_text(json.dumps(changed))  # the same words, another file
    assert main([*words, "seed=1"]) == 0
    assert "skipped" not in capsys.readouterr().out


def test_rtable(here, recorded, capsys):
    """It reads no profile, takes any, and says that the setting has no effect."""
    words = ["task=rtable", f"trace={recorded}", "rtable.nodes=[3,7]", "hydra.run.dir=out"]
    assert main([*words, "latency.strict=maybe"]) == 0
    lines = (here / "out/rtable.csv").read_text().splitlines()
    assert lines[0] == "domain,order,nodes,R"
    rows = [line.split(",") for line in lines[1:]]
    assert {(row[0], row[1], row[2]) for row in rows} == {
        (domain, *order)
        for domain in ("code", "chat", "all")
        for order in (("chain", "7"), ("marginal", "3"), ("marginal", "7"))
    }
    printed, err = capsys.readouterr()
    assert all(f"{float(row[3]):.2f}" in printed for row in rows)
    assert "warning: no effect of latency" in err


def test_help_and_cfg_write_nothing(here, capsys):
    assert main(["--help"]) == 0
    listed = re.search("^policy: (.*)$", capsys.readouterr().out, re.MULTILINE)
    shipped = {path.stem for path in (CONF / "policy").glob("*.yaml")}
    assert listed[1].split(", ") == sorted(shipped)
    assert main(["--cfg", "job", "+policy=cast"]) == 0
    assert "_target_: simulator.policies.cast.Cast" in capsys.readouterr().out
    assert files(here) == set()


def test_version_is_ours(here, capsys):
    assert main(["--version"]) == 0
    own = tomllib.loads((CONF.parent / "pyproject.toml").read_text())["project"]["version"]
    assert capsys.readouterr().out.startswith(f"specsim {own} (Hydra 1.")


def test_help_explains_every_key_and_task():
    """All lines of settings have a comment, but sections, tasks' lists and `task` itself."""
    lines = help_text().splitlines()
    settings = lines[lines.index("# Load, in the words of vLLM's serving benchmark.") :]
    bare = [line for line in settings if re.match(r" {0,2}[a-z_]+:", line) and "  # " not in line]
    assert bare == ["task: run", "rtable:", "published:"]
    keys = [match[1] for line in settings if (match := re.match(r"([a-z_]+):", line))]
    assert sorted(keys) == sorted((*SCALARS, *SECTIONS))
    tasks = [match[1] for line in lines if (match := re.match(r"#   ([a-z]+): \S", line))]
    assert sorted(tasks) == sorted(TASKS)


WORDS = {
    "+policy=cast": ["policy=cast"],
    "+experiment=x": ["experiment=x"],
    "+foo=1": ["+foo=1"],
    "seed=1": ["seed=1"],
    "trace=small_semi": ["trace=small_semi"],
    "trace=small_semi_t0": ["trace=small_semi"],  # a recording's name is its option
    "+trace=small_semi_t1,small_block_t0": ["trace=small_semi_t1,small_block"],
    "trace=a/b.safetensors,c.json": ["trace.recording=a/b.safetensors,c.json"],
    "trace=it's mine.safetensors": ["trace.recording='it\\'s mine.safetensors'"],
    "latency=x.csv": ["latency.profile=x.csv", "latency.name=null"],
    "tournament=published": ["tournament.rivals=published"],
    "objective=x": ["++objective=x"],
}


@pytest.mark.parametrize("word", WORDS)
def test_words_for_hydra(word):
    assert normalised([word]) == WORDS[word]


def test_a_file_name_that_needs_quotes(here, recorded):
    odd = here / "it's (mine) a=b.safetensors"
    odd.write_bytes(Path(recorded).read_bytes())
    words = [f"trace={odd}", "policy=autoregressive", "num_prompts=3", "hydra.run.dir=out"]
    assert main(words) == 0
    assert summary_in(here / "out")["trace"]["recording"] == str(odd)


def test_names_of_folders():
    """Without what no disk takes, and never one name for two jobs."""
    assert folder_name("") == job_name([]) == "default"
    assert folder_name("max_concurrency=1,policy=cast") == "max_concurrency=1,policy=cast"
    changed = folder_name("a=1,trace.recording='/x y/z'")
    assert re.fullmatch("a=1,trace.recording=_x_y_z_-[0-9a-f]{12}", changed)
    names = ["latency=x/p.csv", "latency=x_p.csv", "latency=x p.csv", "a" * 300, "a" * 301]
    found = {folder_name(name) for name in names}
    assert len(found) == len(names)
    assert max(map(len, found)) < 255


FIXED = len(list((CONF / "policy").glob("fixed_*.yaml")))


@pytest.mark.parametrize(
    ("swept", "runs"),
    [
        (["policy=choice(fixed_chain)", "policy.length=2"], 1),  # which the default policy has not
        (["policy=fixed_chain", "server=default,vllm", "server.kv_tokens=null"], 2),
        (["policy=glob(fixed_*)"], FIXED),
    ],
)
def test_keys_and_options_of_a_sweep(here, recorded, capsys, swept, runs):
    words = ["-m", f"trace={recorded}", "num_prompts=4", "max_concurrency=1", *swept]
    assert main([*words, "hydra.sweep.dir=out"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == runs
    assert all("policy=fixed_" in line for line in lines)


# ---------------- Results that are found again, and not taken for what they are not.


@pytest.fixture
def run(here, recorded) -> list[str]:
    return ["policy=fixed_chain", "num_prompts=8", f"trace={recorded}", "hydra.run.dir=run"]


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize("damage", ["missing", "empty"])
def test_a_damaged_run_is_run_again(run, capsys, name, damage):
    assert main(run) == 0
    file = Path("run") / name
    before = file.read_bytes()
    file.unlink()
    if damage == "empty":
        file.touch()
    assert main(run) == 0
    assert file.read_bytes() == before
    capsys.readouterr()
    assert main(run) == 0
    assert "skipped" in capsys.readouterr().out


# ---------------- A summary says by hashes what the names in it stood for.


def copied(folder: Path, name: str, change: tuple[str, str] = ("", "")) -> Path:
    """b300's files under another name, the table with `change` made in it."""
    folder.mkdir(exist_ok=True)
    for ending in (".yaml", ".draft.csv"):
        (folder / name).with_suffix(ending).write_bytes((SHIPPED / f"b300{ending}").read_bytes())
    text = (SHIPPED / "b300.csv").read_text()
    assert change[0] in text
    path = folder / f"{name}.csv"
    path.write_text(text.replace(*change))
    return path


def test_a_profile_is_known_by_its_content(tmp_path):
    same = find_profile(copied(tmp_path / "a", "gpu"))
    other = find_profile(copied(tmp_path / "b", "gpu", ("\n1,5.109,", "\n1,5.110,")))
    assert same.content_hash == find_profile("b300").content_hash
    assert other.content_hash != same.content_hash
    assert other.name == same.name


@pytest.fixture
def summary(here, recorded):
    def of(*words: str) -> dict:
        command = [f"trace={recorded}", "num_prompts=3", "hydra.run.dir=out", *words]
        assert main([*command, "max_concurrency=2"]) == 0
        return json.loads(Path("out/summary.json").read_text())

    return of


def test_profile_and_policy(here, summary):
    found = summary("policy=cast", f"latency={copied(here, 'gpu')}")
    assert found["latency"]["profile"] == "gpu"
    assert found["latency"]["content_hash"] == find_profile("b300").content_hash
    node = {"_target_": "simulator.policies.cast.Cast"}
    code = own_sources("simulator.engine.run", node)
    assert found["policy_code"] == {"target": node["_target_"], "sha256": code}


def test_workload_file(summary):
    path = Path("load.csv")
    path.write_text("prompt_tokens,output_tokens\n4,3\n5,2\n4,4\n")
    found = summary("policy=autoregressive", "workload=file", f"workload.path={path}")
    assert found["workload"]["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
