"""Where compiled code is kept, and when plain functions are compiled."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import simulator
from simulator import compiling

ROOT = Path(simulator.__file__).parents[1]
PROGRAM = """
from simulator.compiling import compiled
import numba, numpy
kept = compiled("simulator.cost.price").bracket
assert kept(numpy.array([1.0, 2.0]), 0, 2, 1.5) == (0, 1, 0.5)
print(numba.config.CACHE_DIR)
"""


@pytest.fixture
def sealed(tmp_path):
    """A copy of the sources that is never written, for a user without a home."""
    if os.getuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root writes everywhere")
    root = tmp_path / "checkout"
    for name in ("simulator", "traces"):
        ignored = shutil.ignore_patterns("__pycache__", "data", "*.safetensors")
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    for folder, _, _ in os.walk(root):
        os.chmod(folder, 0o555)
    yield root
    for folder, _, _ in os.walk(root):
        os.chmod(folder, 0o755)


@pytest.mark.parametrize("writable", [True, False])
def test_a_read_only_checkout_compiles_without_a_home(sealed, tmp_path, writable):
    """Into the temporary folder if there is one, else nowhere."""
    temporary = tmp_path / "tmp"
    temporary.mkdir(mode=0o777 if writable else 0o555)
    temporary.chmod(0o777 if writable else 0o555)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o055)
    drop = ["setpriv", "--reuid=65534", "--clear-groups"] if os.getuid() == 0 else []
    places = {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent", "TMPDIR": str(temporary)}
    own = {"PYTHONPATH": str(sealed), "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    told = subprocess.run(
        [*drop, sys.executable, "-c", PROGRAM],
        env=places | own,
        cwd="/",
        text=True,
        capture_output=True,
    )
    if "Permission denied" in told.stderr and "numba" not in told.stderr:
        pytest.skip("another user may not read this environment")
    assert told.returncode == 0, told.stderr
    folders = list(temporary.glob("specsim-compiled-*"))
    assert bool(folders) == writable
    if writable:
        assert told.stdout.strip() == str(folders[0])
        assert stat.S_IMODE(folders[0].stat().st_mode) == 0o700


def test_a_folder_that_others_can_write_is_not_trusted(tmp_path, monkeypatch):
    monkeypatch.setattr(compiling.tempfile, "gettempdir", lambda: str(tmp_path))
    assert compiling._temporary_folder() is not None
    (folder,) = tmp_path.iterdir()
    folder.chmod(0o777)
    assert compiling._temporary_folder() is None
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    assert compiling._temporary_folder() is None


HOLDER = """
import sys
from simulator import compiling
print(compiling._first(), flush=True)
sys.stdin.read()
"""


def test_code_is_loaded_sooner_than_made_and_made_by_one_process(tmp_path, monkeypatch):
    def limit(kept: bool) -> int:
        """Items of work up to which it stays interpreted."""
        monkeypatch.setattr(compiling, "kept", lambda *names: kept)
        compiling._work.clear()
        noted = 0
        while not compiling.worth(50_000, "", "x"):
            noted += 50_000
        return noted + 50_000

    monkeypatch.setattr(compiling, "_work", compiling._work.copy())
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(compiling.tempfile, "tempdir", None)
    compiling._lock.cache_clear()
    holder = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(holder, stdin=-1, stdout=-1, text=True, cwd=ROOT) as other:
        assert other.stdout.readline() == "True\n"
        found = limit(kept=True), limit(kept=False)
        assert found == (compiling.WORTH, compiling.PATIENCE * compiling.UNKEPT)
        other.stdin.close()
    assert limit(kept=False) == compiling.UNKEPT
    compiling._lock().release()
    compiling._lock.cache_clear()
