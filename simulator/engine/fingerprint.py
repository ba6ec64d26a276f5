"""Hashes of what determines a run's numbers: sources, and files that its settings name.

The sources are those that an entry module (`simulator.engine.run`, say) and a policy's module
import, however far: inside functions too, and a user's own files wherever they lie. The standard
library and installed packages are not among them, nor is another policy, which is imported by its
name.
"""

from __future__ import annotations

import hashlib
import json
import os
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any

OURS = ("simulator", "traces", "real_runner")  # count even where they are installed
# Imported by what decides, but they only print: a progress bar, the wording of a refusal, the
# words of a command line.
PRINTING = ("simulator.progress", "traces.common.errors", "simulator.cli")

_TYPES = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t]+.*\n|\n)+", re.MULTILINE)
_COMMENT = re.compile(r"#.*")
_IMPORT = re.compile(
    r"(?:^|[;:])[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]*(\([^)]*\)|(?:[^\n;\\]|\\\n)+)"
    r"|import[ \t]+((?:[^\n;\\]|\\\n)+))",
    re.MULTILINE,
)
_BY_NAME = re.compile(r"(?:import_module|__import__)\(\s*[\"']([.\w]+)[\"']")
_DATA = re.compile(r"[\"']([\w./-]+\.(?:ya?ml|json|csv|toml|txt|npy|npz))[\"']")


def identity(parts: Mapping[str, Any]) -> str:
    """sha256 of plain data: equal for what is the same, in whatever order of keys."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def file_hash(path: str | Path) -> str:
    """sha256 of a file's content, which is read once until it changes."""
    stat = os.stat(path)
    return _content_hash(os.path.abspath(path), stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=1024)
def _content_hash(path: str, _mtime_ns: int, _size: int) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def named_files(node: Any) -> list[str]:
    """sha256 of every file whose path is a value in `node`, however deep, in the order of keys."""
    if isinstance(node, str):
        try:
            return [file_hash(node)] if os.path.isfile(node) else []
        except (OSError, ValueError):
            return []  # refused when it is read
    if isinstance(node, Mapping):
        return [one for key in sorted(node) if key != "name" for one in named_files(node[key])]
    return [one for item in node for one in named_files(item)] if isinstance(node, list) else []


def sources(entry: str, policy: Mapping[str, Any]) -> str:
    """sha256 of the sources behind the module `entry` and the classes that a policy node names."""
    return _digest((entry, *_modules_of(policy)), None, _search_path())


def own_sources(entry: str, policy: Mapping[str, Any]) -> str:
    """sha256 of the policy's sources alone: those that `entry` does not import anyway."""
    return _digest(_modules_of(policy), entry, _search_path())


def class_sources(entry: str, kind: type) -> str:
    """sha256 of the sources behind the module `entry` and the class `kind`."""
    modules = (one.__module__ for one in kind.__mro__)
    return _digest((entry, *dict.fromkeys(modules)), None, _search_path())


def reached(*modules: str) -> dict[str, Path]:
    """Files by name of the modules and of all that they import."""
    return dict(_reached(modules, _search_path()))


def _search_path() -> tuple[str, ...]:
    return tuple(map(os.path.abspath, sys.path))


def _modules_of(node: Any) -> tuple[str, ...]:
    """Modules of every `_target_` in a node, as written, and of its class and base classes."""
    found: dict[str, None] = {}
    for target in _targets(node):
        found[target.rpartition(".")[0]] = None
        try:
            kind = pkgutil.resolve_name(target)
        except Exception:  # whatever importing it raises: refused when it is made
            continue
        for one in kind.__mro__ if isinstance(kind, type) else (kind,):
            found[getattr(one, "__module__", target)] = None
    return tuple(found)


def _targets(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping) and "_target_" in node:
        yield str(node["_target_"])
    inner = node.values() if isinstance(node, Mapping) else node
    for one in inner if isinstance(node, Mapping | list | tuple) else ():
        yield from _targets(one)


