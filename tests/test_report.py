"""The page of a report: well formed, alone, escaped, honest; and as a browser shows it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from base64 import b64decode
from html.parser import HTMLParser
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.text.notes import warnings
from tests.figure_cases import (
    MEASURED,
    A,
    comparison,
    refused,
    steps,
    summary,
    sweep,
    write_run,
    write_runs,
)

VOID = {"img", "meta", "br", "hr", "link", "input", "source", "wbr"}
EVIL = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"
CONFIG = "policy:\n  name: {name}\nseed: {seed}\nrequest_rate: .inf\nlatency:\n  mode: null\n"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


class _Page(HTMLParser):
    """Elements with their attributes, the texts, and what is not balanced."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.faults: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name):
        if not self.open or self.open.pop() != name:
            self.faults.append(name)

    def handle_data(self, data):
        self.texts.append(data)

    def of(self, name: str) -> list[dict]:
        return [attributes for one, attributes in self.elements if one == name]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def _report(folder: Path, *words: str) -> _Page:
    out = folder.parent / "page.html"
    assert main(["report", str(folder), *words, "--out", str(out)]) == 0
    return _Page(out.read_text(encoding="utf-8"))


@pytest.fixture
def runs(tmp_path) -> Path:
    folder = sweep(tmp_path / "runs", ("autoregressive", "cast"), (1, 4), seeds=2)
    for run in sorted(folder.iterdir()):
        data = json.loads((run / "summary.json").read_text())
        (run / ".hydra").mkdir()
        config = CONFIG.format(name=data["policy"], seed=data["seed"])
        (run / ".hydra" / "config.yaml").write_text(config)
    return folder


def test_the_page_is_well_formed_and_asks_for_nothing(runs):
    page = _report(runs)
    first = (runs.parent / "page.html").read_bytes()
    assert page.faults == []
    assert page.open == []
    assert page.of("html") == [{"lang": "en"}]
    assert not {"script", "link", "iframe", "object", "form"} & {name for name, _ in page.elements}
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in page.elements:
        for key, value in attributes.items():
            assert not key.startswith("on")
            if key in ("src", "srcset", "data", "action", "poster"):
                assert value.startswith("data:image/svg+xml;base64,")
            elif key == "href":
                assert value[1:] in ids
    style = page.texts[next(at for at, text in enumerate(page.texts) if "figcaption" in text)]
    assert not re.search(r"url\(|@import|https?:", style)
    policy = next(one["content"] for one in page.of("meta") if "http-equiv" in one)
    assert "default-src 'none'" in policy
    # Whole pictures, with words for those who do not see them.
    pictures = page.of("img")
    assert len(pictures) >= 8
    assert len(page.of("figcaption")) == len(pictures)
    for one in pictures:
        assert len(one["alt"]) > 30
        picture = b64decode(one["src"].partition(",")[2])
        assert picture.lstrip().startswith(b"<?xml")
        assert b"<script" not in picture
        assert not re.search(rb"(href|src)=\"https?:", picture)
    _report(runs)
    assert (runs.parent / "page.html").read_bytes() == first


def test_tables_configurations_and_provenance(runs):
    page = _report(runs)
    text = page.text
    assert "8 runs: 2 policies, 2 loads, 2 seeds." in text
    assert "ab" * 32 in text  # the recording's hash, whole
    assert "cdcdcdcdcdcdcdcd" in text  # of a configuration
    assert "source: our probe" in text
    assert "concurrency 1" in text
    assert "concurrency 4" in text
    # cast at 1: 200 and 201 over 100 and 101: 1.995 in the mean, t x deviation / sqrt(2).
    assert "1.995 ±0.063" in text
    folded = page.text[page.text.index("Configurations") :]
    assert "latency.mode: null request_rate: Infinity" in folded  # shared by all
    assert 'cast policy.name: "cast" seed: 0 | 1' in folded
    assert len(page.of("details")) == len(page.of("summary")) >= 5
    assert page.of("table")


