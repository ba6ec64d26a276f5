"""Training and recording, end to end at toy size: reproducible, resumable, readable."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

torch = pytest.importorskip("torch")

from real_runner.app import main
from real_runner.models.small.load import SHIPPED, load_pair
from real_runner.models.small.pair import Target
from real_runner.settings import TrainKeys
from real_runner.training.fit import orthogonalise
from real_runner.training.losses import DraftData
from real_runner.training.task import train_drafter
from tests.tiny_pair import SHAPE, draft_shape
from traces.recordings.files import read_recording

ROOT = Path(__file__).resolve().parents[1]
TOY = [
    "train.vocab_size=400", "train.tokenizer_examples=60", "train.target_steps=2",
    "train.target_batch=2", "train.draft_rows=8", "train.draft_max_new_tokens=16",
    "train.block_steps=2", "train.semi_autoregressive_steps=2", "train.drafter_rows=2",
    "train.drafter_anchors=3", "train.threads=1",
]  # fmt: skip


@pytest.fixture(autouse=True)
def uncompiled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")  # of the processes that train drafters
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(torch, "compile", lambda function: function)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def test_train_then_record_from_the_command_line(capsys):
    assert main(["task=train", "output=pair", *TOY]) == 0
    capsys.readouterr()
    assert main(["task=train", "output=pair", *TOY]) == 0
    assert capsys.readouterr().out.count("kept") == 4  # every finished stage is left alone
    assert set(load_pair("pair").drafters) == {"block", "semi_autoregressive"}
    words = ["task=record", "pair=pair", "output=out", "record.small.domains=[extract,report]"]
    words += ["record.small.sequences_per_domain=4", "record.small.max_new_tokens=12"]
    words += ["record.small.sampled_sequences_per_domain=2"]
    assert main(words) == 0
    for name, depths, encoding in (("semi", 7, "hidden"), ("block", 15, "pool")):
        for temperature, sequences in ((0, 8), (1, 4)):
            recording = read_recording(Path(f"out/small_{name}_t{temperature}.safetensors"))
            assert (recording.depths, recording.encoding) == (depths, encoding)
            assert recording.num_sequences == sequences
            assert recording.temperature == temperature
    law = read_recording(Path("out/small_semi_t1.safetensors")).target_logp(np.arange(5))
    assert np.allclose(np.exp(law).sum(-1), 1)


@pytest.mark.parametrize(
    "words",
    [
        ["task=train", "train=null"],
        ["task=train", "output=/proc/none"],
        ["record.small=3"],
        ["task=record", "pair=nowhere"],
    ],
    ids="-".join,
)
def test_bad_words_are_refused_in_one_line(tmp_path, capsys, words):
    assert main(words) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert message.count("\n") == 1
    assert words[-1].rpartition("=")[2] in message.replace("None", "null")
    assert not list(tmp_path.iterdir())


def test_the_same_seed_trains_the_same_drafter(tmp_path):
    torch.manual_seed(0)
    target = Target(SHAPE).requires_grad_(False)
    rng = np.random.default_rng(0)
    data = DraftData(
        rng.integers(5, 60, (4, 24)).astype(np.uint16),
        np.full(4, 8),
        np.array([20, 24, 22, 18]),
        rng.normal(size=(4, 24, 64)).astype(np.float16),
    )
    kind = "semi_autoregressive"

    def weights(seed):
        plan = TrainKeys(seed=seed, semi_autoregressive_steps=3, drafter_rows=2, drafter_anchors=3)
        model = train_drafter(plan, kind, draft_shape(kind, 4), target, data, tmp_path)
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
