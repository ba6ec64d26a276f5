"""The path of `make gpu`, from the driver to files, on a CPU in tiny shapes."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from real_runner.models.hub.drafter import CheckpointDrafter
from real_runner.probing import shapes
from real_runner.probing.profile import file_name, short_name
from real_runner.probing.shapes import SHAPES, random_pair
from real_runner.tasks import gpu, validate
from simulator.cost import StepCost, read_profile

ROOT = Path(__file__).parents[1]
CPU = torch.device("cpu")
TINY = [
    *("device=cpu", "probe.batches=[1,2]", "probe.packed_per_request=[1,3]"),
    *("probe.prefixes=[12]", "probe.prompt_tokens=[6]", "probe.warmup=1", "probe.repeats=2"),
]
FEW = [
    *("dtype=float32", "validate.policies=[autoregressive,fixed_chain]", "max_new_tokens=24"),
    *("validate.concurrency=[1]", "validate.domains=[arithmetic]", "validate.repeats=1"),
    *("validate.prompts_per_domain=4", "validate.batches=[1]", "validate.prefixes=[40]"),
    *("validate.packed_per_request=[1,8]", "validate.prompt_tokens=[16]"),
    "validate.probe_repeats=1",
]
SURFACES = Path("traces/latency")


def test_a_surface_in_several_calls(here, capsys):
    """A call that is out of time stops with status 0, and the next one goes on."""
    words = ["surface", "shape=tiny", "mode=eager", *TINY]
    assert gpu.main([*words, "probe.time_s=1e-6"]) == 0  # one visit, whatever the time
    out = capsys.readouterr().out
    assert "time is up: 1 of 10 visits done" in out  # 2 batches x 2 totals and a prompt, twice
    partial = here / SURFACES / "cpu_tiny_eager.partial.jsonl"
    assert len(partial.read_text().splitlines()) == 2
    assert not (here / SURFACES / "cpu_tiny_eager.csv").exists()
    assert gpu.main([*words, "probe.finish=true"]) == 2  # of a step of plain decoding alone
    assert "holds no step that drafts" in capsys.readouterr().err
    while '"draft_s": [0' not in partial.read_text():
        assert gpu.main([*words, "probe.time_s=1e-6"]) == 0
    assert gpu.main([*words, "probe.finish=true"]) == 0
    assert partial.exists()  # a profile of what was there is no end
    assert "Finished before" in (here / SURFACES / "cpu_tiny_eager.yaml").read_text()
    assert gpu.main(words) == 0
    assert not partial.exists()
    profile = read_profile(here / SURFACES / "cpu_tiny_eager.csv")
    assert [(r.batch, r.packed_tokens_total) for r in profile.verify] == [
        (1, 1), (1, 3), (2, 2), (2, 6),
    ]  # fmt: skip
    header = profile.header
    assert (header.model, header.dtype) == ("tiny shapes, random weights", "bfloat16")
    assert (header.engine, header.drafter.tokens_per_request) == ("eager", 8)
    assert "probe.shape=tiny" in header.command
    assert "time_s" not in header.command
    assert StepCost(profile).prefill_s(6) > 0
    capsys.readouterr()
    assert gpu.main(words) == 0  # nothing is measured twice
    assert "done, in traces/latency/cpu_tiny_eager.csv" in capsys.readouterr().out


def test_all_steps_in_one_go(here, monkeypatch, capsys):
    """Surfaces call after call and a validation; then there is nothing to do."""
    for name, count in (("WARMUP", 2), ("FITTED", 4), ("FEWEST", 8)):
        monkeypatch.setattr(validate, name, count)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # of the process that draws the figure
    words = ["shape=tiny", "mode=graphs", *TINY, *FEW, "probe.time_s=2"]
    assert gpu.main(["list", *words]) == 0
    assert [line.split()[:3] for line in capsys.readouterr().out.splitlines()] == [
        ["to", "do", "surface"],
        ["to", "do", "validate"],
    ]
    assert gpu.main(["all", *words]) == 0
    profile = read_profile(here / SURFACES / "cpu_tiny_graphs.csv")
    # 3 tokens run the graph of 4, 6 that of 8; totals of graphs on the way are measured too
    assert [(r.batch, r.packed_tokens_total, r.captured) for r in profile.verify] == [
        (1, 1, True), (1, 2, True), (1, 4, True), (2, 2, True), (2, 4, True), (2, 8, True),
    ]  # fmt: skip
    assert profile.header.graph_sizes == (1, 2, 4, 8)
    assert "uncaptured: no CUDA here" in profile.header.timing
    report = json.loads((here / "results/gpu/small_graphs/validation.json").read_text())
    assert (report["device"], report["repeats"], len(report["cells"])) == ("cpu", 1, 2)
    capsys.readouterr()
    assert gpu.main(["next", *words]) == 0
    assert capsys.readouterr().out == "all steps are done\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "step ''; accepted: list, next, all, surface, validate"),
        (["surfaces"], "step 'surfaces'; accepted"),
        (["surface", "shape=qwen9"], "shape is 'qwen9'; accepted: qwen3_4b, qwen3_8b, tiny"),
        (["surface", "mode=fast"], "mode is 'fast'; accepted: eager, graphs"),
        (["surface", "tiny"], "tiny: accepted: KEY=VALUE"),
        (["surface", "colour=red", "device=cpu"], "colour is 'red'; accepted: shape, mode"),
        (["surface", "device=tpu"], "device is 'tpu'; accepted: auto, cpu, cuda"),
    ],
)
def test_words_that_mean_nothing_are_refused(here, capsys, words, message):
    assert gpu.main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert list(here.iterdir()) == []


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["gpu-surface", "SHAPE=tiny", "MODE=eager", "WORDS=device=cpu"],
         "surface shape=tiny mode=eager device=cpu"),
        (["gpu-validate", "MODE=graphs"], "validate mode=graphs"),
        (["gpu-next"], "next"),
        (["gpu"], "all"),
    ],
)  # fmt: skip
def test_make_calls_the_driver(words, command):
    done = subprocess.run(
        ["make", "--no-print-directory", "-n", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    last = done.stdout.splitlines()[-1]
    assert " ".join(last.split()).endswith(f"python -m real_runner.tasks.gpu {command}")
    assert ("-m pytest -m gpu" in done.stdout) == (words == ["gpu"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without CUDA")
def test_without_a_gpu_it_says_so(here, capsys):
    assert gpu.main(["next"]) == 2
    assert "PyTorch sees no CUDA device" in capsys.readouterr().err


def test_the_steps_are_the_issue_of_shapes_and_modes():
    more = {"device": "cpu"}
    surfaces = [f"surface shape=qwen3_{size}" for size in ("4b", "8b")]
    assert [step.name for step in gpu.steps_of("list", more)] == [
        f"{kind} mode={mode}" for kind in (*surfaces, "validate") for mode in ("eager", "graphs")
    ]
    (step,) = gpu.steps_of("surface", more | {"shape": "qwen3_8b", "mode": "graphs"})
    assert step.words["probe.batches"] == "[1,2,4,8,16,32,64,128,256]"
    assert step.words["graphs"] == "true"
    assert float(step.words["probe.time_s"]) < 540  # nine minutes, with room for the last cell


def test_files_are_called_after_the_gpu():
    assert file_name("NVIDIA H200") == "h200"
    assert file_name("NVIDIA A100-SXM4-80GB") == "a100_sxm4_80gb"
    assert file_name("NVIDIA GeForce RTX 4090") == "rtx_4090"
    assert short_name(CPU) == "cpu"


# ---- the shapes


@pytest.mark.parametrize(
    ("name", "billions", "drafter"),
    # Qwen's model cards: 4.0 and 8.2 billion parameters. The drafter by hand: five layers of
    # q, k, v, o, feed-forward, norms and per-head norms, then 5 d x d, and two norms.
    [("qwen3_4b", 4.0, 0.54), ("qwen3_8b", 8.2, 1.05)],
)
def test_real_shapes_have_the_published_size(name, billions, drafter):
    """On the meta device: no weights are made."""
    shape = SHAPES[name]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "_filled", lambda model, noise: model)
        model = shapes._target(shape, torch.device("meta"), torch.bfloat16, None)
    count = sum(weight.numel() for weight in model.parameters())
    assert count * 1e-9 == pytest.approx(billions, abs=0.05)
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}
    assert (model.lm_head.weight is model.model.embed_tokens.weight) == shape.tied
    with torch.device("meta"):
        small = CheckpointDrafter(shapes._draft_shape(shape), "", "")
    count = sum(weight.numel() for weight in small.parameters())
    wide, narrow, d = 32 * 128, 8 * 128, shape.width
    layer = 2 * d * wide + 2 * d * narrow + 3 * d * shape.feed_forward + 2 * d + 2 * 128
    assert count == 5 * layer + 5 * d * d + 2 * d
    assert count * 1e-9 == pytest.approx(drafter, abs=0.01)


def test_a_random_pair_is_drawn_from_its_seed():
    one, same, other = (random_pair("tiny", CPU, torch.float32, seed) for seed in (1, 1, 2))
    for pair in (one, same, other):
        table = pair.target.embedding.weight
        assert table.std().item() == pytest.approx(0.02, rel=0.05)
        assert pair.drafters["block"].head is pair.target.head
    assert torch.equal(one.target.head, same.target.head)
    assert not torch.equal(one.target.head, other.target.head)
    assert one.target.sha256 == same.target.sha256 != other.target.sha256
    weight = "layers.0.feed.up.weight"
    states = [pair.drafters["block"].state_dict()[weight] for pair in (one, same, other)]
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])
    assert one.tokenizer.decode(one.tokenizer.encode("plain")) == "plain"
