"""Serving requests live: the same policies, ledger and metrics as the simulator's."""