def test_everything_from_files_is_escaped(tmp_path):
    data = summary(EVIL, 10.0, what_if=True, what_if_reason=EVIL, ttft_note=EVIL, workload=EVIL)
    data |= {"config_hash": EVIL, "policy_config": {EVIL: EVIL}}
    data["trace"] |= {"recording": EVIL, "content_hash": EVIL, "pair": EVIL, "domains": [EVIL]}
    data["latency"] |= {"profile": EVIL, "source": EVIL, "hardware": "\x1b[31m</style>"}
    data["server"] |= {EVIL: EVIL}
    data["by_domain"] = {EVIL: {"mean_tpot_ms": 8.0}, "chat": {"mean_tpot_ms": 12.0}}
    write_run(tmp_path / "runs", data, steps([4] * 30, [8] * 30), config=f"x: {json.dumps(EVIL)}")
    write_run(tmp_path / "runs", data | {"policy": "autoregressive"})
    page = _report(tmp_path / "runs", "--title", EVIL)
    assert page.faults == []
    assert page.open == []
    assert page.of("script") == []
    assert all(one["src"].startswith("data:") for one in page.of("img"))
    assert page.text.count("<script>alert(1)</script>") > 10
    assert "\x1b" not in page.text


def test_several_settings_get_sections_of_their_own(tmp_path):
    code, rejected = (
        {"policy_code": {"target": "c.C", "sha256": A}},
        {"rejected": 2, "completed": 6},
    )
    card_a = [summary("cast"), summary("cast", max_concurrency=8, **rejected, **code)]
    write_runs(tmp_path / "runs", *card_a, summary("cast", latency={"profile": "card_b"}))
    page = _report(tmp_path / "runs", "--only", "throughput")
    assert (
        "Lines over loads join runs of another class or source at other loads: cast." in page.text
    )
    assert "cast: 2 of 8 requests were rejected" in page.text
    links = [one["href"] for one in page.of("a")]
    assert links[:2] == ["#setting-0", "#setting-1"]
    assert {one.get("id") for one in page.of("section")} >= {"setting-0", "setting-1"}
    assert page.text.count("small on card_b") >= 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "page.txt"], "--out page.txt; accepted: a file that ends in .html"),
        (["--metric", "beauty"], "--metric beauty is in no summary"),
        (["--only", "budget"], "--only budget: no policy ran with two widths"),
        (
            ["--only", "throughput", "--out", "taken/page.html"],
            "taken/page.html: cannot write here",
        ),
        (["damaged", "--only", "throughput"], ".hydra/config.yaml: unreadable"),
    ],
)
def test_bad_words_are_refused_and_nothing_is_written(
    tmp_path, monkeypatch, capsys, words, message
):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs", summary("autoregressive"))
    write_run(tmp_path / "damaged", summary("cast"), config="policy: [")
    (tmp_path / "taken").write_text("a file")
    assert message in refused(capsys, "report", "runs", *words)
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "damaged", "taken"}


# ---------------------------------------------------------------- warnings


def _warned(folder: Path, *runs: dict) -> str:
    return "\n".join(warnings(comparison(write_runs(folder, *runs))))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"what_if": True, "what_if_reason": "drafts of a at b"}, "A what-if, which predicts no "),
        ({"window": {"kind": "whole run", "requests": 500}}, "Too few requests for a full batch"),
        ({"window": {"kind": "full batch", "requests": 99}}, "99th percentiles are of fewer than"),
        ({"percentiles": "sketch", "percentile_error": 0.01}, "by a sketch, within 0.01 of"),
        ({"ttft_note": "queue only"}, "Prefill costs nothing"),
        ({"rejected": 2, "completed": 6}, "Requests were rejected"),
        ({"preemptions": 1}, "Requests were pushed out of memory"),
        (
            {"cost_shares": {"time": MEASURED | {"measured": 0.4, "modelled": 0.6}}},
            "Up to 60% of the step time is modelled",
        ),
        (
            {"cost_shares": {"time": MEASURED | {"measured": 0.4, "clamped": 0.6}}},
            "Up to 60% of the step time is clamped",
        ),
        ({"request_rate": 4.0, "realised_request_rate": 3.5}, "miss the asked rate by more than"),
        (
            {"latency": {"profile": "card_a", "host": {"round_s": 0.0, "overlap": False}}},
            "No host work is charged",
        ),
    ],
)
def test_each_weakness_is_warned_of_and_nothing_else(tmp_path, changes, said):
    runs = [
        summary(policy, seed=seed) | changes
        for policy in ("autoregressive", "cast")
        for seed in range(3)
    ]
    text = _warned(tmp_path, *runs)
    assert said in text
    assert text.count("\n") == 0


