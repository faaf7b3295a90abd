"""A bound on what strangers make a server log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

PAUSE = 60.0        # seconds between two records of one text
TEXTS = 100         # that are told apart


class Rarely(logging.Filter):
    """Lets a record pass if none of its text did in the last PAUSE seconds. It then says how many
    did not."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._known: dict[str, tuple[float, int]] = {}      # when the next may pass; left out

    def filter(self, record: logging.LogRecord) -> bool:
        now, text = self._clock(), str(record.msg)
        due, left_out = self._known.get(text, (now, 0))
        if now < due:
            self._known[text] = due, left_out + 1
            return False
        if len(self._known) >= TEXTS:
            self._known.clear()
        self._known[text] = now + PAUSE, 0
        if left_out:
            record.msg = f"{text} ({left_out} more like this were not logged)"
        return True
