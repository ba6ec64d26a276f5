"""Verification policies: one policy, one file, one YAML of the same name in ``conf/policy``."""
