"""Which source a result depends on: a policy's file, the engine, and all that they import."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from functools import cache
from pathlib import Path

PACKAGES = ("simulator", "traces")
ENGINE = ("simulator.tournament.play",)


@cache
def source_of(target: str) -> str:
    """sha256 of the sources behind the policy class at import path `target`, the engine's too.

    Only what its file and the engine import, in the whole or inside a function: another policy's
    edit, or a table's, leaves the results of this one as they are.
    """
    module = target.rpartition(".")[0]
    files = sorted(_reached((module, *ENGINE)))
    digest = hashlib.sha256()
    for name, path in files:
        digest.update(name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _reached(modules: tuple[str, ...]) -> set[tuple[str, Path]]:
    """(name, file) of the modules and of what they import from our packages, and so on."""
    found: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        path = None if name in found else _file(name)
        if path is not None:
            found[name] = path
            waiting += [other for other in _imports(path) if other.split(".")[0] in PACKAGES]
    return set(found.items())


@cache
def _imports(path: Path) -> frozenset[str]:
    """Dotted names that a file imports; of ``from a import b`` both a and a.b."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


@cache
def _file(module: str) -> Path | None:
    """The module's source; None for what is no module with one."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, AttributeError, ValueError):
        return None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None
