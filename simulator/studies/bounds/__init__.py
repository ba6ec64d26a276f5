"""Hindsight bounds: what no policy can beat on a recording, because they know what is accepted.

O1 to O5 (`python -m simulator task=bounds`). All of them read hit ranks, which no policy is shown.
Above temperature 0 the hit ranks hold one realised sample of the target, and of the drafts of
sampled orders: the bounds then are clairvoyant about chance too, and no average over it.

Importing this loads numpy alone; numba is imported when a schedule is computed.
"""
