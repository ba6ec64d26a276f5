"""Recordings: the formats, readers, validation and catalogue of what was measured.

Depends on numpy and safetensors alone; nothing here imports torch or matplotlib.
"""

from traces.catalog import find_recording, known_recordings
from traces.errors import InputError
from traces.io import read_recording, write_recording
from traces.recording import Recording

__all__ = [
    "InputError",
    "Recording",
    "find_recording",
    "known_recordings",
    "read_recording",
    "write_recording",
]
