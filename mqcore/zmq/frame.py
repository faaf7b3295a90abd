"""Frame, one part of a message as an object; MessageTracker, which knows when a buffer is free."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import mqcore as mq
from mqcore.base.waits import Event
from mqcore.zmq.attributes import Attributes, shown_module
from mqcore.zmq.borrowed import lend
from mqcore.zmq.constants import Errno, MessageOption
from mqcore.zmq.error import NotDone, ZMQError, make
from mqcore.zmq.part import Part
from mqcore.zmq.utils.garbage import Held


def _is_event(one: Any) -> bool:
    """A threading.Event: the program's, which gevent may have replaced, or one of ours."""
    return hasattr(one, "is_set")


class MessageTracker:
    """Whether buffers that were sent without copying may be written again. It watches other
    trackers, events and frames."""

    events: set[Any]
    peers: set[Any]

    def __init__(self, *towatch: Any) -> None:
        self.events = set()
        self.peers = set()
        for one in towatch:
            if _is_event(one) or isinstance(one, mq.Pinned):
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
        return all(one.is_set() if _is_event(one) else one.done for one in self.events) \
            and all(peer.done for peer in self.peers)

    def wait(self, timeout: float | int = -1) -> None:
        """Until it is done; NotDone after so many seconds."""
        limit = None if timeout is None or timeout < 0 else time.monotonic() + timeout
        for one in self.events:
            left = None if limit is None else max(0.0, limit - time.monotonic())
            if _is_event(one):
                if not one.wait(left):
                    raise NotDone
                continue
            try:
                one.wait_done(left)
            except mq.WaitTimeout:
                raise NotDone from None
        for peer in self.peers:
            peer.wait(-1 if limit is None else max(0.0, limit - time.monotonic()))


UNITS = ((10**9, "GB"), (10**6, "MB"), (10**3, "kB"))  # units in the repr of long frames
FINISHED = _FINISHED_TRACKER = MessageTracker()
#: what get() knows of a received part's peer, by ZMTP's names
PEER_FACTS: dict[str, Callable[[Any], str | None]] = {
    "Socket-Type": lambda peer: peer.pattern.upper(),
    "Identity": lambda peer: peer.routing_id.decode("utf-8", "surrogateescape"),
    "Routing-Id": lambda peer: peer.routing_id.decode("utf-8", "surrogateescape"),
    "Peer-Address": lambda peer: _host(peer.address),
    "User-Id": lambda peer: peer.user,
}


def _host(address: str) -> str | None:
    """libzmq gives the host alone."""
    scheme, _, rest = address.partition("://")
    return rest.rpartition(":")[0] if scheme in ("tcp", "ws") else None


class Frame(Part, Attributes):
    """One part: its bytes, whether more follow, and what is known of its peer. It has the buffer
    of what it was made of."""

    _known = MessageOption
    _finished = FINISHED

    @staticmethod
    def _hold(data: Any, track: bool) -> tuple[Held, MessageTracker | None]:
        event = Event() if track else None
        return Held(data, event), None if event is None else MessageTracker(event)

    @property
    def group(self) -> str:
        """RADIO and DISH: the group."""
        return self._group

    @group.setter
    def group(self, group: str | bytes) -> None:
        self._group = group.decode() if isinstance(group, bytes) else group

    @property
    def routing_id(self) -> int:
        """SERVER and PEER: the number of the peer it came from, or goes to; 0: none."""
        return self._routing_id

    @routing_id.setter
    def routing_id(self, routing_id: int) -> None:
        if not 0 < routing_id < 1 << 32:
            raise make(Errno.EINVAL, "a routing id is the number that a received frame has")
        self._routing_id = routing_id

    def get(self, option: int | str) -> Any:
        """MORE, SRCFD, SHARED, "group", "routing_id", or a fact about the peer by its name
        ("Peer-Address")."""
        if option in ("group", "routing_id"):
            return getattr(self, str(option))
        if isinstance(option, str):
            peer = self._peer
            found = None
            if peer is not None:
                if option in PEER_FACTS:  # a peer's own word for it counts for nothing
                    found = PEER_FACTS[option](peer)
                elif option in peer.metadata:
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
        """"group" and "routing_id" can be set, nothing else."""
        if option not in ("group", "routing_id"):
            raise ZMQError(Errno.EINVAL)
        setattr(self, str(option), value)

    __getitem__ = get

    def __repr__(self) -> str:
        cls, size = type(self), len(self)
        module = shown_module(cls)
        if size <= 16:
            return f"<{module}.{cls.__name__}({self.bytes!r})>"
        begin = bytes(memoryview(self._data).cast("B")[:12])
        unit, name = next((row for row in UNITS if size >= row[0]), (1, "B"))
        return f"<{module}.{cls.__name__}({begin!r}...{size // unit}{name})>"


Message = Frame

__getattr__ = lend(__name__)
