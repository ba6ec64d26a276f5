"""Recommendations on recordings where one policy is best by construction, by the command line."""

from __future__ import annotations

import io
import json
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path
from statistics import fmean

import pytest

from simulator.cli.main import main
from simulator.studies.contest.entrants import read_rivals
from simulator.studies.settings import Recommend
from tests.known_servers import read_json, write_constant, write_steps, write_texts

DEPTHS = 8
CHAINS = "[autoregressive,{policy: fixed_chain, grid: {length: 1..D}},tuned_chain]"


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, str]:
    """A drafter that is right nine times of ten; steps of 10 ms whatever is in them, or rising."""
    folder = tmp_path_factory.mktemp("known")
    return {
        "texts": write_texts(folder, 40, alpha=0.9, sequences=24, depths=DEPTHS),
        "constant": write_constant(folder),
        "rising": write_steps(folder, {b: 10.0 + b for b in (*range(1, 17), 32, 64)}),
    }


def words(files, *more: str, policies=CHAINS, steps="constant", **changes) -> list[str]:
    node = {"policies": policies, "seeds": "[0,1]", "resamples": 200} | changes
    given = [f"recommend.{key}={value}" for key, value in node.items()]
    place = [f"trace={files['texts']}", f"latency={files[steps]}", "hydra.run.dir=out"]
    return ["task=recommend", "max_concurrency=4", *place, *given, *more]


def answer(command: list[str]) -> dict:
    assert main(command) == 0
    return read_json("out/recommend.json")


def shown_command(printed: str) -> list[str]:
    """The words behind `python -m simulator` in the line that is printed."""
    (line,) = [one for one in printed.splitlines() if one.startswith("python -m simulator ")]
    return shlex.split(line)[3:]


@pytest.fixture(scope="module")
def base(files, tmp_path_factory) -> tuple[dict, str, Path]:
    """What a recommendation found, printed and wrote."""
    folder, printed = tmp_path_factory.mktemp("base") / "out", io.StringIO()
    with redirect_stdout(printed):
        assert main([*words(files, tuning_seeds="[3]"), f"hydra.run.dir={folder}"]) == 0
    return read_json(folder / "recommend.json"), printed.getvalue(), folder


def test_the_longest_chain_is_best_where_tokens_are_free(base):
    """Every step takes 10 ms, so the most tokens a step win: all eight drafts, always."""
    found, printed, _ = base
    best = found["recommended"]
    assert best["policy"] == "fixed_chain"
    assert best["setting"] in ("length=8", "default")
    assert best["policy_config"] == {"length": DEPTHS}
    # tuned_chain sees the same free tokens, takes the same length, and so does the same.
    assert best["indistinguishable"] == ["tuned_chain"]
    ranked = [place["policy"] for place in found["loads"][0]["policies"]]
    assert ranked == ["fixed_chain", "tuned_chain", "autoregressive"]
    plain = found["loads"][0]["policies"][2]
    assert plain["value"] == pytest.approx(4 * 40 / 0.39, rel=0.05)  # 39 steps after the first
    # Tokens of a round: (1 - 0.9^9) / (1 - 0.9) = 6.1, but texts of 40 end within rounds.
    assert 4 < best["value"] / plain["value"] < 6.2
    assert plain["ratio_to_best"] == pytest.approx(plain["value"] / best["value"])
    assert plain["ratio_prompts_high"] < 1
    assert plain["ratio_seeds_high"] < 1
    assert best["value"] == pytest.approx(fmean(best["by_seed"]))
    assert best["prompts_low"] < best["value"] < best["prompts_high"]
    assert best["seeds_low"] <= best["value"] <= best["seeds_high"]
    assert "recommended: fixed_chain (length=8)" in printed
    assert "not told from it: tuned_chain" in printed
    assert "edge of its grid" not in printed  # 1..D is all there is