def test_seeds_and_baselines_that_are_missing_are_warned_of(tmp_path):
    text = _warned(tmp_path / "a", summary("cast"))
    assert "One seed: no interval" in text
    assert "No autoregressive run of this setting at concurrency 4" in text
    text = _warned(
        tmp_path / "b", summary("autoregressive"), *(summary("cast", seed=n) for n in (0, 1))
    )
    assert "1 of 2 rows have one seed" in text
    assert "autoregressive ran too: cast at concurrency 4 (1 of 2 seeds)." in text


def test_what_holds_of_many_loads_or_policies_is_said_once(tmp_path):
    few = {"window": {"kind": "full batch", "requests": 9}}
    names = ("cast", "treespark")
    runs = [
        summary(name, seed=seed, max_concurrency=load) | (few if load < 4 or name == "cast" else {})
        for name in names
        for load in (1, 2, 4)
        for seed in range(3)
    ]
    base = [summary("autoregressive", seed=seed) for seed in range(3)]
    text = _warned(tmp_path / "a", *runs, *base)
    assert text.splitlines() == [
        "No autoregressive run of this setting at concurrency 1; concurrency 2: no ratio to it "
        "there.",
        "99th percentiles are of fewer than 100 requests a run: every policy at concurrency 1; "
        "every policy at concurrency 2; cast at concurrency 4.",
    ]
    text = _warned(tmp_path / "b", *runs)
    assert text.count("No autoregressive run") == 1
    assert "No autoregressive run of this setting at any load: no ratio to it there." in text


# ---------------------------------------------------------------- a browser


def _browser() -> str | None:
    """A browser on PATH, or one that Playwright installed."""
    cache = Path(os.environ.get("PLAYWRIGHT_BROWSERS_PATH", Path.home() / ".cache/ms-playwright"))
    installed = map(str, sorted(cache.glob("chromium*/chrome-linux*/*chrome*")))
    return next((found for name in (*BROWSERS, *installed) if (found := shutil.which(name))), None)


def _shot(browser: str, page: Path, folder: Path) -> tuple[Path, list[str]]:
    """A picture of the page as the browser renders it, and what its console says."""
    shot = folder / "shot.png"
    words = ["--headless", f"--screenshot={shot}", "--window-size=900,1600", "--no-sandbox"]
    words += ["--disable-gpu", "--hide-scrollbars"]
    words += ["--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}"]
    try:
        done = subprocess.run(
            [browser, *words, page.as_uri()], capture_output=True, text=True, timeout=120
        )
    except subprocess.TimeoutExpired:
        pytest.skip("the browser did not answer within two minutes")
    assert shot.is_file(), done.stderr[-500:]
    return shot, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def test_a_browser_shows_it_without_a_complaint(runs, tmp_path):
    """Nor is it silent of a page that fetches: this one forbids it, and the console says so."""
    from matplotlib.image import imread

    browser = _browser()
    if browser is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} on PATH")
    _report(runs)
    page = runs.parent / "page.html"
    shot, console = _shot(browser, page, tmp_path)
    assert console == []
    # Ink at the top, the colours of two policies in the figures, and not the same everywhere.
    picture = imread(shot)[..., :3]
    assert picture.shape[:2] == (1600, 900)
    ink = picture.min(axis=2) < 0.5
    assert 0.003 < ink.mean() < 0.5
    assert ink[:100].any()
    cast = abs(picture - [0xD5 / 255, 0x5E / 255, 0]).max(axis=2) < 0.02
    assert cast.sum() > 100
    page.write_text(page.read_text().replace("<main>", "<main><img src='other.png' alt=''>"))
    _, console = _shot(browser, page, tmp_path)
    assert any("Content Security Policy" in line for line in console)
