"""Profiles written by a program: they read back equal, or nothing is written."""

from __future__ import annotations

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.cost import (
    DraftRow,
    PrefillRow,
    VerifyRow,
    find_profile,
    known_profiles,
    read_profile,
    write_profile,
)
from tests.test_profiles import HEADER
from traces.common.errors import InputError
from traces.common.files import disk_line
from traces.profiles.profile import PROFILE_FOLDER

VARIED = {**HEADER, "fixed": {}}
ROWS = (VerifyRow(1, 512, 1, 10.0, False), VerifyRow(1, 512, 4, 11.0, False))
DRAFTS = (DraftRow(1, 512, 1.0),)


@pytest.mark.parametrize("name", known_profiles())
def test_shipped_profiles_are_written_and_read_back(tmp_path, name):
    profile = find_profile(name)
    header = yaml.safe_load((PROFILE_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    path = tmp_path / "new" / f"{name}.csv"
    write_profile(path, header, profile.verify, profile.draft, profile.prefill)
    assert read_profile(path) == profile
    endings = [".csv", ".draft.csv", *[".prefill.csv"] * bool(profile.prefill), ".yaml"]
    assert {file.name for file in path.parent.iterdir()} == {name + ending for ending in endings}


times = st.floats(1e-6, 1e6)
noises = st.none() | st.floats(0, 1e3)
sizes = st.integers(1, 40)


@st.composite
def tables(draw) -> tuple:
    points = sorted(draw(st.sets(st.tuples(sizes, sizes, sizes), min_size=1, max_size=6)))
    verify = [VerifyRow(*p, draw(times), False, draw(noises)) for p in points]
    drafts = sorted(draw(st.sets(st.tuples(sizes, sizes), min_size=1, max_size=4)))
    prompts = sorted(draw(st.sets(sizes, max_size=4)))
    return (
        tuple(verify),
        tuple(DraftRow(*p, draw(times), draw(noises)) for p in drafts),
        tuple(PrefillRow(p, draw(times), draw(noises)) for p in prompts),
    )


@settings(max_examples=40, deadline=None)
@given(tables(), tables())
def test_any_rows_read_back_equal(tmp_path_factory, first, second):
    """The second is written over the first: nothing of it stays."""
    path = tmp_path_factory.mktemp("written") / "a.b.csv"
    for rows in (first, second):
        write_profile(path, VARIED, *rows)
        profile = read_profile(path)
        assert (profile.verify, profile.draft, profile.prefill) == rows


def test_dimensions_the_header_fixes_have_no_column(tmp_path):
    path = tmp_path / "toy.csv"
    write_profile(path, {**HEADER, "fixed": {"batch": 1, "kv_prefix_tokens": 512}}, ROWS, DRAFTS)
    assert path.read_text() == (
        "packed_tokens_total,verify_ms,regime\n1,10.0,eager\n4,11.0,eager\n"
    )
    assert path.with_suffix(".draft.csv").read_text() == "draft_ms\n1.0\n"


def test_numbers_of_numpy_are_written_as_numbers(tmp_path):
    rows = (VerifyRow(np.int64(1), np.int64(512), np.int64(2), np.float64(0.1), np.bool_(False)),)
    header = {**HEADER, "num_gpus": np.int64(1), "noise": {"mad": np.float64(0.25)}}
    write_profile(tmp_path / "toy.csv", header, rows, DRAFTS)
    assert read_profile(tmp_path / "toy.csv").verify == rows
    assert read_profile(tmp_path / "toy.csv").header.noise == {"mad": 0.25}


def test_a_header_says_where_its_times_come_from(tmp_path):
    told = {
        "noise": {"relative_median_absolute_deviation": 0.013, "repeats": 25},
        "measured_on": "two cores, 2026-07-01",
        "command": "python -m probe --rows 64: all",
    }
    write_profile(tmp_path / "toy.csv", HEADER | told, ROWS, DRAFTS)
    header = read_profile(tmp_path / "toy.csv").header
    assert (header.noise, header.measured_on, header.command) == tuple(told.values())
    write_profile(tmp_path / "toy.csv", HEADER, ROWS, DRAFTS)
    with (tmp_path / "toy.yaml").open("a") as file:
        file.write("measured_on: 2026-07-01\n")  # a day without quotes is text
    assert read_profile(tmp_path / "toy.csv").header.measured_on == "2026-07-01"
    bare = find_profile("b300").header
    assert (bare.noise, bare.measured_on, bare.command) == ({}, "", "")


def test_a_bad_header_touches_no_file(tmp_path):
    path = tmp_path / "toy.csv"
    write_profile(path, HEADER, ROWS, DRAFTS, [PrefillRow(4, 1.0)])
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    for change in ({"colour": "red"}, {"graph_sizes": [1]}):
        with pytest.raises(InputError, match=f"{tmp_path}/toy.yaml: .*{next(iter(change))}"):
            write_profile(path, HEADER | change, ROWS, DRAFTS)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("verify", "drafts", "message"),
    [
        (ROWS[::-1], DRAFTS, "toy.csv: line 3, .*rows sorted"),
        (ROWS, (), "toy.draft.csv: 1 lines; accepted"),
        ((VerifyRow(1, 512, 1, -3.0, False),), DRAFTS, "line 2, column verify_ms: value '-3.0'"),
        ((VerifyRow(None, 512, 1, 3.0, False),), DRAFTS, "line 2, column batch: value 'any'"),
        ((VerifyRow(1, 512, 1, 3.0, False, -1.0),), DRAFTS, "column noise_ms: value '-1.0'"),
    ],
)
def test_bad_rows_are_refused_in_one_line(tmp_path, verify, drafts, message):
    with pytest.raises(InputError, match=message) as caught:
        write_profile(tmp_path / "toy.csv", VARIED, verify, drafts)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_profile_is_found_by_any_path(tmp_path, monkeypatch):
    folder = tmp_path / "mine"
    write_profile(folder / "toy.csv", HEADER, ROWS, DRAFTS, [PrefillRow(4, 1.0)])
    monkeypatch.chdir(tmp_path)
    absolute, relative = find_profile(folder / "toy.csv"), find_profile("mine/toy.csv")
    assert absolute == relative
    assert relative.prefill == (PrefillRow(4, 1.0),)
    with pytest.raises(InputError, match="accepted: a path that ends in .csv"):
        write_profile(folder / "toy.yaml", HEADER, ROWS, DRAFTS)


def test_a_path_that_takes_nothing_is_named_as_given(tmp_path):
    """A name that is too long with what is put around it, and a folder in the place of a file."""
    (tmp_path / "toy.csv").mkdir()
    for path in (tmp_path / f"{'a' * 246}.csv", tmp_path / "toy.csv"):
        with pytest.raises(OSError, match="File name too long|Is a directory") as caught:
            write_profile(path, HEADER, ROWS, DRAFTS)
        assert disk_line(caught.value).startswith(f"{path}: ")
