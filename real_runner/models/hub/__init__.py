"""Real checkpoints for the live engine: a hub target and a published one-pass drafter.

Needs the `live` extra; transformers is loaded only when a checkpoint is asked for.
"""

from real_runner.models.hub.load import load_checkpoint_pair, load_drafter, load_target

__all__ = ["load_checkpoint_pair", "load_drafter", "load_target"]
