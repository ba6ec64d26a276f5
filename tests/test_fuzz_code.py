"""No reader runs code: the calls that could, looked for in the source."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Names of calls that read more than data, and what makes them harmless.
LOADERS = {"load", "load_all", "read_pickle", "full_load", "unsafe_load", "loads", "Loader"}
MODULES = {
    *("pickle", "cPickle", "marshal", "shelve", "dill", "joblib", "cloudpickle", "jsonpickle"),
    *("runpy", "code", "pty"),
}
COMMANDS = {"os.system", "os.popen", "os.startfile", "os.posix_spawn"}
# What imports by a name, and who does: by names of tables in the source, but for a policy's
# `_target_`, which is refused unless it is a policy.
BY_NAME = {"import_module", "instantiate", "get_object", "get_class", "get_method", "locate"}
IMPORTERS = {
    "analysis/__main__.py",
    "analysis/figures/draw.py",
    "real_runner/app.py",
    "simulator/policies/loading.py",
    "simulator/compiling.py",
    "simulator/studies/__init__.py",
}


def _packages() -> list[Path]:
    folders = ("traces", "simulator", "real_runner", "analysis")
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def _faults(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [fault for node in ast.walk(tree) for fault in _of_node(node)]


def _of_node(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
        found = [name for name in names if (name or "").partition(".")[0] in MODULES]
        loaders = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        bare = loaders.partition(".")[0] in ("torch", "numpy", "yaml", "builtins")
        hidden = [a.name for a in node.names if bare and a.name in {*LOADERS, "eval", "exec"}]
        return found + hidden
    if not isinstance(node, ast.Call):
        return []
    name = ast.unparse(node.func)
    words = {word.arg: ast.unparse(word.value) for word in node.keywords}
    last = name.rpartition(".")[2]
    if name in ("eval", "exec", "compile", "__import__") or name in COMMANDS:
        return [name]
    if name.startswith(("builtins.", "os.exec", "os.spawn")) or words.get("shell") == "True":
        return [name]
    if name in ("np.load", "numpy.load") and words.get("allow_pickle", "False") != "False":
        return [f"{name} with pickles"]
    if name.startswith("torch.") and last == "load" and words.get("weights_only") != "True":
        return [f"{name} without weights_only"]
    if name.startswith("yaml.") and last in LOADERS and not _is_safe(node):
        return [name]
    return [name] if last in ("read_pickle", "read_hdf", "unsafe_load", "full_load") else []


def _is_safe(call: ast.Call) -> bool:
    given = [ast.unparse(one) for one in call.args[1:]]
    given += [ast.unparse(word.value) for word in call.keywords if word.arg == "Loader"]
    return given in (["_Loader"], ["yaml.SafeLoader"], ["yaml.CSafeLoader"])


def test_no_reader_runs_code():
    """No exception: `torch.load` of imports builds plain values alone, orders hold no pickles."""
    found = {str(path.relative_to(ROOT)): _faults(path) for path in _packages()}
    assert len(found) > 200
    assert {path: faults for path, faults in found.items() if faults} == {}


def test_names_that_are_imported_are_our_own():
    found = set()
    for path in _packages():
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        calls = [node.func for node in nodes if isinstance(node, ast.Call)]
        names = {getattr(call, "attr", getattr(call, "id", None)) for call in calls}
        if names & BY_NAME:
            found.add(str(path.relative_to(ROOT)))
    assert found == IMPORTERS


HARMFUL = [
    "import pickle", "from marshal import loads", "eval('1')", "exec('1')",
    "np.load(x, allow_pickle=True)", "torch.load(x)", "torch.jit.load(x)",
    "from torch import load", "from yaml import full_load", "subprocess.run(x, shell=True)",
    "os.system(x)", "os.execv(x, y)", "builtins.eval(x)", "torch.load(x, weights_only=False)",
    "yaml.load(x)", "yaml.load(x, Loader=yaml.Loader)", "pandas.read_pickle(x)",
]  # fmt: skip
HARMLESS = [
    "np.load(x, allow_pickle=False)", "np.load(x)", "from numpy import array",
    "subprocess.run([x])", "torch.load(x, weights_only=True)", "yaml.load(x, yaml.SafeLoader)",
    "yaml.safe_load(x)", "model.eval()", "json.loads(x)",
]  # fmt: skip


@pytest.mark.parametrize("code", [*HARMFUL, *HARMLESS])
def test_what_counts_as_running_code(code):
    assert sum(len(_of_node(node)) for node in ast.walk(ast.parse(code))) == (code in HARMFUL)


def test_every_yaml_of_a_user_is_read_plainly():
    """`yaml.safe_load` is left to files of this project's own folders."""
    own = {
        "traces/profiles/devices.py",
        "analysis/figures/mass.py",
        "simulator/studies/published/common.py",
    }
    users = {path for path in _packages() if "yaml.safe_load" in path.read_text("utf-8")}
    assert {str(path.relative_to(ROOT)) for path in users} <= own
