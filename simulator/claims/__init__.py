"""Claims of the field, checked on recordings (`task=claims`).

Every claim is a ratio with the favoured side on top, so it is confirmed where the 95 % interval
over prompts lies above 1, refuted where it lies below, and otherwise not decided.
"""
