"""Keys of a terminal, one at a time, with the terminal's settings restored at the end."""

from __future__ import annotations

import os
import select
import string
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager

NAMES = {b"\x1b[A": "up", b"\x1b[B": "down", b"\x1bOA": "up", b"\x1bOB": "down",
         b"\x1b[5~": "page up", b"\x1b[6~": "page down", b"\r": "enter", b"\n": "enter",
         b"\x1b": "escape", b"\x7f": "backspace", b"\x08": "backspace"}
FINAL = b"~" + string.ascii_letters.encode()    # the last byte of a sequence
LONGEST = 16        # bytes of a sequence
REST = 0.05         # seconds that the rest of an escape sequence may take


class Keys:
    """Reads the keys of descriptor `number`. `ended` is True once it has reached its end."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._read = b""
        self.ended = False

    def wait(self, seconds: float) -> list[str]:
        """The keys of the next so many seconds; earlier if there are any."""
        if not self._read:
            self._fill(seconds)
        found = []
        while self._read:
            if self._read == b"\x1b":
                self._fill(REST)
            found.append(self._take())
        return [key for key in found if key]

    def _fill(self, seconds: float) -> None:
        if self.ended:
            time.sleep(seconds)
        elif select.select([self._number], [], [], seconds)[0]:
            data = os.read(self._number, 1024)
            self.ended = not data
            self._read += data

    def _take(self) -> str:
        """The first key: a name, a character, or "" for a sequence that means nothing here."""
        if self._read[:1] != b"\x1b" or len(self._read) == 1:
            text = self._read[:1]
            self._read = self._read[1:]
            return NAMES.get(text) or (text.decode() if b" " <= text < b"\x7f" else "")
        if self._read[1:2] not in (b"[", b"O"):     # Escape, and then another key
            self._read = self._read[1:]
            return "escape"
        length = 3
        most = min(len(self._read), LONGEST)
        while length < most and self._read[length - 1] not in FINAL:
            length += 1
        text, self._read = self._read[:length], self._read[length:]
        return NAMES.get(text, "")


@contextmanager
def keys() -> Iterator[Keys]:
    """The keys of standard input, unbuffered and without echo, if it is a terminal."""
    if not sys.stdin.isatty():
        silent = Keys(-1)
        silent.ended = True
        yield silent
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    try:
        tty.setcbreak(number)
        yield Keys(number)
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)
