"""YAML of files that may be damaged, or made by anybody: plain values alone, one kind of error."""

from __future__ import annotations

import re
from typing import Any

import yaml

from traces.strict_json import DEEPEST, LONGEST_NUMBER, check_texts, first_twice

_Base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):
    """Safe, and refuses a key given twice: the last one would silently hold."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep)
        if isinstance(node, yaml.MappingNode) and len(mapping) < len(node.value):
            names = (key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            raise ValueError(f"a mapping has the key {first_twice(names)!a:.60} twice")
        return mapping


class _Dumper(yaml.SafeDumper):
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
    """The plain values of one YAML document.

    Aliases are refused: a few of them can stand for more values than memory holds, or for a
    mapping within itself.

    Raises:
        ValueError: one line.
    """
    try:
        _refuse_tricks(text)
        value = yaml.load(text, _Loader)
        if "\\u" in text.lower():
            check_texts(value)
        return value
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except (ArithmeticError, LookupError, TypeError, AttributeError) as error:
        # of a tag or a date that the text after it does not fit
        raise ValueError(f"a value that is not of its type ({type(error).__name__})") from None


def _refuse_tricks(text: str) -> None:
    """ValueError for aliases, deep nesting and endless numbers, before any value is made."""
    depth = 0
    for event in yaml.parse(text, _Base):
        if isinstance(event, yaml.AliasEvent):
            line = event.start_mark.line + 1
            raise ValueError(f"line {line} has the alias *{ascii(event.anchor)[1:-1]:.40}")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} levels deep")
        if isinstance(event, yaml.ScalarEvent) and _is_endless(event):
            raise ValueError(f"a number of {len(event.value)} digits")


def _is_endless(event: yaml.ScalarEvent) -> bool:
    bare = event.value.lstrip("+-").replace("_", "").replace(":", "")
    return not event.style and len(bare) > LONGEST_NUMBER and bare.isalnum() and bare[0].isdigit()
