"""The live engine: a target and a drafter under continuous batching, one step after another."""
