"""How many tokens of keys and values fit beside a model's weights."""

from __future__ import annotations

from traces.common.errors import InputError
from traces.profiles.header import DTYPE_BYTES, ProfileHeader


def kv_tokens_of(header: ProfileHeader, gpu_memory_gb: float, utilisation: float = 0.9) -> int:
    """Tokens of KV cache that a latency profile's GPUs hold together, of its model and data type.

        floor((memory * utilisation - weights / GPUs) / (2 * layers * kv_heads * head_dim * bytes))

    per GPU, with the key-value heads shared out over the GPUs (repeated where there are fewer).
    Activations and graphs are part of what `utilisation` leaves free. GB are 10^9 bytes.

    Args:
        gpu_memory_gb: of one GPU.
        utilisation: share of it that weights and cache may take (vLLM: gpu_memory_utilization).

    Raises:
        InputError: a header that does not know its model, or weights that leave no room.
    """
    shape = header.model_shape
    needed = {name: getattr(shape, name) for name in ("layers", "kv_heads", "head_dim", "params_b")}
    needed["dtype"] = DTYPE_BYTES.get(header.dtype)
    missing = [name for name, value in needed.items() if value is None]
    if missing:
        raise InputError(
            f"gpu_memory_gb is {gpu_memory_gb!r}, but the latency profile of {header.model} does "
            f"not know {', '.join(missing)}; accepted there: null, or a number of kv_tokens"
        )
    layers, kv_heads, head_dim, params_b, width = needed.values()
    heads = -(-int(kv_heads) // header.num_gpus)
    weights = params_b * 1e9 * width / header.num_gpus
    left = gpu_memory_gb * 1e9 * utilisation - weights
    tokens = int(left // (2 * int(layers) * heads * int(head_dim) * width))
    if tokens < 1:
        raise InputError(
            f"gpu_memory_gb is {gpu_memory_gb!r} at utilisation {utilisation!r}; accepted: more "
            f"than {weights / 1e9 / utilisation:.4g}, the weights of {header.model} on each of "
            f"{header.num_gpus} GPUs"
        )
    return tokens
