"""Reads result files; prints comparisons and draws figures. Never simulates, never fits."""
