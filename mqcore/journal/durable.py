"""The file `durable`: up to where the writer has synced its partition, for readers that hand out
nothing else. FORMAT.md has the bytes.

The writer overwrites it in place after each sync (`log_show()`), and does not sync it: what it says
was true before it was written. If it is missing, torn or of another journal, the blocks' headers
say the same, one block later.
"""

from __future__ import annotations

import struct
from pathlib import Path

from mqcore.journal.core import checksum

NAME = "durable"
_FORM = struct.Struct("<16sqI4x")
TRIES = 3               # the writer may be writing it


def read_durable(folder: Path, journal: bytes) -> int:
    """The offset below which all is durable; 0: the file does not say."""
    try:
        with open(folder / NAME, "rb", buffering=0) as file:
            for _ in range(TRIES):
                file.seek(0)
                raw = file.read(_FORM.size)
                if len(raw) < _FORM.size:
                    return 0
                whose, offset, crc = _FORM.unpack(raw)
                if crc == checksum(raw[:24]):
                    return int(offset) if whose == journal else 0
    except OSError:
        pass
    return 0
