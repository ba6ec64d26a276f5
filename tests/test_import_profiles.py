"""Latency probes and cost models of others as latency profiles."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

import numpy as np
import pytest
import yaml

from simulator.cli.main import main as simulate
from simulator.cost import build_step_cost
from tests import importing
from traces.__main__ import main
from traces.profiles.profile import read_profile

FACTS = ["--hardware", "H100", "--model", "some-8b", "--num-gpus", "1", "--dtype", "bfloat16"]
SINGLE = {
    "verify_ms": {"1024": {"16": 30.5, "1": 28.0}, "512": {"1": 27.0}},
    "draft_ms": 3.75,
    "gpu": "H100",
}
SAID = [*FACTS, "--source", "a probe"]
BATCHED = {"8": {"0": 31.0, "15": 40.25}, "2": {"15": 33.0}}


def imported(format_name: str, content, *words: str) -> int:
    return importing.imported(format_name, content, *SAID, *words, out="gpu.csv")


def refusal(capsys, format_name: str, content, *words: str) -> str:
    return importing.refusal(capsys, format_name, content, *SAID, *words, out="gpu.csv")


def sizes(path: str = "gpu.csv") -> list[tuple]:
    """Batch, KV prefix, packed tokens and milliseconds of a profile's verify rows."""
    rows = read_profile(path).verify
    return [(r.batch, r.kv_prefix_tokens, r.packed_tokens_total, r.verify_ms) for r in rows]


def drafts(path: str = "gpu.csv") -> list[tuple]:
    return [(r.batch, r.kv_prefix_tokens, r.draft_ms) for r in read_profile(path).draft]


def test_single_probe(here):
    assert imported("cast-probe", SINGLE) == 0
    assert sizes() == SINGLE_ROWS
    assert not any(row.captured for row in read_profile("gpu.csv").verify)
    assert drafts() == [(1, 512, 3.75)]  # one number, held at the smallest prefix
    header = read_profile("gpu.csv").header
    assert (header.hardware, header.model, header.num_gpus) == ("H100", "some-8b", 1)
    assert (header.dtype, header.kind, header.engine) == ("bfloat16", "measured", "eager")
    assert header.fixed == {"batch": 1}
    assert set(header.model_shape.model_dump().values()) == {None}
    assert header.compute_ms_per_token is None


SINGLE_ROWS = [(1, 512, 1, 27.0), (1, 1024, 1, 28.0), (1, 1024, 16, 30.5)]


@pytest.mark.parametrize(
    ("format_name", "content", "words", "verify", "draft"),
    [
        (
            "cast-probe", SINGLE | {"draft_ms": {"512": 3.5, "1024": 4.0}}, "",
            SINGLE_ROWS, [(1, 512, 3.5), (1, 1024, 4.0)],
        ),
        (  # draft nodes: one packed token more for each request, the root
            "cast-probe", BATCHED, "--context 1024 --draft-ms 2:2.5,8:4",
            [(2, 1024, 2 * 16, 33.0), (8, 1024, 8, 31.0), (8, 1024, 8 * 16, 40.25)],
            [(2, 1024, 2.5), (8, 1024, 4.0)],
        ),
        (
            "cast-probe", {"verify_ms": {"4": {"7": 20.0}}, "draft_ms": {"4": 2.0}},
            "--layout batched --context 64", [(4, 64, 32, 20.0)], [(4, 64, 2.0)],
        ),
        (  # keys are packed tokens
            "treespark-cost", {"1": {"1": 5.0, "7": 6.0}, "16": {"7": 9.0}},
            "--context 512 --draft-ms 1.5",
            [(1, 512, 1, 5.0), (1, 512, 7, 6.0), (16, 512, 16 * 7, 9.0)],
            [(1, 512, 1.5), (16, 512, 1.5)],
        ),
    ],
)  # fmt: skip
def test_sizes_of_each_layout(here, format_name, content, words, verify, draft):
    assert imported(format_name, content, *words.split()) == 0
    assert (sizes(), drafts()) == (verify, draft)


def test_single_and_batched_make_one_profile(here):
    Path("single.json").write_text(json.dumps(SINGLE))
    Path("batched.json").write_text(json.dumps(BATCHED))
    files = ["single.json", "batched.json"]
    words = ["--out", "new/gpu.csv", *FACTS, "--source", "x", "--context", "1024"]
    assert main(["import", "cast-probe", *files, *words]) == 0
    assert {batch for batch, *_ in sizes("new/gpu.csv")} == {1, 2, 8}
    assert "draft times at every batch" in read_profile("new/gpu.csv").header.notes
    assert [batch for batch, *_ in drafts("new/gpu.csv")] == [1]


