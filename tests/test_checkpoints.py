"""Real checkpoint layouts, on tiny random weights saved in exactly those layouts."""

import json
import shutil
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from safetensors.torch import load_file, save_file

from real_runner.engine.attend import TextAttend, read_whole
from real_runner.models.hub.files import open_checkpoint
from real_runner.models.hub.load import load_checkpoint_pair, read_drafter
from real_runner.models.hub.target import read_target
from tests import tiny_checkpoints as tiny
from traces.common.errors import InputError

CPU = torch.device("cpu")
FIRST, LAST = slice(4), slice(4, None)


def load_target(folder, dtype=torch.float32):
    return read_target(open_checkpoint(str(folder), "target"), CPU, dtype)


def load_drafter(folder, target):
    return read_drafter(open_checkpoint(str(folder), "drafter"), target)


def load_pair(target, drafter, dtype=torch.float32):
    return load_checkpoint_pair(str(target), str(drafter), CPU, dtype)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    tiny.save_target(root / "qwen3")
    tiny.save_target(root / "llama", kind="llama", seed=5)
    tiny.save_dflash(root / "dflash")
    tiny.save_dspark(root / "dspark")
    return root


@pytest.fixture
def copied(folders, tmp_path):
    """A function that copies one of the checkpoints, to be spoilt."""

    return lambda name, to="copy": Path(shutil.copytree(folders / name, tmp_path / to))


def close(ours, theirs):
    """Equal within 1e-5 of the largest value: float32 rounding, and no more."""
    scale = max(1.0, float(theirs.abs().max()))
    torch.testing.assert_close(ours / scale, theirs / scale, rtol=0, atol=1e-5)


def reference(folder, implementation="eager"):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation=implementation
    )
    return model.eval().requires_grad_(False)


def some_tokens(batch, length, seed=0):
    torch.manual_seed(seed)
    return torch.randint(0, 256, (batch, length))


def drafted(drafter, target, tokens, anchor):
    """States (b, depths, width) behind anchors (b,) of texts whose context reaches past them."""
    _, tapped = read_whole(target, tokens, drafter.taps)
    positions = torch.arange(tokens.shape[1]).expand(len(tokens), -1)
    # the context arrives in two pieces
    parts = [drafter.context(tapped[:, own], positions[:, own]) for own in (FIRST, LAST)]
    context = [tuple(torch.cat(pieces, 2) for pieces in zip(*layer)) for layer in zip(*parts)]
    first = tokens.gather(1, anchor[:, None])[:, 0]
    return drafter.forward(first, anchor, TextAttend(context, anchor[:, None])), first, tapped


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", ["qwen3", "llama"])
def test_target_equals_its_own_forward(folders, kind, implementation):
    target = load_target(folders / kind)
    tokens = some_tokens(2, 40)
    hidden, tapped = read_whole(target, tokens, (1, 3, 4))
    theirs = reference(folders / kind, implementation)(tokens, output_hidden_states=True)
    close(target.logits(hidden), theirs.logits)
    first, third, last = tapped.split(tiny.WIDTH, -1)
    close(first, theirs.hidden_states[1])
    close(third, theirs.hidden_states[3])
    # transformers norms the last entry of hidden_states; a tap comes before the norm
    close(target.model.model.norm(last), theirs.hidden_states[4])


def test_target_says_what_it_is(folders, copied):
    target = load_target(folders / "qwen3", torch.bfloat16)
    assert (target.eos_tokens, target.banned_tokens) == ((tiny.EOS,), ())
    assert (target.dtype, target.max_positions) == (torch.bfloat16, 256)
    several = copied("qwen3")
    settings = json.loads((several / "generation_config.json").read_text())
    settings["eos_token_id"] = [tiny.EOS, tiny.TURN]
    (several / "generation_config.json").write_text(json.dumps(settings))
    assert load_target(several).eos_tokens == (tiny.EOS, tiny.TURN)