@cache  # a process computes with what it imported, whatever the files say since
def _digest(modules: tuple[str, ...], without: str | None, path: tuple[str, ...]) -> str:
    files = _reached(modules, path)
    left_out = _reached((without,), path) if without else {}
    digest = hashlib.sha256()
    for name in sorted(files.keys() - left_out.keys()):
        digest.update(f"{name}\0{_file_hash(files[name])}".encode())
        for data in _scanned(files[name])[1]:
            digest.update(f"{data.name}\0{_file_hash(data)}".encode())
    return digest.hexdigest()


_file_hash = cache(file_hash)


@cache
def _reached(modules: tuple[str, ...], path: tuple[str, ...]) -> Mapping[str, Path]:
    """Files by module; `path` is where they are searched.

    A package that merely holds one of them is none: its `__init__.py` lists things for others.
    """
    tops = {*OURS, *(name.partition(".")[0] for name in modules)}
    specs: dict[str, ModuleSpec | None] = {}
    files: dict[str, Path] = {}
    waiting, seen = list(modules), set()
    while waiting:
        name = waiting.pop()
        if name in seen or f"{name}.".startswith(tuple(f"{one}." for one in PRINTING)):
            continue
        seen.add(name)
        spec = _spec(name, specs, tops)
        if spec is None:
            continue
        if spec.has_location and os.path.isfile(spec.origin):
            files[name] = Path(spec.origin)
            package = name if spec.submodule_search_locations is not None else spec.parent
            for one in _scanned(files[name])[0]:
                with suppress(ImportError):  # beyond the top, where a text only looks like one
                    waiting.append(resolve_name(one, package))
    return files


def _spec(name: str, known: dict[str, ModuleSpec | None], tops: set[str]) -> ModuleSpec | None:
    """Where a module is, found without importing it; None for what is installed, or no module."""
    if name not in known:
        holder, _, _ = name.rpartition(".")
        known[name] = None
        with suppress(ImportError, ValueError):
            if holder:
                inside = _spec(holder, known, tops)
                places = inside.submodule_search_locations if inside else None
                known[name] = _inside(name, list(places)) if places else None
            elif name not in sys.stdlib_module_names:
                spec = find_spec(name)
                installed = name not in tops and spec is not None and _installed(spec)
                known[name] = None if installed else spec
    return known[name]


def _inside(name: str, places: list[str]) -> ModuleSpec | None:
    """The module of a package whose folders are `places`."""
    try:
        return PathFinder.find_spec(name, places)
    except KeyError:  # a folder without __init__.py, in a package that is not imported
        spec = ModuleSpec(name, None, is_package=True)
        folders = (os.path.join(place, name.rpartition(".")[2]) for place in places)
        spec.submodule_search_locations = [one for one in folders if os.path.isdir(one)]
        return spec


def _installed(spec: ModuleSpec) -> bool:
    places = [spec.origin or "", *(spec.submodule_search_locations or ())]
    return any({"site-packages", "dist-packages"} & {*Path(place).parts} for place in places)


@cache
def _scanned(path: Path) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """Names that a source imports, relative ones with their dots; and files beside it it names."""
    if path.suffix != ".py":
        return (), ()
    text = _COMMENT.sub("", _TYPES.sub("", path.read_text(encoding="utf-8", errors="replace")))
    beside = {path.parent / name for name in _DATA.findall(text)}
    data = sorted(one for one in beside if one.is_file())
    return tuple(dict.fromkeys(_imported(text))), tuple(data)


def _imported(text: str) -> Iterable[str]:
    """Of ``from a import b`` both a and a.b."""
    for origin, names, plain in _IMPORT.findall(text):
        listed = (names or plain).replace("\\", " ").strip("() \t")
        imported = [part.split()[0] for part in listed.split(",") if part.strip()]
        if not origin:
            yield from imported
            continue
        yield origin
        joint = "" if origin.endswith(".") else "."
        yield from (f"{origin}{joint}{name}" for name in imported)
    yield from _BY_NAME.findall(text)
