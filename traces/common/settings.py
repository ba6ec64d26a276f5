"""Configuration keys and file headers as schemas: each key is declared once, with its check.

A section is a pydantic model of frozen values. What a key accepts, in words, is read off its
declaration, so that a refusal, ``--help`` and the tests say the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, ClassVar, Self, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError
from pydantic_core import PydanticUndefined

from traces.common.errors import InputError, refusal, unknown

T = TypeVar("T")
Many = Annotated[tuple[T, ...], Strict(False)]  # a list of a configuration, as a tuple
LARGEST = 1e300  # of numbers that must stay finite in what is computed from them
LARGEST_WHOLE = 2**63 - 1  # of whole numbers that arrays hold

Config = Mapping[str, Any]


def whole(least: int, most: int) -> Any:
    """The type of a whole number within these, for a declaration."""
    return Annotated[int, Field(ge=least, le=most)]


def number(least: float, most: float) -> Any:
    """The type of a number within these."""
    return Annotated[float, Field(ge=least, le=most)]


def above(least: float, most: float) -> Any:
    """The type of a number above the first, up to the second."""
    return Annotated[float, Field(gt=least, le=most)]


@dataclass(frozen=True, slots=True)
class Condition:
    """When a key counts, beside the tasks that read it."""

    words: str
    holds: Callable[[Config], bool]  # of the whole configuration


def value_at(config: Config, path: str) -> Any:
    """The value of a dotted key; None where there is none."""
    node: Any = config
    for part in path.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node


def given(*paths: str) -> Condition:
    """That one of these keys is not null."""
    return Condition(
        " or ".join(paths), lambda config: any(value_at(config, one) is not None for one in paths)
    )


def equal(path: str, value: Any, more: str = "") -> Condition:
    """That a key has this value. more: words behind it."""
    shown = "null" if value is None else value
    return Condition(f"{path}={shown}{more}", lambda config: value_at(config, path) == value)


def several(path: str) -> Condition:
    """That a count is not one."""
    return Condition(f"{path} above 1", lambda config: value_at(config, path) not in (None, 1))


@dataclass(frozen=True, slots=True)
class Meta:
    """What a declaration says beside type, default, bounds and help."""

    unit: str = ""
    accepted: str = ""  # in words, where the type does not say it
    read_by: str = ""  # tasks that read the key, the first of them to be named; "": its section's
    counts: tuple[Condition, ...] = ()  # all of them
    replaces: str = ""  # keys that do not count at the section's task where this one is given

    def __call__(self, schema: dict[str, Any]) -> None:
        """What pydantic calls while it writes a schema; nothing is added."""


def key(
    default: Any = PydanticUndefined,
    help: str = "",
    *,
    unit: str = "",
    accepted: str = "",
    read_by: str = "",
    counts: tuple[Condition, ...] = (),
    replaces: str = "",
    **more: Any,
) -> Any:
    """A field of a `Section`: its default, what it is for; more: its bounds (ge, gt, le, lt)."""
    meta = Meta(unit, accepted, read_by, counts, replaces)
    return Field(default, description=help or None, json_schema_extra=meta, **more)


class _Checked(type(BaseModel)):
    def __call__(cls, *args: Any, **values: Any) -> Any:
        return read(cls, values)


class Section(BaseModel, metaclass=_Checked):
    """Keys that belong together. Bad values raise InputError, one line that names the key.

    PREFIX: what the keys are called by, with its dot.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )
    PREFIX: ClassVar[str] = ""

    def with_(self, **changes: Any) -> Self:
        """A checked copy with other values."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**given | changes)

    def changed(self) -> set[str]:
        """Keys whose values are not their defaults."""
        fields = type(self).model_fields.items()
        return {name for name, field in fields if getattr(self, name) != field.default}

    def refuse(self, name: str, accepted: str) -> None:
        """Raise the error of a value that does not go with the others; for model validators."""
        raise _Together(name, getattr(self, name), accepted)


class _Together(InputError):
    """Two values that exclude each other; where the section stands is not known here."""

    def __init__(self, name: str, value: Any, accepted: str) -> None:
        super().__init__(refusal(name, value, accepted))
        self.parts = name, value, accepted


S = TypeVar("S", bound=Section)


def read(model: type[S], values: Any, prefix: str | None = None, where: str = "") -> S:
    """The section that a mapping holds.

    Args:
        prefix: of its keys, with its dot; None: the section's own. where: the file it stands in.

    Raises:
        InputError: the first key that is unknown, missing or has a value that is not accepted.
    """
    start, prefix = f"{where}: " if where else "", model.PREFIX if prefix is None else prefix
    if not isinstance(values, Mapping):
        listed = ", ".join(model.model_fields)
        raise InputError(start + refusal(prefix[:-1] or "it", values, f"a mapping of {listed}"))
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        errors = sorted(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
        raise InputError(start + _line(model, values, prefix, errors[0])) from None


def _line(model: type[Section], values: Mapping, prefix: str, error: Mapping[str, Any]) -> str:
    """What to say about one of pydantic's errors, whatever it lies in."""
    path = list(error["loc"])
    while len(path) > 1 and path[0] in model.model_fields:
        inner = section_of(model, path[0])
        if inner is None or not isinstance(values[path[0]], Mapping):
            break
        model, values, prefix = inner, values[path[0]], f"{prefix}{path[0]}."
        del path[0]
    cause = error.get("ctx", {}).get("error")
    if error["type"] == "extra_forbidden" and path[0] not in model.model_fields:
        return unknown(f"{prefix}{path[0]}", [prefix + one for one in model.model_fields])
    if isinstance(cause, _Together):
        inner = section_of(model, path[0]) if path else None
        name, value, accepted = cause.parts
        return refusal(f"{prefix}{path[0] + '.' if inner else ''}{name}", value, accepted)
    if isinstance(cause, InputError):
        return str(cause)
    if error["type"] == "missing":
        return f"{prefix}{path[0]} is missing; accepted: {accepted_by(model, path[0])}"
    names = _names(model.model_fields[path[0]].annotation)
    more = f", {cause}" if isinstance(cause, ValueError) and str(cause) else ""  # a validator's
    return refusal(prefix + path[0], values[path[0]], accepted_by(model, path[0]) + more, names)


