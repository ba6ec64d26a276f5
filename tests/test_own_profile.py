"""A user's own latency profile: the README's runs, and one that is too small is named."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest
import yaml

from simulator.cli.main import main
from simulator.cost import StepCost, find_profile
from simulator.engine.inputs import load_cost
from simulator.engine.run import Job, prepare, tables_of
from simulator.engine.settings import Settings
from simulator.policies.loading import make_policy
from simulator.studies.options import read_option
from tests.test_profiles import HEADER
from traces.common.errors import InputError
from traces.recordings.files import read_recording

ROOT = Path(__file__).parents[1]
SHIPPED = ROOT / "traces" / "latency"
README = SHIPPED / "README.md"
MARKER = "<!-- example-profile -->"
POLICIES = sorted(path.stem for path in (ROOT / "conf" / "policy").glob("*.yaml"))


SECTION = README.read_text(encoding="utf-8").split(MARKER, 1)[1].split("\n## ", 1)[0]
# a name in backquotes, a colon at the line's end, a fenced block
FILES = dict(re.findall(r"`(my_gpu[\w.]*)`[^`\n]*:\n\n```\w+\n(.*?)^```$", SECTION, re.S | re.M))


def command() -> list[str]:
    """The words behind `python -m simulator`."""
    (line,) = re.findall(r"^```bash\n(.*?)\n```$", SECTION, re.S | re.M)
    assert line.startswith("python -m simulator ")
    return shlex.split(line)[3:]


@pytest.fixture
def copied(here) -> Path:
    for name, text in FILES.items():
        (here / name).write_text(text)
    return here


def summary_of(*words: str) -> dict:
    assert main([*command(), *words, "hydra.run.dir=out"]) == 0
    return json.loads(Path("out/summary.json").read_text())


@pytest.mark.usefixtures("copied")
def test_the_readmes_command_runs(recorded):
    """A lone request pays the drafter's 1.2 ms and a captured size from 16 to 128."""
    summary = summary_of(f"trace={recorded}", "max_concurrency=1", "num_prompts=6")
    assert (summary["policy"], summary["latency"]["profile"]) == ("cast", "my_gpu")
    assert summary["step_ms"]["draft"] == pytest.approx(1.2)
    assert 9.2 <= summary["step_ms"]["verify"] <= 11.0 + 1e-9
    assert summary["cost_shares"]["time"]["modelled"] == 0
    # One packed token at batch 1 is in the table, 16 of 16 requests as well.
    for batch, ms in ((1, 9.0), (16, 9.6)):
        load = (f"max_concurrency={batch}", f"num_prompts={6 * batch}")
        plain = summary_of("policy=autoregressive", f"trace={recorded}", *load)
        assert plain["step_ms"]["verify"] == pytest.approx(ms)


# Two rows, and the policies that cannot fit on them: CAST's line wants two sizes from 16 to 128,
# BASTION's roofline one from 16 to 512, CaDDTree's curve one up to 1,024, and the measured width
# one from 2 on that a mass of at most 127 nodes reaches.
PROBED = {"cast", "cast_measured", "caddtree", "caddtree_batch", "bastion"}
TOO_FEW = {
    "small": ("1,1,10.0,eager\n1,4,10.5,eager\n", {"cast", "bastion"}),
    "one": ("1,1,10.0,eager\n1,64,12.0,eager\n", {"cast"}),
    "large": ("1,2000,10.0,eager\n1,4000,10.5,eager\n", PROBED),
    "batch": ("4,4,10.0,eager\n4,64,12.0,eager\n", PROBED),
}


def write_rows(folder: Path, name: str) -> str:
    header = {**HEADER, "fixed": {"kv_prefix_tokens": 512}}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(header))
    rows = "batch,packed_tokens_total,verify_ms,regime\n" + TOO_FEW[name][0]
    (folder / f"{name}.csv").write_text(rows)
    (folder / f"{name}.draft.csv").write_text("batch,draft_ms\n1,1.0\n")
    return str(folder / f"{name}.csv")


@pytest.fixture(scope="module")
def tables(recorded):
    return tables_of(read_recording(recorded))


@pytest.mark.parametrize("name", TOO_FEW)
def test_two_rows_do_or_name_file_and_policy(recorded, tables, tmp_path, monkeypatch, name):
    """Whoever cannot fit on them says whose file it is, who asks, and what would do."""
    monkeypatch.setenv("SPECSIM_CACHE", str(tmp_path))
    path, recording, said = write_rows(tmp_path, name), read_recording(recorded), {}
    for policy in POLICIES:
        node = read_option("policy", policy, "policy")
        cost, made = StepCost(find_profile(path)), make_policy(node)
        everyone = recording.sequences_of("report")
        job = Job({"policy": node}, Settings(), recording, everyone, cost, made, tables)
        try:
            prepare(job)
        except InputError as error:
            said[policy] = str(error)
    assert set(said) == TOO_FEW[name][1]
    for policy, text in said.items():
        assert text.startswith(f"policy {policy}: latency profile {path}: ")
        assert "; accepted" in text


def test_an_edited_profile_is_read_again(tmp_path):
    """In one process, as a notebook does: the same path, other numbers."""
    path = tmp_path / "gpu.csv"
    path.with_suffix(".yaml").write_bytes((SHIPPED / "b300.yaml").read_bytes())
    path.with_suffix(".draft.csv").write_bytes((SHIPPED / "b300.draft.csv").read_bytes())
    text = (SHIPPED / "b300.csv").read_text()
    assert "\n1,5.109,cuda_graph\n" in text
    found = []
    for ms in ("5.109", "5.25"):
        path.write_text(text.replace("\n1,5.109,", f"\n1,{ms},"))
        os.utime(path, (0, len(found)))  # clocks of disks may be slow
        cost = load_cost({"profile": str(path)})
        found.append(cost.profile.verify[0].verify_ms)
    assert found == [5.109, 5.25]
    assert load_cost({"profile": str(path)}) is cost


def test_times_in_seconds_are_doubted_before_the_run(tmp_path, recorded, capsys, monkeypatch):
    """13.6 GB of weights at 8,000 GB/s and 4 GPUs take 0.4 ms; 5.109 ms written as 0.005109."""
    monkeypatch.chdir(tmp_path)
    shipped = SHIPPED / "b300"
    header = yaml.safe_load(shipped.with_suffix(".yaml").read_text())
    header["device"] = {"peak_tflops": 2250, "bandwidth_gb_s": 8000}
    header["model_shape"] = dict(header["model_shape"]) | {"active_params_b": 13.6}
    header["dtype"] = "float8"
    path = tmp_path / "gpu.csv"
    path.with_suffix(".yaml").write_text(yaml.safe_dump(header))
    path.with_suffix(".draft.csv").write_bytes(shipped.with_suffix(".draft.csv").read_bytes())
    table = pd.read_csv(shipped.with_suffix(".csv"))
    table["verify_ms"] /= 1000
    table.to_csv(path, index=False)
    words = ["policy=autoregressive", "num_prompts=3", "max_concurrency=1", f"trace={recorded}"]
    assert main([*words, f"latency={path}", "hydra.run.dir=out"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: latency profile ")
    assert line.endswith("are the times in ms?")