def test_tuning_is_done_on_the_other_split(base):
    lines = [json.loads(line) for line in (base[2] / "recommend.jsonl").read_text().splitlines()]
    tuned = [line for line in lines if line["split"] == "tuning"]
    played = [line for line in lines if line["split"] == "report"]
    assert {line["seed"] for line in tuned} == {3}
    assert len(tuned) == 1 + DEPTHS + 1  # the YAML's own length is one of 1..D
    assert sorted((line["policy"], line["seed"]) for line in played) == [
        (policy, seed) for policy in ("autoregressive", "fixed_chain", "tuned_chain")
        for seed in (0, 1)
    ]  # fmt: skip


def test_domains_add_up(base):
    """Every domain's prompts and speeds; the closed loop's throughput is of all their slots."""
    for place in base[0]["loads"][0]["policies"]:
        domains = {one["domain"]: one for one in place["by_domain"]}
        assert set(domains) == {"code", "chat"}
        assert sum(one["prompts"] for one in domains.values()) == 8  # of the report split
        speeds = [one["tokens_per_s_of_a_request"] for one in domains.values()]
        assert min(speeds) <= place["output_throughput"] / 4 <= max(speeds)


def summaries(command: list[str]) -> list[dict]:
    """Of the runs of a shown command, by seed."""
    assert command[0] == "-m"
    assert main([*command, "hydra.sweep.dir=runs"]) == 0
    found = [json.loads(path.read_text()) for path in Path("runs").rglob("summary.json")]
    return sorted(found, key=lambda summary: summary["seed"])


def test_the_command_runs_the_recommended_policy(here, files, capsys):
    """It composes to the runs of all seeds, and gives their numbers to the last digit."""
    best = answer(words(files, seeds="[1,4]"))["recommended"]
    command = shown_command(capsys.readouterr().out)
    assert best["command"] == "python -m simulator " + shlex.join(command)
    assert {"max_concurrency=4", "seed=1,4"} <= set(command)
    runs = summaries(command)
    assert [run["seed"] for run in runs] == [1, 4]
    for run, value in zip(runs, best["by_seed"], strict=True):
        assert run["policy"] == "fixed_chain"
        assert run["output_throughput"] == pytest.approx(value, rel=1e-12)
        assert run["trace"]["split"] == "report"


def test_the_command_says_the_load_that_is_the_default(here, files, capsys):
    """16 clients and seed 0 are what the program does anyway; the line still says so."""
    found = answer(words(files, "max_concurrency=16", policies="[autoregressive]", seeds="[0]"))
    command = shown_command(capsys.readouterr().out)
    assert {"max_concurrency=16", "seed=0"} <= set(command)
    assert "-m" not in command
    assert main([*command, "hydra.run.dir=run"]) == 0
    value = read_json("run/summary.json")["output_throughput"]
    assert value == pytest.approx(found["recommended"]["value"], rel=1e-12)


def test_memory_that_holds_no_request_is_named(here, files, capsys):
    """Prompts of 5, 40 outputs, the last of which is never held: 44 tokens, 3 blocks of 16."""
    assert main(words(files, "server.kv_tokens=47", policies="[autoregressive]")) == 2
    printed = capsys.readouterr().err
    says = r"error: server\.kv_tokens is 47 in blocks of 16: (\d+) of \1 requests .* at least 48\n"
    assert re.fullmatch(says, printed)
    answer(words(files, "server.kv_tokens=48", policies="[autoregressive]"))


def test_with_objectives_in_a_closed_loop(here, files, capsys):
    """Goodput of a run is vLLM's, also for objectives that only some requests meet."""
    found = answer(words(files, "goodput=e2el:80 tpot:100"))
    assert found["ranked_by"] == "request_goodput"
    best = found["recommended"]
    assert 0 < best["attained"] < 1
    command = shown_command(capsys.readouterr().out)
    for summary, value in zip(summaries(command), best["by_seed"], strict=True):
        assert summary["request_goodput"] == pytest.approx(value, rel=1e-9)
        assert summary["goodput"] == {"e2el": 80, "tpot": 100}
    plain = next(p for p in found["loads"][0]["policies"] if p["policy"] == "autoregressive")
    assert plain["value"] == plain["attained"] == 0  # 39 steps are 390 ms
    assert plain["ratio_to_best"] == 0
    assert "autoregressive" not in best["indistinguishable"]


