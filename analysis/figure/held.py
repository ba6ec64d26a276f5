"""What is held against the truth: reliability diagrams, and predictions against live runs."""

from __future__ import annotations

from collections.abc import Iterator

from analysis.figure.parts import Drawing, Missing, file_name
from analysis.inputs import Inputs
from analysis.reliability import ENDING, caption_parts
from analysis.reliability_plots import draw_reliability
from analysis.validation import FILE_NAME
from analysis.validation_plots import NAME, validation_figure
from analysis.validation_text import MARKS, SHOWN, facts


def draw_reliabilities(inputs: Inputs) -> Iterator[Drawing]:
    """One figure per calibration."""
    if not inputs.calibrations:
        raise Missing(f"no *{ENDING} was given: python -m simulator task=calibrate writes one")
    for one in inputs.calibrations:
        sentence, remarks, notes = caption_parts(one)
        name = f"reliability.{file_name(one.name)}"
        yield Drawing(name, draw_reliability(one), sentence, remarks, notes)


def draw_validations(inputs: Inputs) -> Iterator[Drawing]:
    """One figure per validation."""
    if not inputs.validations:
        raise Missing(f"no {FILE_NAME} was given: python -m real_runner task=validate writes one")
    for one in inputs.validations:
        yield Drawing(NAME, validation_figure(one), SHOWN, MARKS, tuple(facts(one)))
