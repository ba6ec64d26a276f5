"""Imports as a user starts them, for their tests: one file in the working folder, one result."""

from __future__ import annotations

import json
from pathlib import Path

from traces.__main__ import main

RESULT = {  # of vLLM's serving benchmark
    "date": "20260101-000000",
    "backend": "vllm",
    "model_id": "some-8b",
    "num_prompts": 10,
    "request_rate": "inf",
    "burstiness": 1.0,
    "max_concurrency": 4,
    "duration": 12.5,
    "completed": 10,
    "failed": 0,
    "request_throughput": 0.8,
    "output_throughput": 400.0,
    "total_token_throughput": 700.0,
    "request_goodput": None,
    "mean_ttft_ms": 50.0,
    "median_tpot_ms": 16.0,
    "p99_tpot_ms": 30.0,
    "spec_decode_acceptance_length": 2.5,
    "max_concurrent_requests": 5,
    "errors": ["", ""],
}


def imported(format_name: str, content, *words: str, name="in.json", out="points.json") -> int:
    """Exit status of importing `content`, a text or what JSON or a file of torch holds."""
    if name.endswith(".pt"):
        import torch

        torch.save(content, name)
    else:
        text = content if isinstance(content, str) else json.dumps(content)
        Path(name).write_text(text, encoding="utf-8")
    return main(["import", format_name, name, "--out", out, *words])


def refusal(
    capsys, format_name: str, content, *words: str, name="in.json", out="points.json"
) -> str:
    """The one line that refuses `content`; nothing is left but the source."""
    before = set(Path().iterdir()) | {Path(name)}
    assert imported(format_name, content, *words, name=name, out=out) == 2
    printed, err = capsys.readouterr()
    assert printed == ""
    assert set(Path().iterdir()) == before
    (line,) = err.splitlines()
    assert "accepted" in line
    return line
