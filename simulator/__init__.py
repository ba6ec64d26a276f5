"""The discrete-event simulator of speculative-decoding verification policies."""