def test_what_is_lacking_is_printed_and_carried(here, capsys):
    """In the notes, and in the source, which summaries cite."""
    assert imported("cast-probe", SINGLE) == 0
    out, header = capsys.readouterr().out, read_profile("gpu.csv").header
    digest = hashlib.sha256(Path("in.json").read_bytes()).hexdigest()
    assert f"in.json (sha256 {digest})" in " ".join(header.notes.split())
    for text in ("batches other than 1", "draft times at every KV prefix", "prefill times"):
        assert f"lacks: {text}\n" in out
        assert text in header.notes
        assert text in header.source
    words = ["policy=fixed_chain", "latency=gpu.csv", "max_concurrency=1", "num_prompts=4"]
    assert simulate([*words, "trace=small_block", "hydra.run.dir=out"]) == 0
    summary = json.loads(Path("out/summary.json").read_text())
    assert (summary["latency"]["profile"], summary["latency"]["source"]) == ("gpu", header.source)


def test_captured_sizes(here):
    """Steps of up to 32 packed tokens were graphs: 2 x 16 and 8 x 1, not 8 x 16."""
    words = ["--context", "1024", "--draft-ms", "2", "--captured-up-to", "32"]
    assert imported("cast-probe", BATCHED, *words) == 0
    profile = read_profile("gpu.csv")
    assert profile.header.graph_sizes == (8, 32)
    assert profile.header.engine == "cuda_graph + eager tail"
    assert [row.captured for row in profile.verify] == [True, True, False]
    cost = build_step_cost({"profile": "gpu.csv"})
    two = cost.step(np.array([10, 10]), np.array([1024, 1024]), drafted=False, tree=False)
    assert cost.executed(20) == 32
    assert two.verify_s == pytest.approx(0.033)  # padded to the graph of 32


def test_an_earlier_prefill_table_goes(here):
    Path("gpu.prefill.csv").write_text("prompt_tokens,prefill_ms\n1,1.0\n")
    assert imported("cast-probe", SINGLE) == 0
    assert read_profile("gpu.csv").prefill == ()
    assert {path.name for path in Path().iterdir()} == {
        *("in.json", "gpu.csv", "gpu.draft.csv", "gpu.yaml"),
    }


def test_texts_survive_yaml(here):
    words = ["--timing", "mean: 30 # not a comment", "--license", "yes", "--attention", "1e3"]
    assert imported("cast-probe", SINGLE, *words) == 0
    header = yaml.safe_load(Path("gpu.yaml").read_text())
    assert header["timing"] == "mean: 30 # not a comment"
    assert (header["license"], header["attention"]) == ("yes", "1e3")
    read_profile("gpu.csv")


AT = "--context 64 --draft-ms"
SECOND = {"verify_ms": {"512": {"1": 9.0}}, "draft_ms": 1}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"verify_ms": {"1024": {"16": -3}}, "draft_ms": 1}, "verify_ms.1024.16 is -3;"),
        ({"verify_ms": {"1024": {"16": "x"}}, "draft_ms": 1}, "verify_ms.1024.16 is 'x';"),
        ({"verify_ms": {"1024": {"16": True}}, "draft_ms": 1}, "verify_ms.1024.16 is True;"),
        ({"verify_ms": {"1024": {"016": 3}}, "draft_ms": 1}, "key verify_ms.1024.016;"),
        ({"verify_ms": {"1024": {"0": 3}}, "draft_ms": 1}, "key verify_ms.1024.0;"),
        ({"verify_ms": {"1024": {}}, "draft_ms": 1}, "verify_ms.1024 is an empty object;"),
        ({"verify_ms": {"1024": 3}, "draft_ms": 1}, "verify_ms.1024 is 3;"),
        ({"verify_ms": [], "draft_ms": 1}, "verify_ms is an empty list;"),
        ({"verify_ms": {"1024": {"1": 3}}, "draft_ms": None}, "draft_ms is None;"),
        ({"verify_ms": {"1024": {"1": 3}}, "draft_ms": {"x": 1}}, "key draft_ms.x;"),
        ({"verify_ms": {"1024": {"1": 3}}}, "no draft times (draft_ms);"),
        ({"8": {"15": 3}}, "does not say its KV prefix;"),
        ([1], "the file is a list of 1;"),
        ('{"verify_ms": ', "line 1 column 15: malformed JSON"),
        ('{"verify_ms": {"1": {"1": NaN}}}', "NaN is no number of JSON"),
        ('{"verify_ms": {}, "verify_ms": {}}', "an object has the key 'verify_ms' twice"),
        ("[" * 100_000, "nested too deep"),
    ],
)
def test_malformed_probes_are_named(here, capsys, content, said):
    line = refusal(capsys, "cast-probe", content)
    assert line.startswith("error: in.json: ")
    assert said in line


