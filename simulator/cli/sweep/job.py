"""One job, in its folder: what every launcher calls, wherever it runs."""

from __future__ import annotations

import hashlib
import io
import os
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, chdir, contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from simulator.cli.errors import CRASHED, REFUSED, one_line
from simulator.cli.overrides import FILES
from simulator.cli.sweep.lock import INSIDE, REPLACING, Busy, claimed, is_torn
from simulator.cli.sweep.objective import KEYS, Objective
from simulator.progress import hidden
from simulator.results.files import REQUESTS, STEPS, SUMMARY, discard, is_complete
from traces.common.yaml import dump_yaml, load_yaml

# ---------------- Names of jobs, and of their folders.


DEFAULT = "default"  # a job without overrides
LONGEST = 200  # characters of a job's folder name


def folder_name(overrides: str) -> str:
    """A job's folder from its overrides: no separators or quotes, and a length any disk takes."""
    name = re.sub(r"[^A-Za-z0-9=,._+-]+", "_", overrides) or DEFAULT
    if name in (overrides, DEFAULT) and len(name) <= LONGEST:
        return name
    # A changed or cut name could be another job's as well: the hash keeps them apart.
    return f"{name[:LONGEST]}-{hashlib.sha256(overrides.encode()).hexdigest()[:12]}"


def job_name(overrides: Iterable[str]) -> str:
    """What its line on the terminal calls a job: its overrides, the search's own left out.

    Files in place of a group's option are shown as they are typed; without any: default, as its
    folder.
    """
    words = [word for word in overrides if word.lstrip("+").partition("=")[0] not in KEYS]
    own = {word.partition("=")[0]: word for word in words}
    for group, (key, endings) in FILES.items():
        word = own.get(f"{group}.{key}", "")
        if word.strip("'").endswith(endings):
            words[words.index(word)] = group + word.removeprefix(f"{group}.{key}")
            words = [other for other in words if other != f"{group}.name=null"]
    return " ".join(words) or DEFAULT


# ---------------- Jobs.


@dataclass(frozen=True, slots=True)
class SweepJob:
    """A job as it is composed: plain data, which any process can be given."""

    words: tuple[str, ...]  # its overrides, but Hydra's own
    name: str  # as its line on the terminal calls it
    path: str  # of its folder
    config: Mapping[str, Any]
    objective: Objective | None
    hydra: Mapping[str, Any]  # Hydra's node
    cwd: str  # which paths in it are relative to

    def text(self) -> str:
        """As YAML, for another process: keys of a mapping may be numbers."""
        return dump_yaml(asdict(self) | {"words": [*self.words]})

    @classmethod
    def parsed(cls, text: str) -> SweepJob:
        """The job that `text` was made of."""
        facts = load_yaml(text)
        objective = facts["objective"] and Objective(**facts["objective"])
        return cls(**(facts | {"words": tuple(facts["words"]), "objective": objective}))

    @property
    def folder(self) -> Path:
        """Where its results go."""
        return Path(self.path)

    @property
    def is_run(self) -> bool:
        """Whether it is one run, rather than another task."""
        return self.config.get("task", "run") == "run"

    def identity(self) -> str | None:
        """Of a run that can be found again; None for another task, or where it is refused."""
        from simulator.engine.inputs import settled
        from simulator.engine.run import identity_of

        if not self.is_run:
            return None
        try:
            return identity_of(settled(self.config))
        except Exception as error:
            if one_line(error) is None:
                raise
            return None  # the job says why

    def is_finished(self) -> bool:
        """Whether its results are there, whole; nothing is loaded for it."""
        if not (self.folder / SUMMARY).exists() or is_torn(self.folder):
            return False
        identity = self.identity()
        return identity is not None and is_complete(self.folder, identity)

    def tidied(self) -> bool:
        """Remove what a killed process of the job has left; whether nobody is at work on it."""
        with suppress(Busy, OSError), claimed(self.folder, wait=False):
            discard(self.folder)
            return True
        return False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a job of a sweep says."""

    value: float | None = None  # of the objective
    skipped: bool = False  # its results were there
    text: str = ""  # that it printed
    failure: str | None = None  # a line, or the traceback of a fault of ours
    status: int = 0


def lost(why: str) -> Answer:
    """Of a job whose process ended without an answer."""
    return Answer(failure=f"no answer: {why}", status=CRASHED)


def found(job: SweepJob) -> Answer | None:
    """The answer of a job that is finished; None for one that is to be run."""
    from simulator.results.printing import print_skipped

    if not job.is_finished():
        return None
    try:
        value = job.objective.value(job.folder) if job.objective else None
    except Exception as error:
        if one_line(error) is None:
            raise
        return None  # the job says why
    out = io.StringIO()
    print_skipped(job.folder, out)
    return Answer(value, skipped=True, text=out.getvalue())


def answered(job: SweepJob, wait: bool = True, captured: bool = False) -> Answer:
    """Perform a job of a sweep; whatever it raises, but what ends the sweep, is its answer.

    Args:
        wait: for another process that holds the folder.
        captured: what it prints is in the answer, and it shows no progress.

    Raises:
        Busy: see `wait`.
    """
    printed = io.StringIO()
    try:
        with ExitStack() as stack:
            if captured:
                stack.enter_context(hidden())
                stack.enter_context(redirect_stdout(printed))
            answer = perform(job, job.name, wait)
    except (Busy, BrokenPipeError):
        raise
    except Exception as error:
        line = one_line(error)
        if line is not None:
            return Answer(failure=line, status=REFUSED)
        return Answer(failure="".join(traceback.format_exception(error)), status=CRASHED)
    return replace(answer, text=printed.getvalue())


def answered_elsewhere(job: SweepJob) -> Answer:
    """As `answered`, in a process of a launcher's."""
    with suppress(OSError):  # of a machine that has no such folder
        os.chdir(job.cwd)
    return answered(job, captured=True)


