"""Tiny random checkpoints in the published layouts, saved in folders.

Targets as transformers saves them (Qwen3, Llama); drafters as z-lab (DFlash) and DeepSpec (DSpark)
release them: config.json and model.safetensors with those names. Tensor names are spelt out here,
not taken from the loader.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

LAYERS, WIDTH, VOCAB = 4, 32, 264  # 256 bytes, 4 special tokens, padded as real tables are
BOS, EOS, TURN, MASK = 256, 257, 258, 259
BACKBONE = {
    "model_type": "qwen3",
    "hidden_size": WIDTH,
    "vocab_size": VOCAB,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 12,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "attention_bias": False,
    "max_position_embeddings": 256,
    "layer_types": ["full_attention", "full_attention"],
    "num_target_layers": LAYERS,
}


def save_target(folder: Path, kind: str = "qwen3", seed: int = 0, **changes) -> Path:
    """A random target with grouped heads and a tokenizer; `kind` is qwen3 or llama."""
    import transformers

    shape = {
        "vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": 48,
        "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "initializer_range": 0.3,
        "bos_token_id": BOS, "eos_token_id": EOS, "tie_word_embeddings": False,
    }  # fmt: skip
    if kind == "qwen3":
        shape |= {"head_dim": 12, "rope_parameters": {"rope_type": "default", "rope_theta": 5e3}}
        build, settings = transformers.Qwen3ForCausalLM, transformers.Qwen3Config
    else:
        shape["rope_parameters"] = {
            "rope_type": "llama3", "rope_theta": 5e3, "factor": 4.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
        }  # fmt: skip
        build, settings = transformers.LlamaForCausalLM, transformers.LlamaConfig
    torch.manual_seed(seed)
    model = build(settings(**shape | changes))
    with torch.no_grad():  # a norm left out must show
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.add_(0.2 * torch.randn_like(weight))
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def save_dflash(folder: Path, seed: int = 1, **changes) -> Path:
    """A random DFlash drafter: block of 6 in place, taps after target layers 1 and 3."""
    config = BACKBONE | {
        "architectures": ["DFlashDraftModel"],
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
        "block_size": 6,
        "dflash_config": {"mask_token_id": MASK, "target_layer_ids": [0, 2]},
        "rope_theta": 8e3,
        "rope_scaling": None,
        "tie_word_embeddings": True,
    }
    config |= changes
    torch.manual_seed(seed)
    return _save(folder, config, _backbone(config, config["dflash_config"]["target_layer_ids"]))


def save_dspark(
    folder: Path, target: Path | None = None, seed: int = 2, rank: int = 8, **changes
) -> Path:
    """A random DSpark drafter: shifted block of 5, Markov head, confidence head.

    Its embedding and head are copies of those of `target`, as DeepSpec makes them, or random.
    """
    config = BACKBONE | {
        "architectures": ["Qwen3DSparkModel"],
        "block_size": 5,
        "mask_token_id": MASK,
        "target_layer_ids": [0, 2],
        "num_anchors": 512,
        "markov_rank": rank,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 8e3},
        "tie_word_embeddings": False,
    }
    config |= changes
    torch.manual_seed(seed)
    tensors = _backbone(config, config["target_layer_ids"])
    vocab, width = config["vocab_size"], config["hidden_size"]
    copied = load_file(target / "model.safetensors") if target else {}
    tensors["embed_tokens.weight"] = copied.get("model.embed_tokens.weight", _draw(vocab, width))
    tensors["lm_head.weight"] = copied.get("lm_head.weight", _draw(vocab, width))
    if config["markov_rank"]:
        tensors["markov_head.markov_w1.weight"] = _draw(vocab, rank)
        tensors["markov_head.markov_w2.weight"] = _draw(vocab, rank)
    if config["enable_confidence_head"]:
        inner = width + rank * bool(config["confidence_head_with_markov"])
        tensors["confidence_head.proj.weight"] = _draw(1, inner)
        tensors["confidence_head.proj.bias"] = _draw(1)
    return _save(folder, config, tensors)


def save_tokenizer(folder: Path) -> None:
    """A byte tokenizer that puts <bos> first."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw = Tokenizer(models.BPE({each: n for n, each in enumerate(alphabet)}, []))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(["<bos>", "<eos>", "<turn>", "<mask>"])
    raw.post_processor = processors.TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", BOS)]
    )
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token="<bos>", eos_token="<eos>", mask_token="<mask>"
    )
    wrapped.save_pretrained(folder)


def edit_config(folder: Path, **changes) -> Path:
    """Change keys of a saved config.json; None removes a key."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    return folder


def edit_tensors(folder: Path, **changes) -> Path:
    """Change tensors of a saved checkpoint, names with __ for a dot; None removes one."""
    path = folder / "model.safetensors"
    tensors = load_file(path) | {name.replace("__", "."): new for name, new in changes.items()}
    save_file({name: each for name, each in tensors.items() if each is not None}, path)
    return folder


def _backbone(config: dict, tapped: list[int]) -> dict[str, torch.Tensor]:
    width, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    wide, narrow = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes = {"fc.weight": (width, len(tapped) * width)}
    shapes |= {"hidden_norm.weight": (width,), "norm.weight": (width,)}
    for n in range(config["num_hidden_layers"]):
        parts = {
            "input_layernorm": (width,), "post_attention_layernorm": (width,),
            "self_attn.q_proj": (wide, width), "self_attn.k_proj": (narrow, width),
            "self_attn.v_proj": (narrow, width), "self_attn.o_proj": (width, wide),
            "self_attn.q_norm": (head,), "self_attn.k_norm": (head,),
            "mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width),
            "mlp.down_proj": (width, inner),
        }  # fmt: skip
        shapes |= {f"layers.{n}.{name}.weight": shape for name, shape in parts.items()}
        if config["attention_bias"]:
            names = ("q_proj", "k_proj", "v_proj", "o_proj")
            shapes |= {f"layers.{n}.self_attn.{p}.bias": parts[f"self_attn.{p}"][:1] for p in names}
    return {
        name: _draw(*shape) + 1 if "norm" in name else _draw(*shape)
        for name, shape in shapes.items()
    }


def _draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape) * 0.25


def _save(folder: Path, config: dict, tensors: dict[str, torch.Tensor]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
