"""Progress appears on a terminal, for slow work only."""

import sys

import pytest

from simulator import progress
from simulator.progress import Progress


@pytest.mark.parametrize(
    ("terminal", "patience_s", "shown"),
    [
        (True, 0.0, True),
        (True, 60.0, False),
        (False, 0.0, False),
    ],
)
def test_progress(monkeypatch, terminal, patience_s, shown):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(progress, "PATIENCE_S", patience_s)
    with Progress(10, "orders of anchors") as bar:
        bar.update(1)
        bar.update(10)
        assert (bar._bar is not None) == shown
        if shown:
            (task,) = bar._bar.tasks
            assert (task.description, task.completed, task.total) == ("orders of anchors", 10, 10)
