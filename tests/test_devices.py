"""No operation mixes tensors of the host with the device's, told by labels on a CPU.

Every tensor here lies in the same memory, but those that code puts on the device (models, caches,
`.to(device)`, `device=...`, and all that is computed from them) carry a label. An operation on
labelled and unlabelled tensors would fail on CUDA; so would `.numpy()` of a labelled one.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from real_runner.engine import engine as engine_module
from real_runner.engine import pack as pack_module
from real_runner.engine import walk as walk_module
from real_runner.engine.engine import Settings
from real_runner.engine.pack import PACKINGS
from real_runner.engine.residual import make_verifier
from real_runner.probing.shapes import random_pair
from tests.test_graphs import rounds
from tests.tiny_pair import KINDS, tiny_pair, tiny_recording


class Labels(TorchFunctionMode):
    """Follows which tensors are the device's; what they hold is kept, so that ids stay theirs."""

    def __init__(self, *models) -> None:
        super().__init__()
        walk_module._index.cache_clear()  # knows tensors of other labels
        self.known: dict[int, torch.Tensor] = {}
        self.mixed: list[str] = []
        for model in models:
            inner = model if isinstance(model, torch.nn.Module) else model.model
            held = [*inner.parameters(), *inner.buffers(), *vars(model).values()]
            self.label(*(one for one in held if isinstance(one, torch.Tensor)))

    def label(self, *tensors: torch.Tensor) -> None:
        self.known |= {id(tensor): tensor for tensor in tensors}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, getattr(func, "__name__", str(func))
        inputs = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        there = [id(one) in self.known for one in inputs]
        out = func(*args, **kwargs)
        if name in ("cpu", "to") and inputs and out is inputs[0]:
            out = out.clone()  # a copy, as on another device
        moved = name == "to" and any(isinstance(one, torch.device) for one in args)
        host = [one for one, on in zip(inputs, there) if not on and one.dim() > 0]
        if any(there) and (host or name == "numpy"):
            self.mixed.append(f"{name} of {[tuple(one.shape) for one in host]}")
        if name != "cpu" and (any(there) or moved or kwargs.get("device") is not None):
            self.label(*(one for one in tree_leaves(out) if isinstance(one, torch.Tensor)))
        return out


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    """The branches that a CPU does not take: masks made on the device, trees padded together."""
    plain = pack_module.pack

    monkeypatch.setattr(engine_module, "pack", lambda *args: plain(*args[:4]))


@pytest.fixture
def labelled(monkeypatch):
    """A function that gives labels of a target and a drafter, and of every cache made for them."""

    def made(*models) -> Labels:
        labels, whole = Labels(*models), engine_module.KVCache.__init__

        def init(self, *args):
            whole(self, *args)
            labels.label(self.key, self.value)

        monkeypatch.setattr(engine_module.KVCache, "__init__", init)
        return labels

    return made


def check_rounds(labelled, pair, kinds, settings: Settings, temperature: float) -> None:
    for kind in kinds:
        with labelled(pair.target, pair.drafters[kind]) as labels:
            rounds(pair, kind, settings, make_verifier(temperature))
        assert len(labels.known) > 500
        assert labels.mixed == []


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_serving_mixes_nothing(labelled, packing, graphs, temperature, dtype):
    settings = Settings(packing, graphs=graphs)
    check_rounds(labelled, tiny_pair(dtype=dtype), KINDS, settings, temperature)


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("graphs", [False, True])
def test_checkpoints_mix_nothing(labelled, packing, graphs):
    pytest.importorskip("transformers")
    pair = random_pair("tiny", torch.device("cpu"), torch.bfloat16)
    check_rounds(labelled, pair, ["block"], Settings(packing, graphs=graphs), 0.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_recording_mixes_nothing(labelled, kind, temperature):
    pair = tiny_pair()
    with labelled(pair.target, pair.drafters[kind]) as labels:
        tiny_recording(pair, kind, 4, 8, temperature)
    assert labels.mixed == []


def test_a_mixture_is_found():
    """Of the labels themselves."""
    model = torch.nn.Linear(3, 3)
    with Labels(model) as labels:
        model(torch.ones(2, 3, device="cpu"))
        assert labels.mixed == []
        model(torch.ones(2, 3))
        assert labels.mixed == ["linear of [(2, 3)]"]
        model(torch.ones(2, 3).to(torch.device("cpu"))).detach().numpy()
    assert labels.mixed[1:] == ["numpy of []"]
