"""Training and recording, end to end at toy size: reproducible, resumable, readable."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

torch = pytest.importorskip("torch")

from real_runner.app import main
from real_runner.models.small.config import DrafterConfig, TargetConfig
from real_runner.models.small.load import SHIPPED, load_pair
from real_runner.models.small.target import Target
from real_runner.training.drafter import train_drafter
from real_runner.training.drafts import DraftData
from real_runner.training.muon import orthogonalise
from traces.recordings.files import read_recording

ROOT = Path(__file__).resolve().parents[1]
TOY = [
    "train.vocab_size=400", "train.tokenizer_examples=60", "train.target_steps=2",
    "train.target_batch=2", "train.draft_rows=8", "train.draft_max_new_tokens=16",
    "train.block_steps=2", "train.semi_autoregressive_steps=2", "train.drafter_rows=2",
    "train.drafter_anchors=3", "train.threads=1",
]  # fmt: skip

ENV = {
    "PYTHONPATH": str(ROOT),
    "TORCHDYNAMO_DISABLE": "1",
    "OMP_NUM_THREADS": "1",
    "PATH": "/usr/bin:/bin",
}


def run(*words, cwd):
    return subprocess.run(
        [sys.executable, "-m", "real_runner", *words],
        cwd=cwd,
        env=ENV,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_train_then_record_from_the_command_line(tmp_path):
    done = run("task=train", "output=pair", *TOY, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    again = run("task=train", "output=pair", *TOY, cwd=tmp_path)
    assert again.stdout.count("kept") == 4  # every finished stage is left alone
    pair = load_pair(tmp_path / "pair")
    assert set(pair.drafters) == {"block", "semi_autoregressive"}
    words = ["task=record", "pair=pair", "output=out", "record.small.domains=[extract,report]"]
    words += ["record.small.sequences_per_domain=4", "record.small.max_new_tokens=12"]
    words += ["record.small.sampled_sequences_per_domain=2"]
    done = run(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name, depths, encoding in (("semi", 7, "hidden"), ("block", 15, "pool")):
        for temperature, sequences in ((0, 8), (1, 4)):
            path = tmp_path / "out" / f"small_{name}_t{temperature}.safetensors"
            recording = read_recording(path)
            assert (recording.depths, recording.encoding) == (depths, encoding)
            assert recording.num_sequences == sequences
            assert recording.temperature == temperature
    hot = read_recording(tmp_path / "out" / "small_semi_t1.safetensors")
    law = hot.target_logp(np.arange(5))
    assert np.allclose(np.exp(law).sum(-1), 1)


@pytest.mark.parametrize(
    "words",
    [["task=train", "train=null"], ["task=train", "output=/proc/none"], ["record.small=3"]],
    ids="-".join,
)
def test_bad_words_are_refused_in_one_line(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert message.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_missing_pair_is_refused_in_one_line(tmp_path):
    done = run("task=record", "pair=nowhere", cwd=tmp_path)
    assert done.returncode == 2
    assert "nowhere" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_the_same_seed_trains_the_same_drafter(tmp_path, monkeypatch):
    monkeypatch.setattr(torch._dynamo.config, "disable", True)
    shape = TargetConfig(vocab_size=64, layers=2, width=32, heads=2, feed_forward=48)
    torch.manual_seed(0)
    target = Target(shape)
    rng = np.random.default_rng(0)
    data = DraftData(
        rng.integers(5, 60, (4, 24)).astype(np.uint16),
        np.full(4, 8),
        np.array([20, 24, 22, 18]),
        rng.normal(size=(4, 24, 64)).astype(np.float16),
    )
    config = DrafterConfig(
        kind="semi_autoregressive", block=4, width=32, heads=2, feed_forward=48, taps=(1, 2),
        markov_rank=4,
    )  # fmt: skip

    def weights(seed):
        model = train_drafter(
            config, target, data, seed=seed, steps=3, rows=2, anchors=3,
            checkpoint=tmp_path / "unused", log=lambda line: None,
        )  # fmt: skip
        return torch.cat([w.flatten() for w in model.state_dict().values()])

    assert torch.equal(weights(5), weights(5))
    assert not torch.equal(weights(5), weights(6))


def test_muon_orthogonalises():
    # Newton-Schulz with the quintic maps every singular value near 1 (.68 to 1.13 by its design).
    generator = torch.Generator().manual_seed(1)
    for shape in ((24, 60), (60, 24)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape, generator=generator)))
        assert values.min() > 0.6
        assert values.max() < 1.25


def test_the_shipped_pair_says_what_the_configuration_would_train():
    config = yaml.safe_load((ROOT / "conf" / "real_runner.yaml").read_text())
    facts = json.loads((SHIPPED / "provenance.json").read_text())
    assert facts["plan"] == config["train"]
