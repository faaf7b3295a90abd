"""Tables: what is known of one socket, and what its endpoints, its peers and its end share.

The hub's lock: `nodes`, `connections`, `peers`, `gone`, `joined` and `pauses` change only under it.
A look-up in one of them needs no lock; a loop over one needs it, or a copy. `handshakes` and
`reconnects` are used on the control thread only. Never wait for the control thread while holding
the lock: a callback there may want it.
"""

from __future__ import annotations

import resource
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mqcore.base.native import threading, time
from mqcore.base.virtual import monotonic
from mqcore.control import events
from mqcore.control.connection import Connection, encode_metadata
from mqcore.control.endpoint import Endpoint
from mqcore.control.handshake import Handshake
from mqcore.control.hub import Hub
from mqcore.control.idle import IdleWatch
from mqcore.control.stats import CloseReport, Peer
from mqcore.errors import StateError
from mqcore.link.backoff import Backoff
from mqcore.spi import registry, sp

GONE_KEPT = 1024  # peers that left and whose messages are read, kept for who asks late

SHARE = 4  # of the process's descriptors, the share of departed peers whose bytes are in the kernel


def left_open() -> int:
    """The number of departed peers that may keep a descriptor."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if most == resource.RLIM_INFINITY else max(1, most // SHARE)


class Tables:
    """`core` is the SocketCore; `options` the socket's validated options (a live mapping)."""

    def __init__(self, hub: Hub, core: Any, plugin: Any, options: Mapping[str, Any]) -> None:
        self.hub = hub
        self._core = weakref.ref(core)  # weak, so that an unreferenced socket is collected
        self._held: Any = None
        self._hurry = False
        self._until: float | None = None  # the time at which close() stops waiting
        self._closing = threading.RLock()
        self._failures = 0
        self.plugin = plugin
        self.options = options
        self.any_pattern = False    # inproc joins it with another such socket of any pattern
        self.opened = False     # changes under the hub's lock
        self.number = 0
        self.nodes: dict[Endpoint, Any] = {}      # endpoint: Listener, Connector or None (inproc)
        self.connections: dict[int, Connection] = {}          # engine slot: Connection
        self.handshakes: dict[Handshake, Connection] = {}   # connections that have no engine yet
        self.peers: dict[int, Peer] = {}
        self.gone: OrderedDict[int, Peer] = OrderedDict()
        # inproc: peer id: endpoint, other, its id
        self.joined: dict[int, tuple[Endpoint, Tables, int]] = {}
        self.pauses: dict[Endpoint, Backoff] = {}  # of connecting inproc endpoints
        self.watchers: list[Callable[[events.Event], None]] = []
        self.reconnects = 0
        self.failed_handshakes = 0
        self.broken_peers = 0
        self.lost: dict[str, int] = {}  # by source, from notes
        self.report: CloseReport | None = None
        self.idle = IdleWatch(self)
        self._hopeful: set[Endpoint] = set()  # connecting endpoints that may yet bring a peer
        try:
            self.number = hub.register(self)
            core._open(hub.plane, plugin, self.number, self._shake(), self._marks())
            with hub.lock:
                self.opened = True
                if hub.observers:
                    core._set("watched", True)
        except BaseException:
            hub.forget(self)
            raise

    @property
    def core(self) -> Any:
        """None: the socket is garbage. Its finalizer has not run yet, or close() is over."""
        return self._held if self._held is not None else self._core()

    def end_engines(self, slots: Iterable[int], leave: bool = False) -> None:
        """Under the hub's lock. A signal handler that waits lets go of it, so the table may change
        between two steps; a slot that has left it may have a new owner. leave: what has arrived is
        read first."""
        core = self.core
        for slot in list(slots):
            if slot in self.connections and core is not None:
                (core._leave_engine if leave else core._end_engine)(slot)

    def hold(self, core: Any) -> None:
        """Keep an unreferenced, unclosed socket alive until close() is done."""
        self._held = core

    def _shake(self) -> dict[str, Any]:
        return {
            "pattern": self.plugin.zmtp, "number": self.plugin.number, "peers": self.fitting(),
            "routing_id": self.routing_id(), "sp": self.plugin.sp,
            "sp_peer": sp.peer_of(self.plugin.sp), "max_hops": self.options["max_hops"],
            "metadata": encode_metadata(self.options.get("metadata", {})),
            "publishes": self.plugin.name in ("pub", "xpub"),
        }

    def routing_id(self) -> bytes:
        """The routing id for all peers. SP has no such field, so SP-only patterns have none."""
        if self.plugin.sp >= 0 and not self.plugin.zmtp:
            return b""
        return bytes(self.options.get("routing_id", b""))

    def fitting(self) -> list[str]:
        """The kinds of peer that this socket accepts."""
        return [registry.kind_of(name) for name in self.plugin.peers]

    def _marks(self) -> dict[str, Any]:
        names = ("send_hwm", "recv_hwm", "send_hwm_bytes", "recv_hwm_bytes")
        conflate = bool(self.options.get("conflate")) and self.plugin.conflates
        return {**{name: self.options[name] for name in names},
                "left_open": left_open(),
                "send_conflate": conflate and self.plugin.sends,
                "recv_conflate": conflate and self.plugin.receives}

    # -- for all of them ---------------------------------------------------------------------------

    def count(self, endpoint: Endpoint, on: bool) -> None:
        """Record whether this endpoint may bring a peer, so that messages may wait for it."""
        with self.hub.lock:
            on = on and endpoint in self.nodes
            if on != (endpoint in self._hopeful):
                (self._hopeful.add if on else self._hopeful.discard)(endpoint)
                core = self.core
                if core is not None:
                    core._connects(1 if on else -1)

    def forget_peer(self, number: int) -> None:
        peer = self.peers.pop(number, None)
        if peer is None:
            return
        self.gone[number] = peer
        for _ in range(2):    # so that fewer are kept again, once their messages are read
            if len(self.gone) > GONE_KEPT:
                oldest = next(iter(self.gone))
                if self.is_unread(oldest):
                    self.gone.move_to_end(oldest)
                else:
                    del self.gone[oldest]

    def is_unread(self, number: int) -> bool:
        """Whether a peer that left may have messages here, whose reader may ask for the peer."""
        try:
            return self.core is not None and self.core._is_hung(number)
        except StateError:    # inside the code of a pattern in Python: it cannot be asked
            return True

    def emit(self, kind: Any, endpoint: Endpoint | None, peer: Peer | None, reason: str,
             where: str = "", **facts: Any) -> None:
        if self.watched:
            event = kind(time.time(), self.core, endpoint.url if endpoint is not None else where,
                         peer, reason, **facts)
            for watcher in (*self.watchers, *self.hub.observers):
                watcher(event)

    @property
    def watched(self) -> bool:
        """Whether anything reads the events of this socket."""
        return bool(self.watchers or self.hub.observers)

    def _wait_for(self, done: Callable[[], bool], limit: float = 5.0) -> bool:
        """Process notes until done(), for things that the I/O threads do promptly."""
        end = monotonic() + limit
        core = self.core
        while core is not None and not done():
            seen = core._change()
            self.hub.pump()
            if done():
                break
            if monotonic() >= end:
                return False
            core._wait(seen, 0.001)
        return True
