"""Latency profiles of a live pair on this machine: `python -m real_runner task=probe`.

A validation run can mix passes of its own with other work:

    probe = Probe(pair, drafter, settings)
    cells = probe.cells(grid)
    for index in range(passes):
        for cell in one_pass(cells, seed, index):
            samples[cell] = samples.get(cell, Samples()) + probe.measure(cell, warmup, repeats)
    cost = StepCost(profile_of(probe, samples), packing=settings.packing)
"""

from real_runner.probing.assemble import Rows, assemble
from real_runner.probing.grid import Cell, Grid, PrefillCell, StepCell, one_pass, share
from real_runner.probing.header import profile_of
from real_runner.probing.measure import DoesNotFit, Probe
from real_runner.probing.samples import Samples

__all__ = [
    "Cell",
    "DoesNotFit",
    "Grid",
    "PrefillCell",
    "Probe",
    "Rows",
    "Samples",
    "StepCell",
    "assemble",
    "one_pass",
    "profile_of",
    "share",
]