def section_of(model: type[Section], name: str) -> type[Section] | None:
    """The section that a key holds, None for a plain value."""
    kind = model.model_fields[name].annotation
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    return next((one for one in kinds if isinstance(one, type) and issubclass(one, Section)), None)


def meta_of(model: type[Section], name: str) -> Meta:
    """What a key's declaration says beside its type."""
    found = model.model_fields[name].json_schema_extra
    return found if isinstance(found, Meta) else Meta()


def keys_of(model: type[Section], prefix: str = "") -> Iterator[tuple[str, type[Section], str]]:
    """Every key below: its path, the section that declares it, and its name there."""
    for name in model.model_fields:
        inner = section_of(model, name)
        if inner is not None:
            yield from keys_of(inner, f"{prefix}{name}.")
        else:
            yield prefix + name, model, name


def _names(kind: Any) -> list[str]:
    """Texts that a type lists."""
    found = []
    for one in get_args(kind):
        found += [one] if isinstance(one, str) else _names(one)
    return found


# ---------------- What a key accepts, in words.


def accepted_by(model: type[Section], name: str) -> str:
    """From the declaration: kinds, bounds and names."""
    meta = meta_of(model, name)
    if meta.accepted:
        return meta.accepted
    schema = model.model_json_schema()["properties"][name]
    words = ", or ".join(_words(one) for one in schema.get("anyOf", [schema]))
    return f"{words} ({meta.unit})" if meta.unit else words


def _words(schema: Mapping[str, Any], many: bool = False) -> str:
    if "enum" in schema or "const" in schema:
        return ", ".join(map(str, schema.get("enum", [schema.get("const")])))
    kind = schema.get("type", "object")
    if kind in ("integer", "number"):
        noun = ("whole number" if kind == "integer" else "number") + ("s" if many else "")
        return f"{'' if many else 'a '}{noun}{_bounds(schema)}"
    if kind == "array":
        return f"a list of {_words(schema.get('items', {}), many=True)}"
    plain = {"null": "null", "boolean": "true, false", "string": "text"}
    return plain.get(kind, "mappings" if many else "a mapping")


def _bounds(schema: Mapping[str, Any]) -> str:
    """`` from A to B``, or as far as there are bounds."""
    least, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    most, below = schema.get("maximum"), schema.get("exclusiveMaximum")
    start = f" from {_plain(least)}" if least is not None else ""
    start = f" above {_plain(above)}" if above is not None else start
    end = f" to {_plain(most)}" if most is not None else ""
    end = f" to below {_plain(below)}" if below is not None else end
    return start + end


def _plain(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:g}"