@pytest.mark.parametrize(
    ("format_name", "content", "words", "said"),
    [
        ("cast-probe", {"8": {"1": 3}, "meta": {}}, f"{AT} 1", "key meta;"),
        ("cast-probe", '{"8": {"1": 1e999}}', f"{AT} 1", "8.1 is inf;"),
        ("cast-probe", BATCHED | {"gpu": "x"}, f"{AT} 1", "accepted: "),  # every key is a size
        ("treespark-cost", {"1": {"0": 3}}, f"{AT} 1", "key 1.0;"),
        ("treespark-cost", {"0": {"1": 3}}, f"{AT} 1", "key 0;"),
        ("treespark-cost", {"1": {"1": [3]}}, f"{AT} 1", "1.1 is a list of 1;"),
        ("treespark-cost", {"1": {"2": 3.0}, "gpu": "x"}, f"{AT} 1", "accepted: "),
        ("treespark-cost", {"1": {"2": 3.0, "gpu": "x"}}, f"{AT} 1", "accepted: "),
        *(
            ("treespark-cost", {"1": {"1": 3}}, f"{AT}={text}", f"--draft-ms is {text!r}")
            for text in ("0", "x", "1:2,1:3", "1:", "nan", "-1", "inf", "1:2,", "0:1", "")
        ),
        ("cast-probe", SINGLE, "--draft-ms 1:2", "two draft times for batch, KV prefix"),
        ("cast-probe", SINGLE, "--num-gpus 0", "--num-gpus is 0"),
        ("cast-probe", SINGLE, "--model=", "--model is ''"),
        ("cast-probe", SINGLE, "--captured-up-to 0", "--captured-up-to is 0"),
    ],
)
def test_options_and_what_they_ask_of_a_file_are_checked(
    here, capsys, format_name, content, words, said
):
    assert said in refusal(capsys, format_name, content, *words.split())


def test_paths_are_checked(here, capsys):
    Path("in.csv").write_text("x")
    Path("a.json").write_text(json.dumps(SINGLE))
    Path("b.json").write_text(json.dumps(SECOND))
    base = ["import", "cast-probe", *FACTS, "--source", "x"]
    for words, said in (
        (["no.json", "--out", "gpu.csv"], "no.json: no such file"),
        ([".", "--out", "gpu.csv"], ".: not a regular file"),
        (["in.csv", "--out", "in.csv"], "none of the files read"),
        (["in.csv", "--out", "in.json"], "accepted: a path that ends in .csv"),
        (["in.csv", "--out", "a.draft.csv"], "a.draft.csv"),
        (["in.csv", "in.csv", "--out", "a.csv"], "in.csv: given twice"),
        (["a.json", "b.json", "--out", "a.csv"], "two verify times"),
    ):
        assert main([*base, *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line
    assert {path.name for path in Path().iterdir()} == {"in.csv", "a.json", "b.json"}


def test_facts_are_required(here, capsys):
    Path("in.json").write_text(json.dumps(SINGLE))
    with pytest.raises(SystemExit) as ended:
        main(["import", "cast-probe", "in.json", "--out", "gpu.csv"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--hardware" in line


def test_times_are_written_as_they_were_read(here):
    value = 0.1 + 0.2
    content = {"verify_ms": {"64": {"1": value}}, "draft_ms": math.pi}
    assert imported("cast-probe", content) == 0
    profile = read_profile("gpu.csv")
    assert profile.verify[0].verify_ms == value
    assert profile.draft[0].draft_ms == math.pi


@pytest.mark.parametrize("ending", [".yaml", ".draft.csv", ".prefill.csv"])
def test_folders_in_the_place_of_a_file_are_named(here, capsys, ending):
    Path(f"gpu{ending}").mkdir()
    line = refusal(capsys, "cast-probe", SINGLE)
    assert line.startswith(f"error: --out is gpu.csv, and gpu{ending} a folder; accepted")
