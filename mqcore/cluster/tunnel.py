"""Tunnels: an ordered stream of messages each way between two nodes, with credit and half-close.

A tunnel belongs to two nodes and not to a link. When the link breaks, the side that has opened the
tunnel attaches it to the next link to the same member. Each side tells how many pieces of messages
it has had, the other side sends the rest again, and both go on.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Self

from mqcore.binding.sleep import Nap
from mqcore.binding.yielding import fair
from mqcore.cluster import frames
from mqcore.cluster.checks import ends_at, said_by, view_of
from mqcore.cluster.errors import TunnelClosed
from mqcore.cluster.flow import MESSAGE, PIECE, Flow
from mqcore.errors import RecvTimeout, SendTimeout, StateError, UsageError
from mqcore.trace import TraceContext

if TYPE_CHECKING:
    from mqcore.cluster.directory import Member
    from mqcore.cluster.link import Way
    from mqcore.cluster.node import Core

ARRIVAL = 1.0           # seconds that aclose() waits for the other side, besides those to resume
OTHERS = 10.0           # seconds that it waits for messages of other tasks that are being sent


class Tunnel:
    """One end of a tunnel, for the application. Messages keep their boundaries.

    `asend` waits while the other side is slow. `asend_eof` ends this direction and leaves the other
    open. Iteration yields messages until the other side has sent all; `arecv` raises TunnelClosed
    with the reason "eof" then. Leaving `async with` closes the tunnel. Every call has a blocking
    twin without the a, for other threads than the loop's.

    If the link breaks, the tunnel waits up to `resume` seconds for another one and goes on there.
    Messages are neither lost nor repeated. After that it raises TunnelClosed with the reason
    "lost".
    """

    def __init__(self, node: Core, link: Way, stream: int, opener: bool, service: str,
                 resume: float = 0.0) -> None:
        self._node = node
        self._link: Way | None = link       # None while there is none
        self.resume = resume
        self._attached = True       # the link carries messages
        self._disarm: Any = None    # ends the wait for another link
        self._attempt = 0           # how often the opener has tried one
        self._replayed = 0          # the last attempt that was answered
        self._stream = stream
        self._opener = opener
        self.service = service
        self.trace_context: TraceContext | None = None      # what the opener's trace was
        assert link.member is not None
        self.peer: Member = link.member
        self._flow = Flow(node.tunnels.window())
        self._readers: list[Nap] = []
        self._writers: list[Nap] = []
        self._enders: list[Nap] = []        # of who waits for the end alone
        self._sending = False       # a task has the turn to send
        self._senders: deque[Nap] = deque()     # tasks that wait for it, in order
        self._message: memoryview | None = None     # what is left of the one that is being sent
        self._begun = False         # a piece of it has been sent
        self._calling = False       # asend() runs, and does not wait
        self._granted: tuple[frames.Data, Any] | None = None    # its last piece, whose turn it is
        self._again: deque[frames.Data] = deque()   # pieces that the other side lacks
        self._entered = False       # it waits for its turn at its link
        self._open = False
        self._ended: TunnelClosed | None = None
        self._own_end = False       # this side has closed it

    def __repr__(self) -> str:
        state = "closed" if self._ended else "opening" if not self._open else \
            "open" if self._attached else "waiting for a link"
        return f"<Tunnel to {self.service!r} at {self.peer.id[:8]}, {state}>"

    @property
    def closed(self) -> bool:
        return self._ended is not None

    @property
    def _arrived(self) -> bool:
        """Whether all that was sent here, and its end, is at the other side, or never will be."""
        return self.closed or (self._flow.eof_out and self._flow.end_seen)

    # -- calls -------------------------------------------------------------------------------------

    async def asend(self, data: bytes, *, timeout: float | None = None) -> None:
        """Send one message of up to 64 MiB. Raises TunnelClosed, and SendTimeout while the other
        side takes nothing; a message that was begun is then lost, and the tunnel closed."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise UsageError(f"a message must be bytes, not {type(data).__name__}")
        view = view_of(data)
        if not view.c_contiguous:       # every second byte of something, say
            view = memoryview(bytes(view))
        view = view.cast("B")
        if len(view) > MESSAGE:
            raise UsageError(f"a message of {len(view)} bytes, {MESSAGE} is the limit")
        limit = ends_at(timeout)
        await self._line_up(limit)
        try:
            await fair()
            self._check_out()
            self._message, self._begun = view, False
            self._calling = True
            self._go()
            self._calling = False
            while self._message is not None:
                self._check_out()
                if self._granted is not None:
                    self._send_granted(*self._granted)
                else:
                    await self._turn(limit)
        finally:
            self._give_back()
            unsent, self._message = self._message, None
            self._calling = False
            if unsent is not None and self._begun:
                self.reset("cancelled", "a message was given up half-way")
            self._hand_on()

    async def _line_up(self, limit: float | None) -> None:
        """Wait until no other task sends, first come, first served. _hand_on() is due then."""
        if not self._sending:
            self._sending = True
            return
        nap = self._node.loop.nap()
        self._senders.append(nap)
        try:
            if not await nap.wait(limit) and nap in self._senders:
                raise SendTimeout("another message waits to be sent")
        except BaseException:
            if nap in self._senders:
                self._senders.remove(nap)
            else:           # the turn came when it was cancelled
                self._hand_on()
            raise

    def _hand_on(self) -> None:
        if self._senders:
            self._senders.popleft().wake()
        else:
            self._sending = False

    async def _turn(self, limit: float | None) -> None:
        try:
            await self._wait(self._writers, limit, SendTimeout(
                f"{self!r}: the other side takes nothing"))
        except SendTimeout:
            if self._granted is None and self._message is not None:
                raise

    async def arecv(self, *, timeout: float | None = None) -> bytes:
        """The next message. Raises TunnelClosed after the last one, and RecvTimeout."""
        limit = ends_at(timeout)
        await fair()
        flow = self._flow
        while not flow.messages:
            if flow.eof_in:
                raise TunnelClosed("the other side has sent all", reason="eof")
            if self._ended is not None:
                raise self._ended
            await self._wait(self._readers, limit, RecvTimeout(f"{self!r}: no message arrived"))
        message = flow.take()
        self._grant()
        return message

    async def asend_eof(self) -> None:
        """Tell the other side that nothing follows. Idempotent."""
        await self._asend_eof(None)

    async def _asend_eof(self, limit: float | None) -> None:
        await self._line_up(limit)
        try:
            if not self._flow.eof_out and self._ended is None:
                self._flow.eof_out = True
                if self._attached:      # else it follows what is sent again
                    self._send(frames.End(self._stream, self._opener))
                self._maybe_over()
        finally:
            self._hand_on()

    async def aclose(self) -> None:
        """Send what is being sent, for 10 s at most, then close both directions. With `resume`,
        wait until all has arrived. Idempotent."""
        if self._node.loop.inherited:
            return
        try:
            await self._asend_eof(time.monotonic() + OTHERS)
            limit = time.monotonic() + self.resume + ARRIVAL
            while self.resume and self._ended is None and not self._flow.end_seen:
                await self._wait(self._writers, limit, SendTimeout())
        except SendTimeout:
            pass
        except BaseException:       # cancelled: nothing is left open
            self.reset()
            raise
        if self._ended is None:
            self._unseen()
            self._own_end = True
            self._end(TunnelClosed("this tunnel is closed", reason="closed"), tell=True)

    def reset(self, reason: str = "closed", text: str = "") -> None:
        """Close at once: the other side gets TunnelClosed with this reason."""
        if not isinstance(reason, str) or not isinstance(text, str):
            raise UsageError("the reason and the text of a reset are texts")
        if self._ended is None:
            self._send(frames.Reset(self._stream, self._opener, said_by(reason)[:frames.NAME],
                                    said_by(text)))
            self._own_end = True
            self._end(TunnelClosed(text or "this tunnel is closed", reason=reason))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            await self.aclose()
        else:
            await self._fail(error)

    async def _fail(self, error: BaseException) -> None:
        """Its user could not go on: the other side must not take what it has for all."""
        if not self._node.loop.inherited:
            self.reset("fault" if isinstance(error, Exception) else "cancelled",
                       f"{type(error).__name__}: {said_by(error)}")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            try:
                message = await self.arecv()
            except TunnelClosed as closed:
                if self._is_all(closed):
                    return
                raise
            yield message

    def _is_all(self, closed: TunnelClosed) -> bool:
        """Whether nothing is missing: the other side has sent all, or this one wanted no more."""
        return closed.reason == "eof" or closed.reason == "closed" and self._own_end

    # -- the same, blocking ------------------------------------------------------------------------

    def send(self, data: bytes, *, timeout: float | None = None) -> None:
        self._node.loop.call(lambda: self.asend(data, timeout=timeout))

    def recv(self, *, timeout: float | None = None) -> bytes:
        message: bytes = self._node.loop.call(
            lambda: self.arecv(timeout=timeout), undo=self._put_back)
        return message

    def send_eof(self) -> None:
        self._node.loop.call(self.asend_eof)

    def close(self) -> None:
        self._node.loop.end(self.aclose)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            self.close()
        else:
            self._node.loop.end(self._fail, error)

    def __iter__(self) -> Iterator[bytes]:
        while True:
            try:
                message = self.recv()
            except TunnelClosed as closed:
                if self._is_all(closed):
                    return
                raise
            yield message

    # -- inside ------------------------------------------------------------------------------------

    def _put_back(self, message: bytes) -> None:
        self._flow.messages.appendleft((message, 0))    # its credit has gone back
        self._wake(self._readers)

    def _send(self, frame: frames.Frame) -> None:
        """A frame other than a message's. What a broken link loses of these, resuming makes up."""
        if self._link is not None:
            self._link.control(frame)

    def _check_out(self) -> None:
        if self._ended is not None:
            raise self._ended
        if self._flow.eof_out:
            raise StateError("this tunnel has sent its end", hint="open another tunnel")

    async def _wait(self, bells: list[Nap], limit: float | None, late: Exception) -> None:
        nap = self._node.loop.nap()
        bells.append(nap)
        try:
            if not await nap.wait(limit):
                raise late
        finally:
            bells.remove(nap)

    def _wake(self, bells: list[Nap]) -> None:
        for nap in bells:
            nap.wake()

    def _grant(self) -> None:
        size = self._flow.grant()
        if size and self._ended is None:
            self._send(frames.Credit(self._stream, self._opener, size))

    def _end(self, error: TunnelClosed, tell: bool = False) -> None:
        if tell:
            self._send(frames.Reset(self._stream, self._opener, error.reason))
        self._ended = error
        self._flow.ring.clear()
        self._withdraw()
        if self._disarm is not None:
            self._disarm()
        self._node.tunnels.forget(self)
        self._wake(self._enders)
        self._wake(self._readers)
        self._wake(self._writers)

    def _maybe_over(self) -> None:
        flow = self._flow
        if flow.eof_in and flow.eof_out and self._ended is None and (
                flow.end_seen or not self.resume):
            self._unseen()
            self._end(TunnelClosed("both sides have sent all", reason="eof"))

    def _unseen(self) -> None:
        """This side is done. A node that drains has to know what has arrived, see Link.owes."""
        if self._flow.end_seen or not self._flow.sent:
            return
        if self.resume:                     # the other side would have said so
            self._node.links.broke_off += 1
        elif self._link is not None:        # the Ping that follows tells
            self._link.answered += 1

    @property
    def _unarrived(self) -> bool:
        """Whether something was sent, and not all of it has arrived, as far as is known."""
        return self._flow.spent > 0 and not self._flow.end_seen

    def _lost(self, why: str, left: bool = False) -> None:
        """left: the other node has left by itself."""
        if self._ended is None:
            self._node.links.broke_off += not left and (self._unarrived or not self._opener)
            self._end(TunnelClosed(f"the link of the tunnel broke ({why})", reason="lost"))

    def _took(self, frame: frames.OfStream) -> None:
        """A frame came for this tunnel."""
        flow = self._flow
        if isinstance(frame, frames.Data):
            before = len(flow.partial)
            flow.data(frame.body, frame.end)
            self._node.tunnels.unfinished(self, len(flow.partial) - before)
            self._grant()
            self._wake(self._readers)
        elif isinstance(frame, frames.Credit):
            flow.credited(frame.size)
            self._go()
        elif isinstance(frame, frames.Accept) and not self._open:
            self._open = True
            flow.granted(frame.window)
            self._wake(self._writers)
        elif isinstance(frame, frames.End):
            flow.eof_in = True
            self._send(frames.Seen(self._stream, self._opener))
            self._wake(self._readers)
            self._maybe_over()
        elif isinstance(frame, frames.Seen):
            flow.end_seen = True
            flow.ring.clear()
            self._wake(self._writers)
            self._maybe_over()
        elif isinstance(frame, frames.Reset):
            text = frame.text or "the other side has closed the tunnel"
            # it is a new process: it does not know the tunnel
            self._node.links.broke_off += frame.reason == "lost" and self._unarrived
            self._end(TunnelClosed(text, reason=frame.reason))

    # -- turns at the link -------------------------------------------------------------------------

    @property
    def _ready(self) -> bool:
        """Whether it can send a piece now."""
        return bool(self._again) or (self._attached and self._message is not None
                                     and self._granted is None and self._flow.credit > 0)

    def _go(self) -> None:
        if not self._entered and self._ready:
            assert self._link is not None
            self._entered = True
            self._link.enter(self._step)

    def _withdraw(self) -> None:
        self._again.clear()
        self._give_back()
        self._entered = False
        if self._link is not None:
            self._link.withdraw(self._step)

    def _step(self) -> bool:
        """It is its turn. Returns whether it takes the next one."""
        assert self._link is not None
        if self._again:
            self._link.send_reserved(self._link.reserve(self._again.popleft()))
            if not self._again:
                self._resumed()
        elif self._ready:
            self._send_piece()
        self._entered = self._ready
        return self._entered

    def _send_piece(self) -> None:
        message = self._message
        assert message is not None and self._link is not None
        piece, complete = bytes(message[:PIECE]), len(message) <= PIECE
        frame = frames.Data(self._stream, self._opener, piece, complete)
        reserved = self._link.reserve(frame)
        if complete and not self._calling:      # asend() may have been cancelled, and not know yet
            self._granted = frame, reserved
            self._wake(self._writers)
        else:
            self._message = message[PIECE:]
            self._send_granted(frame, reserved)

    def _send_granted(self, frame: frames.Data, reserved: Any) -> None:
        assert self._link is not None
        self._granted = None
        self._begun = True
        self._flow.spend(len(frame.body))
        if self.resume:
            self._flow.keep(frame)
        if not self._link.send_reserved(reserved) and not self.resume:
            self._lost("the link is broken", self._link.left)
        elif frame.end:
            self._message = None
            self._flow.sent += 1
            self._wake(self._writers)

    def _give_back(self) -> None:
        """The turn, if it was not taken."""
        granted, self._granted = self._granted, None
        if granted is not None and self._link is not None:
            self._link.release(granted[1])

    # -- another link ------------------------------------------------------------------------------

    def _detach(self) -> None:
        """The link has broken, or the other side uses another one."""
        self._withdraw()
        if self._link is not None:
            self._link.tunnels.pop((self._stream, self._opener), None)
        self._link = None
        self._attached = False

    def _attach(self, link: Way) -> None:
        """Go on over this link once both sides know what the other one has had."""
        self._detach()
        self._link = link
        link.tunnels[self._stream, self._opener] = self
        link.control(frames.Resume(self._stream, self._opener, self._attempt,
                                   self._flow.pieces_in, self._flow.returned))

    def _replay(self) -> None:
        """Send what the other side lacks, then go on."""
        self._again.extend(frame for _, frame in self._flow.ring)
        if not self._again:
            self._resumed()
        self._go()

    def _resumed(self) -> None:
        if self._flow.eof_out:
            self._send(frames.End(self._stream, self._opener))
        self._attached = True
        if self._disarm is not None:
            self._disarm()
            self._disarm = None
        self._node.tunnels.resumed += 1
        self._grant()
