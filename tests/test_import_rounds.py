"""CAST's round logs: what becomes of a round, and what may be done with it."""

from __future__ import annotations

import csv
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

from simulator.cli.main import main as simulate
from tests import importing
from traces.__main__ import main
from traces.recordings.files import read_recording

torch = pytest.importorskip("torch")

K = 8  # the orders' branch
LOGITS = [4.0, 3.0, 2.0, 1.0, 0.0, -1.0, -2.0, -3.0]


def a_round(first: int, realized, accepted: int, **changes) -> dict:
    """Two depths; candidates first.. and first + 10.., by falling logit."""
    idx = torch.tensor([range(first, first + K), range(first + 10, first + 10 + K)])
    values = torch.tensor([LOGITS, LOGITS], dtype=torch.bfloat16)
    found = {"top_idx": idx, "top_val": values, "realized": realized, "accepted": accepted}
    return found | changes


def rounds() -> list[dict]:
    """The chain accepts 2, 1 and 0; the third text ends after one token."""
    return [
        a_round(20, [20, 30], 2),
        a_round(20, torch.tensor([20, 32]), 1),
        a_round(40, [43], 0),
    ]


FILES = {"name": "gsm8k.pt", "out": "log.safetensors"}


def imported(content, *words: str) -> int:
    return importing.imported("cast-rounds", content, *words, **FILES)


def refusal(capsys, content, *words: str) -> str:
    return importing.refusal(capsys, "cast-rounds", content, *words, **FILES)


def test_scores_are_log_softmax_over_the_candidates_kept(here):
    assert imported(rounds()) == 0
    recording = read_recording("log.safetensors")
    denominator = sum(np.exp(value) for value in LOGITS)
    expected = [np.log(np.exp(value) / denominator) for value in LOGITS]
    assert recording["pool_logprob"][1, 1] == pytest.approx(expected, abs=1e-6)
    assert np.exp(recording["pool_logprob"].astype(float)).sum(axis=-1) == pytest.approx(1)


def test_pools_are_sorted_and_ties_stay_in_the_files_order(here):
    log = {"top_idx": torch.tensor([[5, 6, 7, 8]]), "top_val": torch.tensor([[0.0, 2.0, 1.0, 2.0]])}
    assert imported([log | {"realized": [7], "accepted": 0}]) == 0
    assert read_recording("log.safetensors")["pool_token"].tolist() == [[[6, 8, 7, 5]]]


def test_layout_of_a_round(here):
    """Anchor unknown, realised tokens behind it, unknown where the log has none."""
    assert imported(rounds()) == 0
    recording = read_recording("log.safetensors")
    unknown = 57 + 1  # the largest id, 40 + 10 + 7, and one more
    assert recording.meta["unknown_token"] == unknown
    assert recording.vocab_size == unknown + 1
    assert recording.realised(np.arange(3)).tolist() == [[20, 30], [20, 32], [43, unknown]]
    assert recording.anchor_tokens(np.arange(3)).tolist() == [unknown] * 3
    assert recording["seq_accepted"].tolist() == [2, 1, 0]
    assert recording["seq_realised"].tolist() == [2, 2, 1]
    assert recording.num_anchors == recording.num_sequences == 3
    assert recording.meta["per_round"] is True
    assert recording.domains == ("gsm8k",)


def test_realised_tokens_outside_the_candidates_are_absent(here):
    assert imported([a_round(20, [99, 30], 0)]) == 0
    recording = read_recording("log.safetensors")
    assert not (recording["pool_token"] == 99).any()
    assert recording.realised(np.arange(1)).tolist() == [[99, 30]]
    path, pool = recording["path_logq"][0], recording["pool_logprob"][0]
    assert path.tolist() == [pool[0, -1], pool[1, 0]]  # at most the last candidate's score


def test_what_is_printed_and_carried(here, capsys):
    assert imported([*rounds(), a_round(20, [21], 1, prompt="x")], "--pair", "pair of mine") == 0
    out = capsys.readouterr().out
    assert "read gsm8k.pt: 4 rounds, 2 depths of 8 candidates; sha256 " in out
    assert "keys not used: prompt" in out
    assert "every depth in 2 of 4 rounds" in out
    assert "is the chain's of best candidates in 3" in out  # the last one's is 0
    assert "wrote log.safetensors" in out
    recording = read_recording("log.safetensors")
    for text in recording.meta["lacks"]:
        assert f"lacks: {text}\n" in out
    assert "normaliser" in recording.meta["lacks"][0]
    (file,) = recording.meta["source"]["files"]
    assert file["name"] == "gsm8k.pt"
    assert len(file["sha256"]) == 64
    assert recording.meta["pair"] == "pair of mine"
    assert main(["validate", "log.safetensors"]) == 0
    assert "ok (pool, 4 sequences, 4 anchors, 2 depths" in capsys.readouterr().out
    assert main(["inspect", "log.safetensors"]) == 0
    assert "lacks: positions between rounds" in capsys.readouterr().out


