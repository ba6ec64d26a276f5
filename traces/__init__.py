"""Recordings: the formats, readers, validation and catalogue of what was measured.

Depends on numpy and safetensors alone; nothing here imports torch or matplotlib.
"""

from traces.common.errors import InputError
from traces.recordings.catalog import find_recording, known_recordings
from traces.recordings.files import read_recording, write_recording
from traces.recordings.recording import Recording

__all__ = [
    "InputError",
    "Recording",
    "find_recording",
    "known_recordings",
    "read_recording",
    "write_recording",
]
