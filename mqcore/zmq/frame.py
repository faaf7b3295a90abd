"""Frame, one part of a message as an object; MessageTracker, which knows when a buffer is free."""

from __future__ import annotations

import time
from threading import Event
from typing import Any

import mqcore as mq
from mqcore.sock.zmq_face import BufferOf
from mqcore.zmq.attributes import Attributes
from mqcore.zmq.constants import Errno, MessageOption
from mqcore.zmq.error import NotDone, ZMQError, make


class MessageTracker:
    """Whether buffers that were sent without copying may be written again. It watches other
    trackers, events and frames."""

    events: set[Any]
    peers: set[Any]

    def __init__(self, *towatch: Any) -> None:
        self.events = set()
        self.peers = set()
        for one in towatch:
            if isinstance(one, (Event, mq.Pinned)):
                self.events.add(one)
            elif isinstance(one, MessageTracker):
                self.peers.add(one)
            elif isinstance(one, Frame):
                if one.tracker is None:
                    raise ValueError("Not a tracked message")
                self.peers.add(one.tracker)
            else:
                raise TypeError(f"Require Events or Message Frames, not {type(one)}")

    @property
    def done(self) -> bool:
        """Nothing of it is in use any more."""
        return all(one.is_set() if isinstance(one, Event) else one.done for one in self.events) \
            and all(peer.done for peer in self.peers)

    def wait(self, timeout: float | int = -1) -> None:
        """Until it is done; NotDone after so many seconds."""
        limit = None if timeout is None or timeout < 0 else time.monotonic() + timeout
        for one in self.events:
            left = None if limit is None else max(0.0, limit - time.monotonic())
            if isinstance(one, Event):
                if not one.wait(left):
                    raise NotDone
                continue
            try:
                one.wait(left)
            except mq.WaitTimeout:
                raise NotDone from None
        for peer in self.peers:
            peer.wait(-1 if limit is None else max(0.0, limit - time.monotonic()))


COPY_THRESHOLD = 65536  # bytes; below, copying costs less than keeping
UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))  # what is told of long ones
FINISHED = _FINISHED_TRACKER = MessageTracker()
#: what get() knows of a received part's peer, by ZMTP's names
PEER_FACTS = {"Socket-Type": lambda peer: peer.pattern.upper(),
              "Identity": lambda peer: peer.routing_id.decode("utf-8", "surrogateescape"),
              "Routing-Id": lambda peer: peer.routing_id.decode("utf-8", "surrogateescape"),
              "Peer-Address": lambda peer: _host(peer.address),
              "User-Id": lambda peer: peer.user}


def _host(address: str) -> str | None:
    """libzmq gives the host alone."""
    scheme, _, rest = address.partition("://")
    return rest.rpartition(":")[0] if scheme in ("tcp", "ws") else None


class Frame(BufferOf, Attributes):
    """One part: its bytes, whether more follow, and what is known of its peer. It has the buffer
    of what it was made of."""

    _known = MessageOption
    more: bool
    tracker: MessageTracker | None
    tracker_event: None

    def __init__(self, data: Any = None, track: bool = False, copy: bool | None = None,
                 copy_threshold: int | None = None) -> None:
        if isinstance(data, str):
            raise TypeError("Str objects not allowed. Only: bytes, buffer interfaces.")
        if data is None:
            data = b""
        elif not isinstance(data, bytes):
            view = memoryview(data)
            if not view.c_contiguous:
                raise BufferError("memoryview: underlying buffer is not contiguous")
            if copy is None:
                copy = view.nbytes < (COPY_THRESHOLD if copy_threshold is None else copy_threshold)
            data = bytes(view) if copy else view
        self._data = data
        self._view: memoryview | None = None
        self.more = False
        self.tracker = FINISHED if track else None
        self.tracker_event = None
        self._origin: Any = None  # the Message that it came in
        self._group = ""

    @classmethod
    def _received(cls, data: Any, more: bool, origin: Any = None, group: str = "",
                  track: bool = False) -> Frame:
        made = cls(data, track, copy=False)
        made.more = more
        made._origin = origin
        made._group = group
        return made

    @property
    def bytes(self) -> bytes:
        """The part's content."""
        if not isinstance(self._data, bytes):
            self._data = bytes(self._data)
        return self._data

    @property
    def buffer(self) -> memoryview:
        """A view of it, always the same."""
        if self._view is None:
            self._view = memoryview(self._data)
        return self._view

    @property
    def group(self) -> str:
        """RADIO and DISH: the group."""
        return self._group

    @group.setter
    def group(self, group: str | bytes) -> None:
        self._group = group.decode() if isinstance(group, bytes) else group

    @property
    def routing_id(self) -> int:
        """Of CLIENT and SERVER, which are not here."""
        raise make(Errno.ENOTSUP, "routing_id belongs to SERVER and PEER sockets")

    def get(self, option: int | str) -> Any:
        """MORE, SRCFD, SHARED, or a fact about the peer by its name ("Peer-Address")."""
        if isinstance(option, str):
            peer = getattr(self._origin, "peer", None)
            found = None
            if peer is not None:
                found = PEER_FACTS[option](peer) if option in PEER_FACTS else None
                if found is None and option in peer.metadata:
                    found = peer.metadata[option].decode("utf-8", "surrogateescape")
            if found is None:
                raise ZMQError(Errno.EINVAL)
            return found
        if option == MessageOption.MORE:
            return int(self.more)
        if option in (MessageOption.SRCFD, MessageOption.SHARED):
            return -1 if option == MessageOption.SRCFD else 0
        raise ZMQError(Errno.EINVAL)

    def set(self, option: int | str, value: Any) -> None:
        """"group" can be set, nothing else."""
        if option != "group":
            raise ZMQError(Errno.EINVAL)
        self.group = value

    __getitem__ = get

    def __len__(self) -> int:
        return len(self._data) if isinstance(self._data, bytes) else int(self._data.nbytes)

    def __bytes__(self) -> bytes:
        return self.bytes

    def __copy__(self) -> Frame:
        made = Frame(self._data, copy=False)
        made.more, made.tracker = self.more, self.tracker
        made._origin, made._group = self._origin, self._group
        return made

    def __repr__(self) -> str:
        cls, size = type(self), len(self)
        module = "zmq" if cls.__module__.startswith("mqcore.zmq") else cls.__module__
        if size <= 16:
            return f"<{module}.{cls.__name__}({self.bytes!r})>"
        begin = bytes(memoryview(self._data).cast("B")[:12])
        unit, name = next((row for row in UNITS if size >= row[0]), (1, "B"))
        return f"<{module}.{cls.__name__}({begin!r}...{size // unit}{name})>"


Message = Frame