def test_an_open_loop_counts_the_share_of_what_comes(here, files, capsys):
    """At 2 requests a second everybody keeps up; the slowest misses 200 ms always."""
    load = ["max_concurrency=null", "request_rate=2", "num_prompts=60", "goodput=e2el:200"]
    found = answer(words(files, *load, seeds="[0]"))
    places = {place["policy"]: place for place in found["loads"][0]["policies"]}
    assert places["autoregressive"]["value"] == 0
    for policy in ("fixed_chain", "tuned_chain"):
        assert places[policy]["attained"] >= 0.99
        assert places[policy]["value"] == pytest.approx(2 * places[policy]["attained"])
    assert found["request_rate"] == 2
    command = shown_command(capsys.readouterr().out)
    assert {"max_concurrency=null", "request_rate=2", "goodput=e2el:200"} <= set(command)


def test_the_load_to_run_at(here, files, capsys):
    """Plain steps of 10 + b ms: 16 clients go fastest, 8 are the most within 18.5 ms a token."""
    node = {"policies": "[autoregressive]", "steps": "rising", "concurrency": "[16,4,8]"}
    found = answer(words(files, "goodput=tpot:18.5", **node))
    assert [load["max_concurrency"] for load in found["loads"]] == [4, 8, 16]
    assert [load["policies"][0]["meets"] for load in found["loads"]] == [True, True, False]
    best = found["recommended"]
    assert best["max_concurrency"] == 8
    assert best["value"] == best["per_gpu"] == pytest.approx(8 / (39 * 0.018), rel=0.05)
    assert "max_concurrency=8" in shown_command(capsys.readouterr().out)
    found = answer(words(files, **node))
    assert found["recommended"]["max_concurrency"] == 16
    best = answer(words(files, "goodput=e2el:1", policies="[autoregressive]"))["recommended"]
    assert (best["value"], best["meets"]) == (0, False)


def test_the_edge_of_a_grid_is_named(here, files, capsys):
    policies = "[autoregressive,{policy: fixed_chain, grid: {length: [2,8]}}]"
    found = answer(words(files, policies=policies))
    assert found["recommended"]["policy_config"] == {"length": 8}
    note = "policy.length of fixed_chain is at the edge of its grid (2 to 8): a wider one may"
    assert any(one.startswith(note) for one in found["notes"])
    assert "note: " + note in capsys.readouterr().out


def test_what_the_numbers_rest_on(here, files):
    """Another model's steps at a context that was not measured, and a policy that cannot play."""
    policies = "[autoregressive,{policy: fixed_chain, grid: {length: [9]}}]"
    found = answer(words(files, policies=policies))
    assert found["what_if"]
    assert "what-if: drafts of geometric-0.9 at the step times of toy" in found["notes"]
    assert "100% of the step time of fixed_chain is clamped" in found["notes"]
    assert any(n.startswith("fixed_chain length=9: policy.length is 9;") for n in found["notes"])
    assert found["recommended"]["share_clamped"] == 1
    assert found["recommended"]["share_modelled"] == 0


def test_the_default_candidates():
    """All published rivals, and priced_survival with its grid."""
    rivals = read_rivals(Recommend().policies, "recommend.policies")
    names = [rival.policy for rival in rivals]
    assert {"treespark", "cast", "dspark", "tuned_chain", "autoregressive"} <= set(names)
    assert names[-1] == "priced_survival"
    assert set(rivals[-1].grid) == {"price", "nodes"}


def test_nobody_plays(here, files, capsys):
    """The recording holds 4 ranks a depth, and the policy wants 8."""
    assert main(words(files, policies="[treespark]")) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: recommend.policies: none of them plays here; accepted:")
    assert "(treespark default: " in printed
    assert printed.count("\n") == 1
