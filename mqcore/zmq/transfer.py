"""Transfer: messages in pieces, as frames, with trackers or groups; and sockets that are not open
yet. The calls that carry whole messages as bytes are ZmqFace's, in Cython."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import mqcore as mq
from mqcore.zmq.calls import ZmqFace
from mqcore.zmq.constants import Errno, Flag
from mqcore.zmq.error import Again, ZMQError, make
from mqcore.zmq.frame import FINISHED, Frame, MessageTracker

if TYPE_CHECKING:
    from mqcore.zmq.shared import Shared

DONTWAIT, SNDMORE = int(Flag.DONTWAIT), int(Flag.SNDMORE)
NUMBERED = ("server", "peer")  # a message names its peer by a number
SINGLE = ("radio", "client", "scatter", "channel", *NUMBERED)  # messages have one part


class Transfer(ZmqFace):
    """What ZmqFace leaves to Python."""

    _again = Again
    _frame = Frame
    _shared: Shared
    copy_threshold: int

    # -- opening -----------------------------------------------------------------------------------

    def _open(self) -> Any:
        """mqcore's socket, opened if it is not yet."""
        shared = self._shared
        shared.refuse()
        core = shared.open()
        if self._core is not core:
            self._set_quick()
        return core

    def _set_quick(self) -> None:
        """Whether ZmqFace may do the ordinary case by itself."""
        shared = self._shared
        if shared.core is not None:
            self._core = shared.core
        self._edge = shared.edge
        self._pieces = shared.pattern not in SINGLE
        self._quick = (shared.core is not None
                       and shared.pattern not in ("radio", "stream", *NUMBERED))

    def _failed(self, error: mq.Error) -> ZMQError:
        return self._shared.failed(error)

    # -- sending -----------------------------------------------------------------------------------

    def _send(self, data: Any, flags: int, copy: bool, track: bool, routing_id: int | None,
              group: str | None) -> MessageTracker | None:
        if isinstance(data, str):
            raise TypeError("unicode not allowed, use send_string")
        core = self._sender()
        if routing_id is not None and core.pattern not in NUMBERED:
            raise make(Errno.ENOTSUP, "routing_id belongs to SERVER and PEER sockets")
        if flags & SNDMORE and core.pattern in SINGLE:
            raise _one_part(core)
        held = None
        if isinstance(data, Frame):
            tracker = data.tracker or (FINISHED if track and not copy else None)
            group = group or data.group or None
            routing_id = routing_id or data.routing_id
            held, data = data if data.held is not None else None, data._data
        else:
            tracker = FINISHED if track and not copy else None
            if not isinstance(data, bytes):
                data = memoryview(data)
        if flags & SNDMORE:
            self._begin(bytes(data))
            return tracker
        begun = self._take_begun()
        if begun:
            self._finish(begun, [data], flags)
        elif core.pattern in NUMBERED:
            self._deliver_to(routing_id or 0, data, flags)
        elif not copy and group is None and len(data) >= self.copy_threshold:
            pinned = self._call(core.send_ref, data if held is None else held, flags)
            if held is None:  # a frame's own tracker knows when all that was sent of it is free
                tracker = MessageTracker(pinned) if track else None
        else:
            self._deliver([data], flags, group)
        return tracker

    def _send_multipart(self, msg_parts: Any, flags: int, copy: bool, track: bool,
                        routing_id: int | None, group: str | None) -> MessageTracker | None:
        parts = list(msg_parts)
        for at, part in enumerate(parts):
            if not isinstance(part, (bytes, Frame)):
                try:
                    memoryview(part)
                except TypeError:
                    text = repr(part)
                    raise TypeError(f"Frame {at} ({text if len(text) < 32 else text[:30] + '..'}) "
                                    "does not support the buffer interface.") from None
        if not parts:
            raise IndexError("a message has at least one part")
        core = self._sender()
        if routing_id is not None or len(parts) == 1 or flags & SNDMORE:
            for part in parts[:-1]:
                self._send(part, flags | SNDMORE, copy, track, None, None)
            return self._send(parts[-1], flags, copy, track, routing_id, group)
        if core.pattern in SINGLE:
            raise _one_part(core)
        self._finish(self._take_begun(), parts, flags)
        return MessageTracker(*(part for part in parts if isinstance(part, Frame)
                                and part.tracker is not None)) if track and not copy else None

    def _finish(self, begun: list[Any], parts: list[Any], flags: int) -> None:
        """Send what was given with SNDMORE and the parts that end it. Again keeps what was given,
        so that the end can be sent again; another error ends the message."""
        try:
            self._deliver([*begun, *parts], flags)
        except Again:
            self._put_begun(begun)
            raise

    def _sender(self) -> Any:
        core = self._open()
        if not core.plugin.sends:
            raise ZMQError(Errno.ENOTSUP)
        return core

    def _deliver(self, parts: list[Any], flags: int, group: str | None = None) -> None:
        core = self._core
        if core.pattern == "radio":
            def send(data: list[Any], **timeout: Any) -> None:
                core.send_parts(data, group=group or "", **timeout)
        elif core.pattern == "stream":
            send = self._send_bytes  # type: ignore[assignment]
        else:
            send = core.send_parts
        self._call(send, parts, flags)

    def _deliver_to(self, routing_id: int, data: Any, flags: int) -> None:
        core = self._core
        if not 0 < routing_id < 1 << 32:
            raise make(Errno.EHOSTUNREACH, "send(routing_id=) says whom a message is for; "
                                           "a received Frame has it")

        def send(part: Any, **timeout: Any) -> None:
            core.send_to(routing_id, part, **timeout)

        self._call(send, data, flags)

    def _send_bytes(self, parts: list[Any], **timeout: Any) -> None:
        """STREAM: what is for an address of ours that is not connected now waits for it."""
        core, shared = self._core, self._shared
        limit = timeout.get("timeout", core.send_timeout)
        end = None if limit is None else time.monotonic() + limit
        while True:
            seen = core._change()
            try:
                core.send_parts(parts, **timeout)
            except mq.NoSuchPeer:
                if not shared.awaits(bytes(parts[0])):
                    raise
            else:
                if not any(map(len, parts[1:])):
                    shared.ended(bytes(parts[0]))
                return
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                raise mq.SendTimeout("the peer is not connected yet", why="no_peer")
            core._wait(seen, left)

    def _call(self, send: Any, data: Any, flags: int) -> Any:
        edge = self._shared.edge
        try:
            return send(data, timeout=0) if flags & DONTWAIT else send(data)
        except mq.SendTimeout:
            if edge is not None and flags & DONTWAIT:  # the FD signals when it can
                edge.calm()
                try:
                    return send(data, timeout=0)
                except mq.SendTimeout:
                    pass
                except mq.Error as error:  # another thread has closed the socket meanwhile
                    raise self._failed(error) from error
            raise Again from None
        except mq.Error as error:
            raise self._failed(error) from error

    # -- receiving ---------------------------------------------------------------------------------

    def _recv(self, flags: int, copy: bool, track: bool) -> Any:
        return self._first(self._take(flags, copy, track), copy, track)

    def _recv_multipart(self, flags: int, copy: bool, track: bool) -> list[Any]:
        return self._take(flags, copy, track)

    def _take(self, flags: int, copy: bool, track: bool) -> list[Any]:
        """The parts of the next message."""
        core = self._open()
        if not core.plugin.receives:
            raise ZMQError(Errno.ENOTSUP)
        parts = self._whole(not flags & DONTWAIT, copy, track)
        if not copy and core.pattern in NUMBERED:
            for part in parts:
                part._routing_id = part._peer_id
        return parts


def _one_part(core: Any) -> ZMQError:
    return make(Errno.EINVAL, f"a {core.pattern.upper()}'s message has one part")
