"""A disk that is full or takes nothing: one line, status 2, no half files."""

from __future__ import annotations

import errno
import resource
from contextlib import contextmanager
from pathlib import Path

import pytest

from simulator.cli.main import main
from traces.__main__ import main as traces
from traces.common.files import disk_line, named

WORDS = ["policy=fixed_chain", "num_prompts=40", "max_concurrency=2"]


@contextmanager
def limited(size: int):
    """No file grows beyond `size` bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [0, 1500, 6000])
def test_a_run_on_a_full_disk(here, recorded, capsys, size):
    assert main([f"trace={recorded}", *WORDS, "hydra.run.dir=warm"]) == 0  # orders are cached
    capsys.readouterr()
    with limited(size):
        status = main([f"trace={recorded}", *WORDS, "hydra.run.dir=out", "seed=1"])
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    assert line.endswith("File too large; accepted: a disk with room")
    assert not Path("out").exists()


def test_a_sweep_on_a_full_disk_names_its_jobs(here, recorded, capsys):
    words = ["-m", f"trace={recorded}", *WORDS, "num_prompts=400", "seed=0,1"]
    words += ["hydra.sweep.dir=out"]
    with limited(8000):
        status = main(words)
    err = capsys.readouterr().err
    assert status == 2
    assert "Traceback" not in err
    for seed, line in enumerate(err.splitlines()):
        assert f" seed={seed} " in line.replace(":", " ")
        assert line.count(".parquet: File too large; accepted: a disk with room") == 1
    assert err.count("\n") == 2
    assert main(words) == 0


@pytest.mark.parametrize(
    "out",
    ["/proc/p.json", f"{'a' * 245}.json", "in.txt/p.json", "full.json",
     "/proc/x.safetensors", f"{'a' * 235}.safetensors", "full.safetensors"],
)  # fmt: skip
def test_an_import_that_cannot_be_written(here, capsys, out):
    """The path is named as given, not by its temporary name, whatever library writes there."""
    if out.endswith(".json"):
        words = ["accepted-list", "in.txt"]
        Path("in.txt").write_text("2\n1\n0\n")
    else:
        torch, words = pytest.importorskip("torch"), ["cast-rounds", "in.pt"]
        a_round = {"top_idx": torch.tensor([[1, 2]]), "top_val": torch.tensor([[4.0, 3.0]])}
        torch.save([a_round | {"realized": [2], "accepted": 0}], "in.pt")
    with limited(10 if out.startswith("full") else resource.RLIM_INFINITY):
        assert traces(["import", *words, "--out", out]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert out.removesuffix("/p.json") in line
    assert ".tmp" not in line
    assert [path.name for path in Path().iterdir()] == words[1:]


def test_errors_that_name_no_file_get_one(tmp_path):
    with pytest.raises(OSError, match="No space left") as found, named(tmp_path / "a.parquet"):
        raise OSError("[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left")
    assert disk_line(found.value) == (
        f"{tmp_path / 'a.parquet'}: No space left on device; accepted: a disk with room"
    )
    assert disk_line(OSError(errno.EROFS, "x", "f")) == (
        "f: Read-only file system; accepted: a usable path"
    )
    assert disk_line(OSError(errno.ECONNREFUSED, "x")) is None  # a fault of the program's
    with pytest.raises(OSError, match="odd"), named(tmp_path):
        raise OSError("odd")
