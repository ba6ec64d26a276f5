"""Real checkpoints for the live engine: a hub target and a published one-pass drafter."""
