"""One direction each way of a tunnel, without I/O: credit, messages, and what a broken link lost.

Each side announces a window: the bytes that it is ready to receive. A sender spends credit for each
piece of a message and waits when none is left; the receiver returns it as the application takes
messages. While the application waits and nothing else is queued, pieces of an unfinished message
are returned at once, so a message may be longer than the window. A receiver thus holds one window
and one unfinished message.

A sender holds each piece until its credit comes back, so that it can send it again over another
link. Both sides count the pieces: the receiver names the number that it has had, so none is lost
and none comes twice.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from mqcore.cluster import frames
from mqcore.cluster.errors import MalformedFrame

WINDOW = 2 << 20        # bytes that one end is ready to receive
PIECE = frames.PART     # bytes of a message in one frame
MESSAGE = frames.BODY   # bytes of a message
PIECE_COST = 64         # bytes that a piece costs besides its own


class Flow:
    """One end of a tunnel, without I/O. A piece costs its bytes and PIECE_COST more, so that empty
    messages are bounded, too."""

    def __init__(self, window: int = WINDOW, message: int = MESSAGE) -> None:
        self.window = window
        self.message = message
        self.credit = 0             # bytes that we may send; below 0 after the last piece that went
        self.room = window          # bytes that the peer may send
        self.messages: deque[tuple[bytes, int]] = deque()       # and the credit each has taken
        self.partial = bytearray()
        self.taken = 0              # credit that the unfinished message has taken
        self.owed = 0               # credit to be returned
        self.eof_in = self.eof_out = False
        self.sent = self.received = 0       # messages
        self.spent = self.acked = 0         # credit that we have spent, and that came back
        self.returned = 0                   # credit that we have returned
        self.pieces_in = self.pieces_out = 0
        self.ring: deque[tuple[int, Any]] = deque()     # what was spent after a piece, the piece
        self.end_seen = False               # the peer has had our end, and all before it

    def data(self, body: bytes, end: bool) -> None:
        """A piece came. Raises MalformedFrame if the peer had no credit for it."""
        if self.room <= 0 or self.eof_in:
            raise MalformedFrame("a peer sends more into a tunnel than it may")
        self.room -= len(body) + PIECE_COST
        self.pieces_in += 1
        if len(self.partial) + len(body) > self.message:
            raise MalformedFrame(f"a message in a tunnel has more than {self.message} bytes")
        self.taken += len(body) + PIECE_COST
        if not end:
            self.partial += body
            self._return_early()
            return
        if self.partial:
            self.partial += body
            body, self.partial = bytes(self.partial), bytearray()
        self.messages.append((body, self.taken))
        self.taken = 0
        self.received += 1

    def take(self) -> bytes:
        message, taken = self.messages.popleft()
        self.owed += taken
        self._return_early()
        return message

    def _return_early(self) -> None:
        if not self.messages:
            self.owed += self.taken
            self.taken = 0

    def grant(self) -> int:
        """Credit to return now: a quarter of the window or more, or 0."""
        if self.owed < self.window // 4:
            return 0
        granted, self.owed = self.owed, 0
        self.room += granted
        self.returned += granted
        return granted

    def granted(self, window: int) -> None:
        """The peer's window. A sender holds what it may send, so it takes no more than its own,
        and a receiver returns credit before a sender with a smaller window has spent all."""
        self.window = self.credit = min(window, self.window)

    def credited(self, size: int) -> None:
        """The peer has returned credit. It does so in order: the first pieces have arrived. It
        cannot return more than was spent. Raises MalformedFrame."""
        if self.acked + size > self.spent:
            raise MalformedFrame("a peer returns more credit than a tunnel has spent")
        self.credit += size
        self.acked += size
        while self.ring and self.ring[0][0] <= self.acked:
            self.ring.popleft()

    def spend(self, size: int) -> bool:
        """Whether a piece may go. As long as any credit is left, one may."""
        if self.credit <= 0:
            return False
        self.credit -= size + PIECE_COST
        self.spent += size + PIECE_COST
        return True

    def keep(self, piece: Any) -> None:
        """A piece goes: hold it until its credit comes back. No more than one window and a piece
        are held."""
        self.pieces_out += 1
        self.ring.append((self.spent, piece))

    def resumed(self, pieces: int, returned: int) -> None:
        """The peer has had so many pieces and returned so much credit: what is left in the ring is
        what it lacks. Raises MalformedFrame."""
        lacking = self.pieces_out - pieces
        if not 0 <= lacking <= len(self.ring) or not self.acked <= returned <= self.spent:
            raise MalformedFrame("a peer resumes a tunnel with numbers that cannot be")
        while len(self.ring) > lacking:
            self.ring.popleft()
        self.credited(returned - self.acked)
        # what comes back has been received: the ring must still hold all that is lacking
        if len(self.ring) != lacking:
            raise MalformedFrame("a peer resumes a tunnel with numbers that cannot be")
