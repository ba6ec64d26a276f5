"""How many tokens of keys and values fit beside a model's weights."""

from __future__ import annotations

from typing import Any

from traces.common.errors import InputError
from traces.profiles.devices import ModelShape, find_model
from traces.profiles.header import DTYPE_BYTES, ProfileHeader


def kv_tokens_that_fit(
    gpu_memory_gb: float,
    utilisation: float,
    model: str | ModelShape | dict[str, Any],
    dtype: str = "bfloat16",
    tensor_parallel: int = 1,
) -> int:
    """Tokens of KV cache that the GPUs of one replica hold together.

        floor((memory * utilisation - weights / GPUs) / (2 * layers * kv_heads * head_dim * bytes))

    per GPU, with the key-value heads shared out over the GPUs (repeated where there are fewer).
    Activations and graphs are part of what `utilisation` leaves free. GB are 10^9 bytes.

    Args:
        gpu_memory_gb: of one GPU.
        utilisation: share of it that weights and cache may take (vLLM: gpu_memory_utilization).
        model: a name of ``models.yaml``, a shape, or a mapping of its numbers.
        dtype: of weights and cache.
        tensor_parallel: GPUs that share the model.

    Raises:
        InputError: a number that is none, or weights that leave no room for a token.
    """
    for name, value, most in (
        ("gpu_memory_gb", gpu_memory_gb, 1e6),
        ("utilisation", utilisation, 1),
    ):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and 0 < value <= most):
            raise InputError(f"{name} is {value!r}; accepted: above 0, up to {most:g}")
    if type(tensor_parallel) is not int or tensor_parallel < 1:
        raise InputError(
            f"tensor_parallel is {tensor_parallel!r}; accepted: a whole number of at least 1"
        )
    if dtype not in DTYPE_BYTES:
        raise InputError(f"dtype is {dtype!r}; accepted: {', '.join(DTYPE_BYTES)}")
    shape, width = find_model(model), DTYPE_BYTES[dtype]
    weights = shape.params_b * 1e9 * width / tensor_parallel
    left = gpu_memory_gb * 1e9 * utilisation - weights
    tokens = int(left // shape.kv_bytes(width, tensor_parallel))
    if tokens < 1:
        raise InputError(
            f"gpu_memory_gb is {gpu_memory_gb!r} at utilisation {utilisation!r}; accepted: more "
            f"than {weights / 1e9 / utilisation:.4g}, the weights of {shape.name} on each of "
            f"{tensor_parallel} GPUs"
        )
    return tokens


def kv_tokens_of(header: ProfileHeader, gpu_memory_gb: float, utilisation: float = 0.9) -> int:
    """`kv_tokens_that_fit` for the model, data type and GPUs of a latency profile.

    Raises:
        InputError: a header that does not know them, and see `kv_tokens_that_fit`.
    """
    shape = header.model_shape
    needed = {name: shape[name] for name in ("layers", "kv_heads", "head_dim", "params_b")}
    missing = [name for name, value in needed.items() if value is None]
    missing += ["dtype"] if header.dtype not in DTYPE_BYTES else []
    if missing:
        raise InputError(
            f"gpu_memory_gb is {gpu_memory_gb!r}, but the latency profile of {header.model} does "
            f"not know {', '.join(missing)}; accepted there: null, or a number of kv_tokens"
        )
    counts = {name: int(needed[name]) for name in ("layers", "kv_heads", "head_dim")}
    model = ModelShape(
        name=header.model,
        hidden=int(shape["hidden"] or 1),
        heads=counts["kv_heads"],
        params_b=needed["params_b"],
        **counts,
    )
    return kv_tokens_that_fit(gpu_memory_gb, utilisation, model, header.dtype, header.num_gpus)