def test_two_files_are_two_domains(here):
    torch.save([a_round(20, [20, 30], 2)], "code.pt")
    torch.save([a_round(20, [21, 30], 0), a_round(20, [], 0)], "chat.pt")
    assert main(["import", "cast-rounds", "code.pt", "chat.pt", "--out", "x.safetensors"]) == 0
    recording = read_recording("x.safetensors")
    assert recording.domains == ("code", "chat")
    assert recording["domain"].tolist() == [0, 1, 1]


def test_rtable_is_the_mean_over_rounds(here, capsys):
    """By hand: the chain accepts 2, 1 and 0. Of the best 3 nodes (the best two of depth 1, whose
    masses are .63 and .23, and .63 x .63 = .40 below the first), rounds hit 2, 1 and 0. The
    realised 32 of round 2 is third below the first (.63 x .086 = .054), 43 of round 3 is fourth
    (.032); among 15 nodes both are found."""
    assert imported(rounds(), "--pair", "pair") == 0
    capsys.readouterr()
    words = ["task=rtable", "trace=log.safetensors", "rtable.nodes=[3,15]", "hydra.run.dir=out"]
    assert simulate([*words, "latency=h100_sxm_qwen3_8b_table5"]) == 0
    with Path("out/rtable.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = {(r["domain"], r["order"], r["nodes"]): float(r["R"]) for r in rows}
    assert found["all", "chain", "2"] == pytest.approx(1 + (2 + 1 + 0) / 3)
    assert found["all", "marginal", "3"] == pytest.approx(1 + (2 + 1 + 0) / 3)
    assert found["all", "marginal", "15"] == pytest.approx(1 + (2 + 2 + 1) / 3)
    assert {row["basis"] for row in rows} == {"per-round"}
    out = capsys.readouterr().out
    assert "per-round: mean over 3 logged rounds" in out
    assert "lacks: positions between rounds" in out
    assert "CAST's width rule on the latency profile h100_sxm_qwen3_8b_table5: stop at" in out


def test_cast_width_by_hand(here):
    """rho of one depth-1 pool of 8 and a line of the profile; the rule is tested elsewhere."""
    from simulator.policies.shared.stop_rules import deploy_width, fit_line, stop_width
    from simulator.studies import rtable

    assert imported(rounds()) == 0
    cfg = {
        "trace": {"recording": "log.safetensors"},
        "latency": {"profile": "h100_sxm_qwen3_8b_table5"},
    }
    request = rtable.load(cfg)
    p = np.exp(LOGITS) / np.exp(LOGITS).sum()
    rho = np.sort(np.concatenate([p, np.outer(p, p).ravel()]))[::-1]  # all 72 nodes, every round
    stop = stop_width(rho, *fit_line(*request.cost.width_probe()))
    expected = f"stop at {stop}, deploy {deploy_width(stop)} nodes (per-round masses)"
    assert rtable.cast_width(request).endswith(expected)


@pytest.mark.parametrize("task", ["run", "bounds", "calibrate", "tournament", "recommend"])
def test_rounds_are_not_served(here, capsys, task):
    assert imported(rounds()) == 0
    capsys.readouterr()
    words = [f"task={task}", "trace=log.safetensors", "hydra.run.dir=out"]
    assert simulate(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "positions between them are missing" in line
    assert "accepted with it: task=rtable" in line
    assert not Path("out").exists()


class Burglar:
    """Unpickling it would make a file."""

    def __reduce__(self):
        return (open, ("burgled", "w"))


@pytest.mark.parametrize("save", ["torch", "pickle", "nested"])
def test_code_is_refused_and_not_run(here, capsys, save):
    content = [a_round(20, [20], 0) | {"x": Burglar()}] if save == "nested" else Burglar()
    if save == "pickle":
        Path("gsm8k.pt").write_bytes(pickle.dumps(content))
    else:
        torch.save(content, "gsm8k.pt")
    assert main(["import", "cast-rounds", "gsm8k.pt", "--out", "log.safetensors"]) == 2
    assert "tensors, numbers, texts, lists and dicts alone" in capsys.readouterr().err
    assert {path.name for path in Path().iterdir()} == {"gsm8k.pt"}


def test_without_torch(here, capsys, monkeypatch):
    torch.save(rounds(), "gsm8k.pt")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["import", "cast-rounds", "gsm8k.pt", "--out", "log.safetensors"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "extra `live`" in line


def changed(**changes) -> list[dict]:
    return [a_round(20, [20], 1), a_round(20, [20], 1) | changes]


def test_malformed_rounds_are_named(here, capsys):
    idx, val = a_round(20, [], 0)["top_idx"], a_round(20, [], 0)["top_val"]
    nan = val.float().clone()
    nan[1, 3] = float("nan")
    twice = idx.clone()
    twice[1, 2] = 30
    cases = {
        "the file is an empty list": [],
        "the file is an object of 1": {"a": 1},
        "round 0 is 3": [3],
        "round 1: top_idx is whole numbers, of shape (8,)": changed(top_idx=idx[0]),
        "round 1: top_idx is floating-point numbers, of shape (2, 8)": changed(top_idx=idx.float()),
        "round 1: top_idx is 'tokens'": changed(top_idx="tokens"),
        "round 1: top_idx is of shape (0, 8)": changed(top_idx=idx[:0]),
        "round 1: top_idx[0][0] is -1": changed(top_idx=idx - 21),
        "round 1: top_idx[1] is a row with token 30 twice": changed(top_idx=twice),
        "round 1: top_idx is of shape (1, 8)": changed(top_idx=idx[:1], top_val=val[:1]),
        "round 1: top_idx is a Tensor": changed(top_idx=idx[:, :1].expand(2, 2**25)),
        "round 1: top_val is of shape (2, 7)": changed(top_val=val[:, :7]),
        "round 1: top_val[1][3] is nan": changed(top_val=nan),
        "round 1: realized is 3 tokens": changed(realized=[1, 2, 3]),
        "round 1: realized[1] is -100": changed(realized=[1, -100]),
        "round 1: realized is floating-point numbers, of shape (1,)": changed(realized=[1.5]),
        "round 1: accepted is 2": changed(accepted=2),
        "round 1: accepted is -1": changed(accepted=-1),
        "round 1: accepted is 'two'": changed(accepted="two"),
        "round 1: accepted is True": changed(accepted=True),
    }
    for start, content in cases.items():
        assert refusal(capsys, content).startswith(f"error: gsm8k.pt: {start}"), start
    missing = a_round(20, [20], 1)
    del missing["realized"]
    assert "round 0: realized is missing" in refusal(capsys, [missing])


def test_options_and_second_files_are_checked(here, capsys):
    assert "holds token 57; accepted: below" in refusal(capsys, rounds(), "--vocab-size", "57")
    assert "--vocab-size is 0" in refusal(capsys, rounds(), "--vocab-size", "0")
    assert "--pair is ' '" in refusal(capsys, rounds(), "--pair", " ")
    log = rounds()[0]
    narrow = log | {"top_idx": log["top_idx"][:, :4], "top_val": log["top_val"][:, :4]}
    torch.save([narrow], "b.pt")
    assert main(["import", "cast-rounds", "gsm8k.pt", "b.pt", "--out", "x.safetensors"]) == 2
    assert "b.pt: 2 depths of 4 candidates; accepted: 2 of 8" in capsys.readouterr().err
    assert imported(rounds(), "--vocab-size", "1000") == 0
    assert read_recording("log.safetensors").meta["unknown_token"] == 1000


def test_lists_and_single_tensors_are_read_too(here):
    plain = a_round(20, [20, 30], 2)
    as_lists = {
        "top_idx": plain["top_idx"].tolist(),
        "top_val": plain["top_val"].tolist(),
        "realized": [torch.tensor(20), torch.tensor(30)],
        "accepted": torch.tensor(2),
    }
    assert imported([plain, as_lists]) == 0
    recording = read_recording("log.safetensors")
    assert (recording["pool_logprob"][0] == recording["pool_logprob"][1]).all()
    assert recording["seq_accepted"].tolist() == [2, 2]


def test_rtable_of_small_pools(here, capsys):
    """Two candidates and one depth: two nodes, of which the realised token is the second."""
    log = {"top_idx": torch.tensor([[1, 2]]), "top_val": torch.tensor([[4.0, 3.0]])}
    assert imported([log | {"realized": [2], "accepted": 0}]) == 0
    words = ["task=rtable", "trace=log.safetensors", "rtable.nodes=[1,9]", "hydra.run.dir=out"]
    assert simulate(words) == 0
    assert "branch 2 ways" in capsys.readouterr().out
    lines = Path("out/rtable.csv").read_text().splitlines()
    assert "all,marginal,1,1.0,per-round" in lines
    assert "all,marginal,2,2.0,per-round" in lines  # no more nodes than there are
