"""The tournament on a tiny recording: choices by brute force, resuming, refusals in one line."""

from __future__ import annotations

import io
import json
import shutil
from collections import defaultdict
from contextlib import redirect_stdout
from math import exp, log
from pathlib import Path
from statistics import fmean

import pytest

from simulator.cli.main import main
from simulator.engine.fingerprint import reached, sources
from simulator.studies.contest.entrants import read_rivals
from tests.known_servers import read_json, rows

RIVALS = "{policy:fixed_chain,grid:{length:[1,3]}},{policy:tuned_chain},{policy:autoregressive}"
LOADS = [1, 4]
POLICIES = ("fixed_chain", "tuned_chain", "autoregressive")


def words(recorded: str, folder: str = "out", **changes) -> list[str]:
    """A command; `changes` are of the tournament."""
    node = {"rivals": f"[{RIVALS}]", "concurrency": "[1,4]", "resamples": 200} | changes
    given = [f"tournament.{key}={value}" for key, value in node.items()]
    place = [f"trace={recorded}", f"hydra.run.dir={folder}"]
    return ["task=tournament", "policy=cast", *place, *given]


def lines(folder: str) -> list[dict]:
    return [json.loads(line) for line in Path(folder, "tournament.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(recorded, tmp_path_factory) -> tuple[Path, str]:
    """The folder of a whole tournament, and what it printed."""
    folder, printed = tmp_path_factory.mktemp("tournament") / "out", io.StringIO()
    with redirect_stdout(printed):
        assert main(words(recorded, str(folder))) == 0
    return folder, printed.getvalue()


@pytest.fixture
def played(here, finished) -> str:
    """Its output, a copy of its folder in `out`."""
    shutil.copytree(finished[0], "out")
    return finished[1]


def tokens_s(folder: str) -> dict[tuple, float]:
    """(split, domain, concurrency, policy, setting) to tokens per second."""
    names = ("split", "domain", "concurrency", "policy", "setting")
    return {tuple(x[n] for n in names): x["result"]["output_throughput"] for x in lines(folder)}


def test_choices_and_ratios_by_brute_force(played):
    """Everything in both files, recomputed from the store."""
    found, tuned = tokens_s("out"), {}
    settings = {"fixed_chain": [f"length={n}" for n in (1, 3)] + ["published"]}  # 7 by its YAML
    for policy in POLICIES:
        for k in LOADS:
            own = settings.get(policy, ["published"])
            tuned[policy, k] = max(own, key=lambda s: found["tuning", "mixture", k, policy, s])
    single = {
        policy: max(
            settings.get(policy, ["published"]),
            key=lambda s: sum(log(found["tuning", "mixture", k, policy, s]) for k in LOADS),
        )
        for policy in POLICIES
    }
    cells = rows("out/tournament.csv")
    assert len(cells) == 3 * len(LOADS) * 2  # code, chat and mixture; chosen on either split
    for row in cells:
        k = int(row["max_concurrency"])
        place = ("report", row["domain"], k)
        if row["best_other_by_split"] == "tuning":
            best = max(POLICIES, key=lambda p: found["tuning", "mixture", k, p, tuned[p, k]])
            expected = found[(*place, best, tuned[best, k])]
        else:
            sides = {(p, s) for p in POLICIES for s in (tuned[p, k], single[p])}
            expected = max(found[(*place, *side)] for side in sides)
        ours = found[(*place, "cast", "published")]
        assert float(row["other_tokens_per_s"]) == pytest.approx(expected, rel=1e-9)
        assert float(row["candidate_tokens_per_s"]) == pytest.approx(ours, rel=1e-9)
        assert float(row["ratio"]) == pytest.approx(ours / expected, rel=1e-9)
        if row["prompts"] == "1":  # there is nothing to resample
            assert row["ratio_low"] == row["ratio_high"] == ""
        else:
            assert float(row["ratio_low"]) <= float(row["ratio"]) <= float(row["ratio_high"])
    check_overall(cells, found, tuned, single)
    check_rivals(cells, found, tuned)


def log_ratios(found, where, policy: str, setting) -> list[float]:
    """Of the candidate over a policy with `setting(policy, load)`, in every cell."""
    return [
        log(found[(*c, "cast", "published")] / found[(*c, policy, setting(policy, c[2]))])
        for c in where
    ]


def check_rivals(cells, found, tuned) -> None:
    """Every rival, tuned per load, over all cells; the strongest first."""
    where = {("report", row["domain"], int(row["max_concurrency"])) for row in cells}
    printed = rows("out/tournament_rivals.csv")
    assert {row["other"] for row in printed} == set(POLICIES)
    means = [float(row["ratio"]) for row in printed]
    assert means == sorted(means)
    for row in printed:
        logs = log_ratios(found, where, row["other"], lambda p, k: tuned[p, k])
        assert int(row["cells"]) == len(logs) == 6
        assert float(row["ratio"]) == pytest.approx(exp(fmean(logs)), rel=1e-9)
        assert float(row["worst"]) == pytest.approx(exp(min(logs)), rel=1e-9)


def check_overall(cells, found, tuned, single) -> None:
    overall = {
        (r["cells"], r["against"], r["best_other_by_split"]): r
        for r in rows("out/tournament_overall.csv")
    }
    assert len(overall) == 2 * 3 * 2
    groups = {"domains": ("code", "chat"), "mixture": ("mixture",)}
    ours = defaultdict(list)
    for row in cells:
        group = "mixture" if row["domain"] == "mixture" else "domains"
        ours[group, row["best_other_by_split"]].append(log(float(row["ratio"])))
    for (group, best_by), logs in ours.items():
        row = overall[group, "best in every cell", best_by]
        assert float(row["ratio"]) == pytest.approx(exp(fmean(logs)), rel=1e-9)
        assert float(row["worst_ratio"]) == pytest.approx(exp(min(logs)), rel=1e-9)
    for group, domains in groups.items():
        where = [("report", domain, k) for domain in domains for k in LOADS]
        for against, setting in (
            ("one setting", lambda p, k: single[p]),
            ("tuned per load", lambda p, k: tuned[p, k]),
        ):
            ratios = {p: fmean(log_ratios(found, where, p, setting)) for p in POLICIES}
            row = overall[group, against, "report"]
            assert float(row["ratio"]) == pytest.approx(exp(min(ratios.values())), rel=1e-9)
            assert row["other"].split()[0] == min(ratios, key=ratios.get)


def test_a_cell_is_what_a_plain_run_gives(played, recorded):
    """The same load on the same texts by `task=run`."""
    row = next(r for r in rows("out/tournament.csv") if r["domain"] == "chat")
    load = [f"max_concurrency={row['max_concurrency']}", "num_prompts=64"]
    place = [f"trace={recorded}", "trace.domains=[chat]", "hydra.run.dir=run"]
    assert main(["policy=cast", *place, *load]) == 0
    summary = read_json("run/summary.json")
    assert float(row["candidate_tokens_per_s"]) == pytest.approx(summary["output_throughput"])
    nodes = float(row["candidate_nodes_per_request"])
    assert nodes == pytest.approx(summary["draft_nodes_per_request"])


def test_another_load_plays_only_what_is_new(played, recorded, capsys):
    """A further load needs its own simulations, and report runs of settings best over all loads."""
    before = len(lines("out"))
    assert main(words(recorded, concurrency="[1,4,8]")) == 0
    new = lines("out")[before:]
    assert {line["concurrency"] for line in new if line["split"] == "tuning"} == {8}
    assert len(new) >= 5 + 3 * 4


def test_policies_that_cannot_play_are_noted(here, recorded, capsys):
    rivals = "[{policy:fixed_chain,grid:{length:[9]}},cast]"
    assert main(words(recorded, rivals=rivals, concurrency="[2]", domains="mixture")) == 0
    printed = capsys.readouterr().out
    assert "note: fixed_chain length=9: policy.length is 9; accepted:" in printed
    assert {row["other"] for row in rows("out/tournament.csv")} == {"fixed_chain"}  # cast is itself


def test_depths_stand_for_every_length():
    (rival,) = read_rivals([{"policy": "fixed_chain", "grid": {"length": "1..D"}}])
    tried = [one.setting for one in rival.entrants(9)]  # 7 is the published one
    assert tried == ["published", *(f"length={n}" for n in (1, 2, 3, 4, 5, 6, 8, 9))]


def test_a_result_depends_on_its_own_policy_alone():
    names = reached("simulator.policies.cast").keys()
    assert "simulator.policies.shared.stop_rules" in names
    assert "simulator.policies.treespark" not in names
    targets = [f"simulator.policies.{name}" for name in ("cast.Cast", "treespark.TreeSpark")]
    entry = "simulator.studies.runs"
    assert len({sources(entry, {"_target_": target}) for target in targets}) == 2


def test_the_server_of_the_command_line_plays(here, recorded):
    """Two replicas of one slot serve four clients twice as fast."""
    rate = {}
    for replicas in (1, 2):
        server = [f"server.replicas={replicas}", "server.max_num_seqs=1"]
        folder = f"out{replicas}"
        assert main([*words(recorded, folder, concurrency="[4]"), *server]) == 0
        rate[replicas] = lines(folder)[-1]["result"]["output_throughput"]
    assert 1.5 < rate[2] / rate[1] < 2.5
