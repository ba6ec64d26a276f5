"""Files against a schema: whatever is wrong with one is told in one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from traces.common.errors import InputError

_LONGEST = 40  # characters of a value in a message
_WORDS = {"model_type": "a mapping", "dict_type": "a mapping", "too_short": "more entries"}


class Schema(BaseModel):
    """What a file must hold; further keys are let be, and no text stands for a number."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, frozen=True)


def node(**kinds: Any) -> type[Schema]:
    """A schema of keys that are all needed, but those that may be null."""

    def default(kind: Any) -> Any:
        return None if type(None) in getattr(kind, "__args__", ()) else ...

    own = {name: (kind, default(kind)) for name, kind in kinds.items()}
    return create_model("Node", __base__=Schema, **own)


Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]
Number = Annotated[float, Field(ge=0)]
Above0 = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1 + 1e-9)]  # sums of seconds round
Model = TypeVar("Model", bound=Schema)


def checked(model: type[Model], data: Any, path: Path) -> Model:
    """The content as the schema has it.

    Raises:
        InputError: one line about its first fault, as ``KEY is VALUE; accepted: ...``.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first, name = error.errors(include_url=False)[0], ""
    for key in first["loc"]:
        if key != "[key]":
            name += f"[{key}]" if isinstance(key, int) else f"{'.' if name else ''}{key}"
    if first["type"] == "missing":
        raise InputError(f"{path}: incomplete: {name} is missing")
    words = _WORDS.get(first["type"], first["msg"].removeprefix("Value error, "))
    if first["type"] == "value_error":
        raise InputError(f"{path}: {f'{name} {words}'.lstrip()}")
    value, words = repr(first["input"]), words.removeprefix("Input should be ")
    value = value if len(value) <= _LONGEST else value[: _LONGEST - 3] + "..."
    raise InputError(f"{path}: {name or 'the file'} is {value}; accepted: {words}")


def flat(node: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted key and value of every leaf; an empty mapping has none."""
    for key, value in node.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
