"""YAML of files that may be damaged, or made by anybody: plain values alone, one kind of error."""

from __future__ import annotations

import re
from typing import Any

import yaml

from traces.common.json import DEEPEST, LONGEST_NUMBER, check_texts, first_twice

_Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


# Of a tag or a date that the text after it does not fit.
_NOT_OF_ITS_TYPE = (ArithmeticError, LookupError, TypeError, AttributeError)


class _Refused(ValueError):
    """One line that says which line of the text is at fault."""


class _Loader(_Base):
    """Safe, and refuses a key given twice: the last one would silently hold."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except _Refused:
            raise
        except _NOT_OF_ITS_TYPE as error:
            raise _Refused(f"{_line(node)}: {_untyped(error)}") from None
        except ValueError as error:
            raise _Refused(f"{_line(node)}: {' '.join(str(error).split())}") from None

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep)
        if isinstance(node, yaml.MappingNode) and len(mapping) < len(node.value):
            keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            twice = first_twice(key.value for key in keys)
            again = [key for key in keys if key.value == twice][1:] or [node]
            raise _Refused(f"{_line(again[0])}: a mapping has the key {twice!a:.60} twice")
        return mapping


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):
    """Quotes what the loader would not take for text."""


# 1e-6 without a point is a number to everybody but YAML 1.1.
for _side in (_Loader, _Dumper):
    _side.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )


def dump_yaml(value: Any) -> str:
    """YAML of plain values that `load_yaml` reads back, in the order given."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


def load_yaml(text: str) -> Any:
    """The plain values of one YAML document, with a byte-order mark before it or without.

    Aliases are refused: a few of them can stand for more values than memory holds, or for a
    mapping within itself.

    Raises:
        ValueError: one line that says which line of the text is at fault.
    """
    try:
        _refuse_tricks(text)
        value = yaml.load(text, _Loader)
        if "\\u" in text.lower():
            check_texts(value)
        return value
    except yaml.YAMLError as error:
        raise ValueError(" ".join(_placed(error, text).split())) from None
    except _NOT_OF_ITS_TYPE as error:
        raise ValueError(_untyped(error)) from None


def _untyped(error: Exception) -> str:
    return f"a value that is not of its type ({type(error).__name__})"


def _line(node: yaml.Node | yaml.Event) -> str:
    return f"line {node.start_mark.line + 1}"


def _placed(error: yaml.YAMLError, text: str) -> str:
    """What is wrong, and where in the text: the library knows no name of a text to give."""
    if isinstance(error, yaml.reader.ReaderError):
        line = text.encode("utf-8", "replace").count(b"\n", 0, error.position) + 1
        return f"line {line}: a character that YAML does not take ({error.reason})"
    mark, begun = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    if mark is None:
        return str(error)
    while_doing = f", {error.context}" if error.context else ""
    if begun is not None and begun.line != mark.line:
        while_doing += f" that begins in line {begun.line + 1}"
    return f"line {mark.line + 1} column {mark.column + 1}: {error.problem}{while_doing}"


def _refuse_tricks(text: str) -> None:
    """ValueError for aliases, deep nesting and endless numbers, before any value is made."""
    depth = 0
    for event in yaml.parse(text, _Base):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"{_line(event)} has the alias *{ascii(event.anchor)[1:-1]:.40}")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError(f"{_line(event)}: nested more than {DEEPEST} levels deep")
        if isinstance(event, yaml.ScalarEvent) and not event.style:
            bare = event.value.lstrip("+-").replace("_", "").replace(":", "")
            if len(bare) > LONGEST_NUMBER and bare.isalnum() and bare[0].isdigit():
                raise ValueError(f"{_line(event)}: a number of {len(event.value)} digits")
