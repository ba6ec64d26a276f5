"""Which policy to run, and with which settings, at a load (`task=recommend`).

Every candidate is tuned on the tuning split at that load, then all of them play the report split
over several seeds. The best is named together with those that cannot be told from it, with
intervals over prompts and over seeds, and with what the numbers rest on.
"""
