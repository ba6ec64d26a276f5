"""Sweeps: what one job does, wherever it runs, and what the process that started them all does.

`job` is what every launcher of Hydra's calls; `launch` stands between Hydra's sweeper and its
launcher, where finished runs are left out and failures get their one line. conf/SWEEPS.md is the
user's side.
"""