def naive_states(tensors, config, tapped, tokens, anchor, embedding):
    """Normed states of a block's slots (slots, width), all recomputed, one sequence at a time.

    tapped (t, taps * width) of the tokens before the anchor at position t; tokens (slots,).
    """
    heads, kv_heads, size = 4, 2, config["head_dim"]

    def norm(x, name):
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * tensors[name + ".weight"]

    def linear(x, name):
        return x @ tensors[name + ".weight"].T + tensors.get(name + ".bias", 0)

    def turn(x, positions):  # (t, h, size): pairs (i, i + size / 2) as complex numbers
        rates = 8e3 ** (-torch.arange(0, size, 2) / size)
        angles = positions[:, None, None] * rates
        z = torch.complex(x[..., : size // 2], x[..., size // 2 :])
        z = z * torch.polar(torch.ones_like(angles), angles)
        return torch.cat([z.real, z.imag], -1)

    past = norm(linear(tapped, "fc"), "hidden_norm")
    here = torch.arange(len(tokens)) + anchor
    everywhere = torch.cat([torch.arange(anchor), here])
    x = embedding[tokens]
    for n in range(config["num_hidden_layers"]):
        at = f"layers.{n}."
        inner = norm(x, at + "input_layernorm")
        both = torch.cat([past, inner])
        query = linear(inner, at + "self_attn.q_proj").view(-1, heads, size)
        key = linear(both, at + "self_attn.k_proj").view(-1, kv_heads, size)
        value = linear(both, at + "self_attn.v_proj").view(-1, kv_heads, size)
        query = turn(norm(query, at + "self_attn.q_norm"), here)
        key = turn(norm(key, at + "self_attn.k_norm"), everywhere)
        mixed = []
        for head in range(heads):
            own = head * kv_heads // heads
            scores = query[:, head] @ key[:, own].T / size**0.5
            mixed.append(scores.softmax(-1) @ value[:, own])
        x = x + linear(torch.cat(mixed, -1), at + "self_attn.o_proj")
        inner = norm(x, at + "post_attention_layernorm")
        gate = linear(inner, at + "mlp.gate_proj")
        inner = gate * gate.sigmoid() * linear(inner, at + "mlp.up_proj")
        x = x + linear(inner, at + "mlp.down_proj")
    return norm(x, "norm")


def both_ways(folders, drafter_folder):
    """The loaded drafter's states (b, depths, width), the naive ones, and the pieces."""
    pair = load_pair(folders / "qwen3", drafter_folder)
    (drafter,) = pair.drafters.values()
    config = json.loads((drafter_folder / "config.json").read_text())
    tensors = load_file(drafter_folder / "model.safetensors")
    tokens, anchor = some_tokens(2, 20, seed=4), torch.tensor([17, 6])
    ours, first, tapped = drafted(drafter, pair.target, tokens, anchor)
    embedding = tensors.get("embed_tokens.weight", pair.target.embedding.weight)
    naive = []
    for row in range(2):
        block = torch.full((config["block_size"],), tiny.MASK)
        block[0] = first[row]
        at = int(anchor[row])
        naive.append(naive_states(tensors, config, tapped[row, :at], block, at, embedding))
    return pair, drafter, tensors, ours, torch.stack(naive), first


@pytest.mark.parametrize("biased", [False, True])
def test_dflash_equals_a_naive_drafter(folders, tmp_path, biased):
    folder = tiny.save_dflash(tmp_path / "drafter", attention_bias=biased)
    pair, drafter, _, ours, naive, _ = both_ways(folders, folder)
    assert (drafter.kind, drafter.slots, drafter.depths) == ("block", 6, 5)
    assert (drafter.taps, drafter.num_layers, drafter.width) == ((1, 3), 2, 32)
    assert (drafter.kv_heads, drafter.head_dim, drafter.markov) == (2, 12, None)
    close(ours, naive[:, 1:])  # slot 0 holds the anchor, in place
    torch.testing.assert_close(drafter.logits(ours), pair.target.logits(ours))
    assert drafter.chance(ours, torch.zeros(2, 5, dtype=torch.long)) is None


def test_dspark_equals_a_naive_drafter(folders):
    _, drafter, tensors, ours, naive, first = both_ways(folders, folders / "dspark")
    assert (drafter.kind, drafter.slots, drafter.depths) == ("semi_autoregressive", 5, 5)
    close(ours, naive)  # shifted: slot 0 predicts depth 1
    close(drafter.logits(ours), naive @ tensors["lm_head.weight"].T)
    w1, w2 = drafter.markov
    assert torch.equal(w1, tensors["markov_head.markov_w1.weight"])
    assert torch.equal(w2, tensors["markov_head.markov_w2.weight"])
    weight, bias = tensors["confidence_head.proj.weight"][0], tensors["confidence_head.proj.bias"]
    wanted = (naive[:, 0] @ weight[:32] + w1[first] @ weight[32:] + bias).sigmoid()
    close(drafter.chance(ours[:, 0], first), wanted)
    assert_weights_give(drafter, ours[:, 0], first)


def assert_weights_give(drafter, state, parent):
    """The affine form of the confidence head, which recordings keep."""
    of_state, of_parent, bias = drafter.confidence_weights()
    logit = state @ of_state + drafter.markov[0][parent] @ of_parent + bias
    close(logit.sigmoid(), drafter.chance(state, parent))


def test_dspark_without_its_heads_is_a_shifted_block_drafter(folders, tmp_path):
    folder = tiny.save_dspark(
        tmp_path / "plain", folders / "qwen3", markov_rank=0, enable_confidence_head=False
    )
    target = load_target(folders / "qwen3")
    drafter = load_drafter(folder, target)
    assert (drafter.kind, drafter.slots, drafter.depths, drafter.markov) == ("block", 5, 5, None)
    assert drafter.embedding is target.embedding.weight  # equal copies are kept once
    assert drafter.head is target.head


def test_confidence_on_the_state_alone(folders, tmp_path):
    folder = tiny.save_dspark(tmp_path / "bare", confidence_head_with_markov=False)
    drafter = load_drafter(folder, load_target(folders / "qwen3"))
    weight = load_file(folder / "model.safetensors")
    hidden = torch.randn(3, 32)
    logit = hidden @ weight["confidence_head.proj.weight"][0] + weight["confidence_head.proj.bias"]
    parent = torch.tensor([1, 2, 3])
    torch.testing.assert_close(drafter.chance(hidden, parent), logit.sigmoid())
    assert_weights_give(drafter, hidden, parent)


def test_dtype_and_llama_target(folders):
    pair = load_pair(folders / "llama", folders / "dspark", torch.bfloat16)
    drafter = pair.drafters["semi_autoregressive"]
    tokens = some_tokens(1, 6)
    hidden, first, _ = drafted(drafter, pair.target, tokens, torch.tensor([5]))
    assert hidden.dtype == drafter.logits(hidden).dtype == torch.bfloat16
    assert hidden.shape == (1, 5, 32)
    chance = drafter.chance(hidden[:, 0], first)
    assert chance.dtype == torch.float32
    assert 0 < float(chance) < 1


def test_official_dflash_gives_the_same_drafts(folders):
    """Against z-lab's package: logits of every full block, and the greedy continuation."""
    pytest.importorskip("dflash")
    model = pytest.importorskip("dflash.model")
    official = model.DFlashDraftModel.from_pretrained(folders / "dflash", dtype=torch.float32)
    official = official.eval()
    seen = []  # (anchor position, states of slots 1...)
    official.register_forward_hook(
        lambda _m, _a, given, out: seen.append((given["position_ids"][0], out[0, 1:])),
        with_kwargs=True,
    )
    prompt = some_tokens(1, 11, seed=8)
    hub = reference(folders / "qwen3")
    text = official.spec_generate(hub, prompt, 24, stop_token_ids=None)
    pair = load_pair(folders / "qwen3", folders / "dflash")
    drafter, compared = pair.drafters["block"], 0
    hidden, _ = read_whole(pair.target, text)
    assert torch.equal(pair.target.logits(hidden).argmax(-1)[0, 10:-1], text[0, 11:])
    for places, states in seen:
        if len(states) != drafter.depths:
            continue  # it shortens the last blocks
        anchor = places[-drafter.slots :][:1]
        ours, _, _ = drafted(drafter, pair.target, text, anchor)
        ours, theirs = drafter.logits(ours)[0], hub.lm_head(states)
        close(ours, theirs)
        assert torch.equal(ours.argmax(-1), theirs.argmax(-1))
        compared += 1
    assert compared >= 3
    print(f"{compared} full blocks of {len(seen)} equal, {text.shape[1] - 11} tokens equal")


def test_tokenizer(folders):
    coder = load_pair(folders / "qwen3", folders / "dflash").tokenizer
    codes = coder.encode("é7")
    assert codes[0] == tiny.BOS
    assert len(codes) == 4  # one token a byte
    assert coder.decode([*codes, tiny.EOS]) == "é7"


def test_sharded_weights_and_fingerprints(folders, copied):
    split = copied("dflash")
    tensors = load_file(split / "model.safetensors")
    (split / "model.safetensors").unlink()
    where = {}
    for number, name in enumerate(sorted(tensors)):
        where.setdefault(f"part-{number % 2}.safetensors", []).append(name)
    for file, names in where.items():
        save_file({name: tensors[name] for name in names}, split / file)
    index = {"weight_map": {name: file for file, names in where.items() for name in names}}
    (split / "model.safetensors.index.json").write_text(json.dumps(index))
    target = load_target(folders / "qwen3")
    whole = load_drafter(folders / "dflash", target)
    parts = load_drafter(split, target)
    assert torch.equal(whole.fuse.weight, parts.fuse.weight)
    again = load_drafter(folders / "dflash", target)
    norm = load_file(folders / "dflash" / "model.safetensors")["norm.weight"]
    norm[3] += 1  # the fingerprint sees one changed weight
    other = load_drafter(tiny.edit_tensors(copied("dflash", "other"), norm__weight=norm), target)
    assert whole.sha256 == again.sha256
    assert len({whole.sha256, parts.sha256, other.sha256}) == 3
    (split / "part-1.safetensors").unlink()
    with pytest.raises(InputError, match="no part-1.safetensors; accepted"):
        load_drafter(split, target)


def refused(folders, target=None, drafter=None):
    """The one line of the refusal of a pair."""
    with pytest.raises(InputError) as raised:
        load_pair(target or folders / "qwen3", drafter or folders / "dflash")
    line = str(raised.value)
    assert "\n" not in line
    return line


IDS = "dflash_config"
CONFIGS = [
    ("dflash", {"hidden_size": 48}, "hidden_size 48; accepted: 32, as in its target"),
    ("dflash", {"vocab_size": 300}, "vocab_size 300; accepted: 264, as in its target"),
    ("dflash", {"num_target_layers": 36}, "num_target_layers 36; accepted: 4, as in its target"),
    ("dflash", {IDS: {"target_layer_ids": [1, 9], "mask_token_id": 259}}, "target_layer_ids 9;"),
    ("dflash", {IDS: {"target_layer_ids": [0, 3], "mask_token_id": 259}}, "accepted: 0 to 2"),
    ("dflash", {IDS: {"target_layer_ids": [-1], "mask_token_id": 259}}, "[-1]; accepted: a list"),
    ("dflash", {IDS: {"target_layer_ids": [], "mask_token_id": 259}}, "[]; accepted: a list"),
    ("dflash", {IDS: {"target_layer_ids": [0, 2]}}, "mask_token_id is missing"),
    ("dflash", {IDS: {"target_layer_ids": [0, 2], "mask_token_id": 264}}, "mask_token_id is 264;"),
    ("dflash", {"architectures": ["DFlash2DraftModel"]}, "DFlashDraftModel, Qwen3DSparkModel"),
    ("dflash", {"block_size": 1}, "block_size is 1; accepted: a whole number from 2"),
    ("dflash", {"layer_types": ["sliding_attention"] * 2}, "accepted: a list of full_attention"),
    ("dflash", {"layer_types": None, "use_sliding_window": True}, "use_sliding_window is True"),
    ("dflash", {"is_causal": True}, "is_causal is True; accepted: False"),
    ("dflash", {"hidden_act": "gelu"}, "hidden_act is 'gelu'; accepted: silu"),
    ("dflash", {"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30.0; accepted: "),
    ("dflash", {"draft_vocab_size": 100}, "draft_vocab_size is 100; accepted: vocab_size 264"),
    ("dflash", {"num_key_value_heads": 3}, "num_key_value_heads is 3; accepted: a divisor of 4"),
    ("dflash", {"rope_theta": None}, "no rope_theta in config.json; accepted"),
    ("dflash", {"rope_scaling": {"rope_type": "dynamic"}}, "rope_type dynamic; accepted: default"),
    ("dspark", {"markov_head_type": "gated"}, "markov_head_type is 'gated'; accepted: vanilla"),
    ("dspark", {"markov_rank": None}, "markov_rank is None; accepted: a whole number"),
    ("dspark", {"markov_rank": 9}, "w1.weight' has shape (264, 8); accepted: (264, 9)"),
    ("dspark", {"confidence_head_with_markov": False}, "shape (1, 40); accepted: (1, 32)"),
    ("qwen3", {"architectures": ["GemmaForCausalLM"]}, "accepted: Qwen3ForCausalLM, qwen3, Llama"),
    ("qwen3", {"model_type": "llama"}, "architecture Qwen3ForCausalLM, model_type llama; accepted"),
    (
        "qwen3",
        {"use_sliding_window": True, "sliding_window": 8, "layer_types": ["sliding_attention"] * 4},
        "sliding_window 8; accepted: full attention in all layers",
    ),
    ("qwen3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping is 50.0; accepted: none"),
    ("qwen3", {"quantization_config": {"quant_method": "fp8"}}, "quantization_config is {"),
    (
        "qwen3",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
        "rope_type dynamic; accepted: default, linear, llama3, yarn",
    ),
    ("qwen3", {"num_attention_heads": "four"}, "transformers cannot load it ("),
]


@pytest.mark.parametrize(("which", "changes", "said"), CONFIGS)
def test_refused_configs(folders, copied, which, changes, said):
    what = "target" if which == "qwen3" else "drafter"
    line = refused(folders, **{what: tiny.edit_config(copied(which), **changes)})
    assert line.startswith(f"{what} ")
    assert said in line


TENSORS = [
    ("drafter", "dflash", "layers.1.mlp.up_proj.weight", None, "no tensor"),
    ("drafter", "dflash", "layers.1.mlp.up_proj.weight", (32, 40), "has shape (32, 40); accepted:"),
    ("drafter", "dflash", "layers.1.sink", (4,), "unknown tensor"),
    ("target", "qwen3", "model.layers.2.self_attn.k_proj.weight", None, "no tensor"),
    ("target", "qwen3", "model.layers.2.self_attn.k_proj.weight", (2, 2), "accepted: (24, 32)"),
]


@pytest.mark.parametrize(("what", "which", "name", "shape", "said"), TENSORS)
def test_refused_tensors(folders, copied, what, which, name, shape, said):
    new = None if shape is None else torch.zeros(shape)
    bad = tiny.edit_tensors(copied(which), **{name.replace(".", "__"): new})
    line = refused(folders, **{what: bad})
    assert said in line
    assert name in line


def test_refused_attention_scaling(folders, monkeypatch):
    attention = transformers.models.qwen3.modeling_qwen3.Qwen3Attention
    build = attention.__init__

    def odd(self, *args, **kwargs):
        build(self, *args, **kwargs)
        self.scaling = 1.0

    monkeypatch.setattr(attention, "__init__", odd)
    assert "attention scaling 1.0; accepted: 0.288" in refused(folders)


def test_refused_files(folders, copied, tmp_path):
    assert "no such folder; accepted: a folder" in refused(folders, target=tmp_path / "none")
    bad = copied("qwen3")
    (bad / "tokenizer.json").rename(bad / "hidden.json")
    (bad / "tokenizer_config.json").unlink()
    assert "no tokenizer.json" in refused(folders, target=bad)
    (bad / "model.safetensors").write_bytes(b"\xff" * 40)
    line = refused(folders, target=bad)
    assert "model.safetensors is not a readable safetensors file" in line
    (bad / "model.safetensors").unlink()
    assert "no model.safetensors; accepted" in refused(folders, target=bad)
    (bad / "config.json").write_text("{")
    assert "config.json is not JSON" in refused(folders, target=bad)
    (bad / "config.json").unlink()
    assert "no config.json; accepted" in refused(folders, target=bad)


def test_refused_hub_id(folders, monkeypatch):
    """No network: the hub's error becomes one line."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    line = refused(folders, target="nobody/nothing")
    assert line.startswith("target nobody/nothing: no such folder, and the hub gave no such")
    assert line.endswith("or a hub id owner/name")


def test_without_transformers(folders, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert refused(folders).startswith("real checkpoints need transformers")
