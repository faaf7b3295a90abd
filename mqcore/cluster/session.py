"""One sealed link between two nodes, without I/O: messages of a socket in, frames out.

A message on the network is one of these, by its first byte:

    1  a message of the Noise handshake (noise.py), three of them
    2  one frame, sealed
    3  refusal: this side does not hold a key that opens the first handshake message

Every sealed message is one Noise message. Both directions replace their key every REKEY messages;
the receiver counts the same messages, so nothing announces it. A message that does not open ends
the link, since something on the way has changed, repeated or lost one.

A frame over `WHOLE` bytes is cut into `Part` frames. Messages that are not cut wait in lines, short
ones apart from others. The frames that are cut, the lines and the tunnels of the link are sources,
which take turns (sources.py), and so many bytes of theirs are on their way as a window has
(window.py) until the receiver reports them `Taken`. Short messages may exceed it by `AHEAD`, and
be ahead of sources that wait by as much. So frames that carry no message, which never wait here,
have at most that much in front of them. A message counts `COST` bytes more than it has, since tiny
ones take time, too. Only publications keep their order: they have a line of their own, and wait in
it while one of them is being cut.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from operator import ge

from mqcore.cluster import frames
from mqcore.cluster.crypto import X25519PrivateKey
from mqcore.cluster.errors import KeyRejected, MalformedFrame, NoiseError
from mqcore.cluster.key import Key
from mqcore.cluster.noise import Cipher, Handshake
from mqcore.cluster.sources import Sources
from mqcore.cluster.window import LEAST, REPORT, Window

PROLOGUE = b"mqcore cluster 1"
SHAKE, SEALED, REFUSED = b"\x01", b"\x02", b"\x03"
REKEY = 1 << 20         # messages
WHOLE = 2 * frames.PART - 1024      # bytes of a frame that travels whole; longer ones are cut
SHORT = 4 << 10         # bytes of a message that goes ahead of others
AHEAD = LEAST           # bytes of short messages on their way while the window is full
ROW = 128               # bytes of memory that a message in a line takes besides its own
TURN = 8 << 10          # bytes that a line sends at its turn
COST = 256              # bytes that a message, a part, or a tunnel's data, counts more
HELD = 64 << 20         # bytes of unfinished large frames that a peer may have here
BULKS = 1024            # unfinished large frames, each way
BACKLOG = 16 << 20      # bytes of frames that wait to be cut here, and in each line
# by their tags, which is the second byte: what can be large or many, and is not of a tunnel
MESSAGES = frozenset(kind.__struct_config__.tag for kind in (
    frames.Request, frames.Reply, frames.Broadcast, frames.Survey, frames.Answer, frames.Publish))
NEWS = frozenset(kind.__struct_config__.tag for kind in (   # those of them that nobody answers
    frames.Broadcast, frames.Publish))
REQUEST = frames.Request.__struct_config__.tag


def number_of(request: bytes) -> int:
    """That of an encoded Request, as MessagePack has it."""
    head = request[2]
    return head if head < 0x80 else int.from_bytes(request[3:3 + (1 << head - 0xcc)], "big")


class Line:
    """Messages that wait, in their order. entered: it is among the sources, perhaps empty since.
    added: how many have ever waited. unwanted: requests in it that have been withdrawn."""

    __slots__ = ("added", "bytes", "entered", "frames", "unwanted")

    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.added = self.bytes = self.unwanted = 0
        self.entered = False

    def pop(self) -> bytes:
        data = self.frames.popleft()
        self.bytes -= len(data) + ROW
        return data

    def clear(self) -> int:
        """How many there were that are wanted."""
        count = len(self.frames) - self.unwanted
        self.frames.clear()
        self.bytes = self.unwanted = 0
        self.entered = False
        return count


class Session:
    """`send_raw(data)` writes one message to the network and never blocks. It returns False if the
    connection is over. `feed_later` and `full`: see sources.py. `receive` takes one message from
    the network and returns the frame in it. After an error other than KeyRejected from `receive`
    the session is over."""

    def __init__(self, initiator: bool, key: Key, static: X25519PrivateKey,
                 send_raw: Callable[[bytes], bool | None],
                 feed_later: Callable[[], None] | None = None,
                 full: Callable[[], bool] = lambda: False) -> None:
        psks = key.psks()
        self._shake: Handshake | None = Handshake(initiator, psks[0] if initiator else psks,
                                                  static, PROLOGUE)
        self._send_raw = send_raw
        self.window = Window()
        self.sources = Sources(self.window, feed_later, full)
        self._out: Cipher | None = None
        self._in: Cipher | None = None
        self.initiator = initiator
        self.remote: bytes | None = None        # the peer's static public key, once ready
        self.bytes_out = self.bytes_in = self.frames_out = self.frames_in = 0
        self._bulk_id = 0
        # numbers of large frames that are being sent, and whether each is of the news
        self._bulks: dict[int, bool] = {}
        self._publishing = 0                    # the number of a publication among them, or 0,
        self._waited = False                    # and whether that one was in a line before
        self._cut_bytes = 0                     # of large frames
        self._lines = self._short, self._long, self._topics = Line(), Line(), Line()
        self._requests: dict[int, Line] = {}    # by number: those in lines that are still wanted,
        # and those that are being cut: the size of each, what is left, and who sends it
        self._large: dict[int, tuple[int, list[memoryview], partial[bool]]] = {}
        self._large_of: dict[int, int] = {}     # their numbers by that of the large frame
        self._marked = False                    # mark() has been called
        self._partial: dict[int, bytearray] = {}
        self._held = 0
        self._taken = 0

    @property
    def ready(self) -> bool:
        return self._out is not None

    @property
    def assembles(self) -> bool:
        """Whether parts of a frame have come, and not its end."""
        return bool(self._partial)

    def start(self) -> None:
        """The initiator's first message."""
        assert self._shake is not None
        self._send_raw(SHAKE + self._shake.write_message())

    # -- in ----------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> frames.Frame | None:
        """Take one message. Returns the frame in it, if it completes one. Raises KeyRejected,
        NoiseError, MalformedFrame."""
        cipher = self._in
        if cipher is not None and data[:1] == SEALED:
            plain = cipher.decrypt(b"", data[1:])
            if not cipher.nonce % REKEY:
                cipher.rekey()
            size = len(plain)
            self.bytes_in += size
            self.frames_in += 1
            frame = frames.decode(plain)
            if plain[1] in MESSAGES:
                self._taken += size + COST
                if self._taken >= REPORT:
                    self._report()
                return frame
            kind_of = type(frame)
            if kind_of is frames.Part:
                return self._part(frame)  # type: ignore[arg-type]
            if kind_of is frames.Data:
                self._count(size)
                return frame
            if kind_of is frames.Taken:
                self.window.took(frame.size, frame.at / 1e6)  # type: ignore[attr-defined]
                self.sources.feed()
                return None
            return frame
        if self._shake is None:
            raise MalformedFrame("a peer's message is not sealed")
        kind = data[:1]
        if kind == SHAKE:
            self._shaken(data[1:])
        elif kind == REFUSED and self.initiator:
            raise KeyRejected("the peer does not hold this cluster's key")
        else:
            raise MalformedFrame("a peer's bytes are no handshake of a cluster")
        return None

    def _shaken(self, data: bytes) -> None:
        shake = self._shake
        assert shake is not None
        first = not self.initiator and shake.remote_static is None and not self._heard
        try:
            shake.read_message(data)
        except NoiseError as error:
            if first and error.reason == "authentication":
                self._send_raw(REFUSED)
                raise KeyRejected("the peer does not hold this cluster's key") from None
            raise
        self._heard = True
        if not shake.done:
            self._send_raw(SHAKE + shake.write_message())
        if shake.done:
            self._out, self._in = shake.split()
            self.remote, self._shake = shake.remote_static, None

    _heard = False

    def _part(self, part: frames.Part) -> frames.Frame | None:
        size = len(part.body)
        whole = self._partial.get(part.bulk)
        if whole is None:
            if len(self._partial) >= BULKS:
                raise MalformedFrame(f"a peer has more than {BULKS} unfinished frames")
            whole = self._partial[part.bulk] = bytearray()
        if part.last and not size:      # it has been withdrawn
            self._held -= len(self._partial.pop(part.bulk))
            self._count(0)
            return None
        self._held += size
        if self._held > HELD + frames.BODY:
            raise MalformedFrame(f"a peer's unfinished frames have more than {HELD} bytes")
        whole += part.body
        self._count(size)
        if not part.last:
            return None
        del self._partial[part.bulk]
        self._held -= len(whole)
        return frames.decode(bytes(whole))

    def _count(self, size: int) -> None:
        self._taken += size + COST
        if self._taken >= REPORT:       # not each last part: a peer may send tiny ones
            self._report()

    def _report(self) -> None:
        self.send(frames.Taken(self._taken, time.monotonic_ns() // 1000))
        self._taken = 0

    # -- out ---------------------------------------------------------------------------------------

    def send(self, frame: frames.Frame, at_once: bool = False) -> bool:
        """Send a frame. at_once: it is small, and waits for nothing. False: too much of the kind
        waits already, or the handshake is not over, and it has not been sent."""
        return self._out is not None \
            and self.send_encoded(frames.encode(frame), type(frame) is frames.Publish, at_once)

    def send_encoded(self, data: bytes, publishes: bool = False, at_once: bool = False) -> bool:
        """send(). publishes: it is a publication."""
        if self._out is None:
            return False
        size, tag, news = len(data), data[1], False
        if size > WHOLE:
            return self._send_large(data, publishes)
        if tag in MESSAGES:
            cost, news = size + COST, tag in NEWS
            line = self._topics if publishes else self._short if size <= SHORT else self._long
            if at_once:
                self.window.send(cost, news)
            elif line.frames or publishes and self._publishing or not (
                    self.window.takes(cost, news) or self.sources.ahead(cost, AHEAD, news)
                    if size <= SHORT else self._takes(cost, news)):
                return self._wait(line, data)
        if not self._seal(data) and news:
            self.window.unsend()
        return True

    def _takes(self, cost: int, news: bool) -> bool:
        return not self.sources and self.sources.open and self.window.takes(cost, news)

    def _wait(self, line: Line, data: bytes) -> bool:
        cost = len(data) + ROW
        if line.frames and line.bytes + cost > BACKLOG:
            return False
        if data[1] == REQUEST:
            self._requests[number_of(data)] = line
        line.frames.append(data)
        line.bytes += cost
        line.added += 1
        if not line.entered and not (line is self._topics and self._publishing):
            self._enter(line)
            self.sources.feed()
        return True

    def _enter(self, line: Line) -> None:
        line.entered = True
        self.sources.enter_line(partial(self._step, line))

    def _step(self, line: Line) -> bool:
        """It is the line's turn. Returns whether it takes the next one."""
        size = 0
        while (not size or size < TURN and self.sources.open) and self._first(line):
            data = line.frames[0]
            if len(data) > WHOLE:
                line.pop()
                self._cut(data, True)   # until all of it has been sent
                self._waited = True
                break
            size += len(data) + COST
            if not self._send_next(line):
                line.entered = False    # the connection is over
                return False
        line.entered = self._first(line)
        return line.entered

    def _first(self, line: Line) -> bool:
        """Whether the line has a message to send now, which is the first one then."""
        if line is self._topics and self._publishing:
            return False
        while line.frames and line.unwanted and not self._wanted(line.frames[0]):
            line.unwanted -= 1
            line.pop()
        return bool(line.frames)

    def _wanted(self, data: bytes) -> bool:
        return data[1] != REQUEST or number_of(data) in self._requests

    @property
    def unsent(self) -> list[int]:
        """The numbers of requests that have not been sent whole."""
        return [*self._requests, *self._large]

    def withdraw(self, number: int) -> bool:
        """A request is not wanted any more. Whether it will not be sent, or no more of it."""
        line = self._requests.pop(number, None)
        if line is None:
            return self._withdraw_large(number)
        line.unwanted += 1
        # others have their place when these are half of all; a mark counts on their number
        if 2 * line.unwanted > len(line.frames) and not self._marked:
            line.frames = deque(filter(self._wanted, line.frames))
            line.bytes, line.unwanted = sum(map(len, line.frames)) + ROW * len(line.frames), 0
        return True

    def _withdraw_large(self, number: int) -> bool:
        if number not in self._large:
            return False
        size, rest, source = self._large.pop(number)
        left, bulk = rest.pop(), source.args[1]
        self.sources.cut.discard(source)
        self._cut_bytes -= len(left)
        del self._bulks[bulk], self._large_of[bulk]
        if len(left) < size and self._seal(frames.encode(frames.Part(bulk, b"", True))):
            self.window.send(COST)
        self.sources.feed_soon()
        return True

    def _send_next(self, line: Line) -> bool:
        """Whether the first one has been sent: else it is still there, to be counted."""
        data = line.frames[0]
        if not self._seal(data):
            return False
        self.window.send(len(data) + COST, data[1] in NEWS)
        if data[1] == REQUEST:
            self._requests.pop(number_of(data), None)
        line.pop()
        return True

    def hurry(self) -> None:
        """Send the messages that are not cut and wait, whether or not the window has room."""
        for line in self._lines:
            while self._first(line) and len(line.frames[0]) <= WHOLE:
                if not self._send_next(line):
                    return

    def _send_large(self, data: bytes, publishes: bool) -> bool:
        if publishes and (self._publishing or self._topics.frames):
            return self._wait(self._topics, data)
        if self._cut_bytes and self._cut_bytes + len(data) > BACKLOG \
                or len(self._bulks) >= BULKS:
            return False
        self._cut(data, publishes)
        self.sources.feed()
        return True

    def _cut(self, data: bytes, publishes: bool) -> None:
        self._bulk_id += 1
        self._cut_bytes += len(data)
        self._bulks[self._bulk_id] = data[1] in NEWS
        source = partial(self._send_part, [memoryview(data)], self._bulk_id)
        if data[1] == REQUEST:
            number = number_of(data)
            self._large[number] = len(data), source.args[0], source
            self._large_of[self._bulk_id] = number
        self.sources.enter_cut(source)
        if publishes:
            self._publishing, self._waited = self._bulk_id, False

    def give_up(self) -> int:
        """Nothing more will be sent. Returns the number of frames that were not sent whole."""
        count = len(self._bulks) + sum(line.clear() for line in self._lines)
        self.sources.clear()
        self._bulks.clear()
        self._requests.clear()
        self._large.clear()
        self._large_of.clear()
        self._cut_bytes = self._publishing = 0
        return count

    @property
    def holds_news(self) -> bool:
        """Whether something that nobody answers has not been sent whole."""
        return any(self._bulks.values()) \
            or any(data[1] in NEWS for line in self._lines for data in line.frames)

    def mark(self) -> tuple[int, ...]:
        """What has been given to it so far, for has_sent()."""
        self._marked = True
        return self._bulk_id, *(line.added for line in self._lines)

    def has_sent(self, mark: tuple[int, ...]) -> bool:
        """All of that, whatever has been given to it since."""
        last, *ends = mark
        sent = [line.added - len(line.frames) for line in self._lines]
        sent[-1] -= bool(self._publishing) and self._waited     # the topics' line
        return all(map(ge, sent, ends)) and not any(number <= last for number in self._bulks)

    @property
    def waiting(self) -> int:
        """Bytes of messages that have not been sent."""
        return self._cut_bytes + self._short.bytes + self._long.bytes + self._topics.bytes

    def reserve(self, frame: frames.Data) -> bytes:
        """Of a tunnel, whose turn it is: for send_reserved(), or release()."""
        data = frames.encode(frame)
        self.window.reserve(len(data) + COST)
        return data

    def send_reserved(self, data: bytes) -> None:
        self.window.spend(len(data) + COST)
        self._seal(data)

    def release(self, data: bytes) -> None:
        """It will not be sent."""
        self.window.give_back(len(data) + COST)
        self.sources.feed_soon()

    def _send_part(self, rest: list[memoryview], number: int) -> bool:
        left = rest.pop()
        piece, more = left[:frames.PART], len(left) > frames.PART
        if more:
            rest.append(left[frames.PART:])
        if not self._seal(frames.encode(frames.Part(number, bytes(piece), not more))):
            rest[:] = [left]            # give_up() counts it
            return False
        self.window.send(len(piece) + COST, not more and self._bulks.pop(number, False))
        self._cut_bytes -= len(piece)
        if not more and number in self._large_of:
            self._large.pop(self._large_of.pop(number), None)
        if number == self._publishing and not more:
            self._publishing = 0
            if self._topics.frames and not self._topics.entered:
                self._enter(self._topics)
        return more

    def _seal(self, plain: bytes) -> bool:
        """False: the connection is over."""
        cipher = self._out
        assert cipher is not None
        self.bytes_out += len(plain)
        self.frames_out += 1
        sent = self._send_raw(SEALED + cipher.encrypt(b"", plain)) is not False
        if not cipher.nonce % REKEY:
            cipher.rekey()
        return sent
