"""The house's own rules, read off its sources: arrows, circles, names, rooms."""

from __future__ import annotations

import ast
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("traces", "simulator", "real_runner", "analysis")
MAY = {  # beside itself
    "traces": set(),
    "simulator": {"traces"},
    "real_runner": {"simulator", "traces"},
    "analysis": {"traces"},
}
DISPATCHED = {"simulator.studies.host_terms"}  # a command of analysis that prices rounds
ROOMS, FILES = 8, 13  # about twelve
REGISTRIES = {"simulator/policies", "traces/importers", "analysis/figures", "analysis/figure"}
FILE_OF = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in (ROOT / package).rglob("*.py")
}


def imported(name: str) -> set[str]:
    """Modules of ours that a module imports, inside functions too; not for types alone."""
    tree = ast.parse(FILE_OF[name].read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{one.name}" for one in node.names}
            found |= {one if one in FILE_OF else node.module for one in inner}
    return {one for one in found if one in FILE_OF and one != name}


IMPORTS = {name: imported(name) for name in FILE_OF}


def test_arrows_run_one_way():
    wrong = [
        f"{name} imports {one}"
        for name, found in IMPORTS.items()
        for one in found
        if (top := one.partition(".")[0]) != (own := name.partition(".")[0])
        and top not in MAY[own]
        and not (own == "analysis" and one in DISPATCHED)
    ]
    assert not wrong, "\n".join(sorted(wrong))


def test_no_import_circle():
    circles, graph = [], {name: set(found) for name, found in IMPORTS.items()}
    while True:
        try:
            TopologicalSorter(graph).prepare()
            break
        except CycleError as error:
            circle = error.args[1]
            circles.append(" -> ".join(reversed(circle)))
            graph[circle[1]].discard(circle[0])  # the arrow away, to find the next one
    assert not circles, "\n".join(circles)


def test_no_two_classes_of_one_name():
    places = defaultdict(list)
    for name, path in FILE_OF.items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[name.partition(".")[0], node.name].append(name)
    twice = [f"{one}: {', '.join(found)}" for (_, one), found in places.items() if len(found) > 1]
    assert not twice, "\n".join(sorted(twice))


def test_few_rooms_and_files():
    crowded = []
    for folder in {path.parent for path in FILE_OF.values()}:
        room = folder.relative_to(ROOT).as_posix()
        rooms = sum(
            (one / "__init__.py").exists() or any(one.glob("*.py"))
            for one in folder.iterdir()
            if one.is_dir()
        )
        files = sum(one.name != "__init__.py" for one in folder.glob("*.py"))
        if rooms > ROOMS or (files > FILES and room not in REGISTRIES):
            crowded.append(f"{room}: {rooms} rooms, {files} files")
    assert not crowded, "\n".join(sorted(crowded))
