"""Recording any live pair in the project's format: `python -m real_runner task=record`."""