def perform(job: SweepJob, name: str | None = None, wait: bool = True) -> Answer:
    """Perform the job. name: inside a sweep. Raises as the task does, and Busy unless `wait`."""
    from simulator.studies import perform as perform_task

    with claimed(job.folder, wait), _as_hydra_says(job):
        try:
            with _files(job):
                skipped = perform_task(job.config, job.folder, name)
            value = job.objective.value(job.folder) if job.objective else None
            return Answer(value, skipped)
        except BaseException:
            discard(job.folder)
            raise


@contextmanager
def _as_hydra_says(job: SweepJob) -> Iterator[None]:
    """The environment, working folder and logging that Hydra's node asks for."""
    from hydra.core.utils import configure_log, env_override

    node = job.hydra["job"]
    with env_override(node["env_set"]):
        logging = job.hydra["job_logging"]
        if logging is not None and logging.get("root") is not None:
            from omegaconf import OmegaConf

            configure_log(OmegaConf.create({"hydra": job.hydra}).hydra.job_logging)
        with chdir(job.folder) if node["chdir"] else nullcontext():
            yield


@contextmanager
def _files(job: SweepJob) -> Iterator[None]:
    """Keep the job's configuration beside its results: written before the block.

    In place of another run's it is written after it, and until then a mark says that the folder
    may hold parts of two runs, should the process be killed in the block.
    """
    if not (job.folder / SUMMARY).exists():
        _write_files(job)
        yield
        return
    mark, before = job.folder / INSIDE / REPLACING, _stamps(job.folder)
    mark.touch()
    try:
        yield
        if _stamps(job.folder) != before or not job.is_run:
            _write_files(job)
        mark.unlink()
    except Exception:
        if _stamps(job.folder) == before:
            mark.unlink()
        raise


def _stamps(folder: Path) -> list[tuple[str, int, int]]:
    """Of the results' files, as long as nobody writes them anew."""
    there = [path for name in (REQUESTS, STEPS, SUMMARY) if (path := folder / name).exists()]
    return [(path.name, path.stat().st_ino, path.stat().st_mtime_ns) for path in there]


_NOT_KEPT = ("hydra_logging", "job_logging", "env", "searchpath", "callbacks", "verbose")


def _write_files(job: SweepJob) -> None:
    """``.hydra``, or what `hydra.output_subdir` names in its place; nothing where it is null."""
    subfolder = job.hydra["output_subdir"]
    if subfolder is None:
        return
    place = job.folder / subfolder
    place.mkdir(parents=True, exist_ok=True)
    hydra = {key: value for key, value in job.hydra.items() if key not in _NOT_KEPT}
    contents = {"config": job.config, "hydra": {"hydra": hydra}, "overrides": list(job.words)}
    for name, content in contents.items():
        (place / f"{name}.yaml").write_text(dump_yaml(content), encoding="utf-8")
