"""The one writer of tables: what a terminal, Markdown, a CSV reader and TeX get."""

from __future__ import annotations

import csv
import io
import re

import pytest

from traces.common.table import BLANK, FORMATS, Cell, Notes, Table, Title, render

TABLE = Table(
    headings=["policy", "output\ntokens/s", "nodes"],
    rows=[["cast|x", Cell("812.4 ±3.1", True), "15.0"], ["autoregressive", "501.0", BLANK]],
    records=[{"policy": "cast|x", "tokens": 812.41}, {"policy": "autoregressive", "tokens": None}],
    caption="concurrency 4",
    notes=["2 of 40 <requests> were rejected"],
    label="tab:four",
)
PAGE = [Title("a on b"), TABLE, Notes([("seeds", "0, 1")])]
ODD = ["[x]", "*", "a--b", "\x1b[31m", "%&$#_{}~^\\<>|", "±×–", "two\nlines", "{", "}}"]


def test_a_page_as_markdown():
    assert render(PAGE, "markdown") == (
        "## a on b\n\n### concurrency 4\n\n"
        "| policy | output tokens/s | nodes |\n| --- | ---: | ---: |\n"
        "| cast\\|x | **812.4 ±3.1** | 15.0 |\n| autoregressive | 501.0 | – |\n\n"
        "2 of 40 &lt;requests> were rejected\n\n- seeds: 0, 1\n\n"
    )


def test_a_page_as_latex():
    assert render(PAGE, "latex").splitlines() == [
        "% a on b", "", r"\begin{table}", r"\centering", r"\caption{concurrency 4}",
        r"\label{tab:four}", r"\begin{tabular}{lrr}", r"\toprule",
        r"policy & output tokens/s & nodes \\", r"\midrule",
        r"cast\textbar{}x & \textbf{812.4 $\pm$3.1} & 15.0 \\",
        r"autoregressive & 501.0 & -- \\", r"\bottomrule", r"\end{tabular}",
        r"\par{\footnotesize 2 of 40 \textless{}requests\textgreater{} were rejected}",
        r"\end{table}", "% seeds: 0, 1", "",
    ]  # fmt: skip


def test_csv_holds_raw_numbers_or_the_texts():
    again = list(csv.DictReader(io.StringIO(render([TABLE, TABLE], "csv"))))
    assert [row["tokens"] for row in again] == ["812.41", "", "812.41", ""]
    texts = Table(["a", "b\nc"], [["x", Cell("1", True)]])
    assert render([texts], "csv") == "a,b c\nx,1\n"
    assert render([Table(["a"], [], columns=["p", "q"])], "csv") == "p,q\n"


def test_a_terminal_gets_stars_in_a_pipe_and_a_sentence_for_no_rows(capsys):
    Table.emit(TABLE, "table")
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == "concurrency 4"
    assert ["cast|x", "812.4", "±3.1*", "15.0"] in [line.split() for line in lines]
    assert lines[-2:] == [
        "  2 of 40 <requests> were rejected",
        f"{'*':>10}  best mean of its column",
    ]
    assert render([Table(["a"], [], empty="none at all")], "table") == "none at all\n"
    assert "*" not in render([Table(["a", "b"], [["1", "2"]])], "table")


@pytest.mark.parametrize("width", [40, 60, 80, 160])
def test_no_word_is_broken_in_a_narrow_terminal(width):
    names = [f"metric\nnumber{at}" for at in range(8)]
    row = ["priced_survival", "3", *(f"{30104.1 + at} ±1.5" for at in range(8)), "measured"]
    table = Table(
        ["policy", "seeds", *names, "step time from"], [row, row], align="l" + "r" * 9 + "l",
        spare=range(2, 10),
    )  # fmt: skip
    lines = render([table], "table", width).splitlines()
    drawn = [line for line in lines if "not shown" not in line]
    shown = sum(f"number{at}" in " ".join(drawn) for at in range(8))
    assert max(map(len, drawn)) <= width
    assert shown >= 1
    assert (shown == 8) == (width == 160)
    assert all(word in " ".join(drawn).split() for word in ("policy", "seeds", "priced_survival"))
    lost = [line for line in lines if f"not shown in {width} columns" in line]
    assert len(lost) == (shown < 8)
    assert all(f"metric number{at}" in lost[0] for at in range(shown, 8) if lost)


@pytest.mark.parametrize("text", ODD)
def test_latex_is_balanced_and_every_special_character_is_escaped(text):
    """What TeX would read: braces and $ in pairs, as many cells in every row as columns, and no
    `[` or `*` behind a line break, which would be its option."""
    lines = render([Title(text), Table([text, "n"], [[text, Cell(text, True)]] * 2)], "latex")
    body = [line for line in lines.splitlines() if line and not line.startswith("%")]
    assert all(line.isprintable() and line.isascii() for line in body)
    rows = [re.findall(r"\\[A-Za-z]+|\\.|.", line) for line in body if line.endswith(r"\\")]
    assert len(rows) == 3
    known = {r"\textbf", r"\textbackslash", r"\textasciitilde", r"\textasciicircum"}
    known |= {r"\textless", r"\textgreater", r"\textbar", r"\pm", r"\times"}
    for row in rows:
        assert row.count("&") == 1
        assert row[-1] == r"\\"
        assert row[0] not in "[*"
        assert row.count("$") % 2 == 0
        depth = 0
        for token in row[:-1]:
            depth += {"{": 1, "}": -1}.get(token, 0)
            assert depth >= 0
            assert token not in "#%~^_<>|"
            assert len(token) < 3 or token in known
        assert depth == 0


@pytest.mark.parametrize("form", FORMATS)
def test_markup_in_names_is_text(form):
    assert "[bold]x[/bold]" in render([Table(["a"], [["[bold]x[/bold]"]])], form).replace(
        "{[}", "["
    ).replace("{]}", "]")
