"""Comparisons and validations in tables and sentences."""
