"""Tables as LaTeX: what TeX would read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analysis.__main__ import main
from tests.figure_cases import summary, write_run


def _runs(folder: Path, *runs: dict) -> Path:
    for run in runs:
        write_run(folder, run)
    return folder


def test_latex_needs_no_package_and_prints_names_as_they_are(tmp_path, capsys):
    folder = _runs(
        tmp_path,
        summary("autoregressive", 100.0),
        summary("my_50%_{policy}&co\\", 150.0),
        summary("my_50%_{policy}&co\\", 170.0, seed=1),
    )
    words = ["--no-figures", "--format", "latex", "--metric", "output_throughput,speedup"]
    assert main([str(folder), *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    body = [line for line in lines if line and not line.startswith("%")]
    assert body[:3] == [
        r"\begin{tabular}{lrrrl}",
        r"\hline",
        r"policy & seeds & output tokens/s & speedup & step time from \\",
    ]
    assert body[4] == r"autoregressive & 1 & 100.0 & 1.000 & measured \\"
    name = r"my\_50\%\_\{policy\}\&co\textbackslash{}"
    # 160 in the mean, 12.706 x 14.142 / sqrt(2) around it; one seed has a baseline.
    ours = rf"{name} & 2 & \textbf{{160.0 $\pm$127.1}} & \textbf{{1.500 (n=1)}} & measured \\"
    assert body[5] == ours
    assert body[6:] == [r"\hline", r"\end{tabular}"]
    assert "% recording: small (abababababab), domains code, chat" in lines
    assert "usepackage" not in "".join(lines)


ODD = ["[x]", "*", "a--b", "\x1b[31m", "%&$#_{}~^\\<>|", "±×–", "two\nlines", "{", "}}"]


def _tokens(line: str) -> list[str]:
    """A line of LaTeX: commands, escaped characters, and single characters."""
    return re.findall(r"\\[A-Za-z]+|\\.|.", line)


@pytest.mark.parametrize("name", ODD)
def test_latex_is_balanced_and_every_special_character_is_escaped(tmp_path, capsys, name):
    """What TeX would read: braces and $ in pairs, as many cells in every row as columns, and no
    `[` or `*` behind a line break, which would be its option."""
    folder = _runs(
        tmp_path,*(summary(policy, 9.0, trace={"recording": name, "content_hash": "ab"})
                    for policy in (name, "autoregressive")))  # fmt: skip
    assert main([str(folder), "--no-figures", "--format", "latex"]) == 0
    lines = capsys.readouterr().out.splitlines()
    body = [line for line in lines if line and not line.startswith("% ")]
    assert all(line.isprintable() and line.isascii() for line in body)
    columns = re.fullmatch(r"\\begin\{tabular\}\{([lr]+)\}", body[0])[1]
    assert body[-1] == r"\end{tabular}"
    rows = [_tokens(line) for line in body[1:-1] if line != r"\hline"]
    for row in rows:
        assert row[-1] == r"\\"
        assert row.count("&") == len(columns) - 1
        assert row[0] not in "[*"
        assert row.count("$") % 2 == 0
        depth = 0
        for token in row[:-1]:
            depth += {"{": 1, "}": -1}.get(token, 0)
            assert depth >= 0
            assert token not in "#%~^_<>|"
            known = (r"\textbf", r"\textbackslash", r"\textasciitilde", r"\textasciicircum",
                     r"\textless", r"\textgreater", r"\textbar", r"\pm", r"\times")  # fmt: skip
            assert len(token) < 3 or token in known
        assert depth == 0
    assert len(rows) == 3  # names of columns, two policies
