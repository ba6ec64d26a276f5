"""One policy against many, each at its best, at many loads (`task=tournament`).

Rivals are tuned per load on the tuning split; everything reported is of the report split. Every
policy serves the same prompts in the same order, and ratios carry paired intervals over prompts.
"""
