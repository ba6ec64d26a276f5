"""Latency profiles of a live pair on this machine: `python -m real_runner task=probe`.

A validation run can mix passes of its own with other work:

    probe = Probe(pair, drafter, settings)
    cells = probe.cells(grid)
    for index in range(passes):
        for cell in one_pass(cells, seed, index):
            samples[cell] = samples.get(cell, Samples()) + probe.measure(cell, warmup, repeats)
    cost = StepCost(profile_of(probe, samples), packing=settings.packing)
"""
