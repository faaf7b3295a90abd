"""A pattern as a Python class: the plug-in interface of patterns without a compiler.

    class Sticky(Pattern):
        "sends each message to the peer that its first part hashes to"
        abi = 1
        name = "sticky"
        zmtp, number, peers = "PUSH", 8, ("pull",)
        sends = waits = reroutes = True

        def route(self, parts):
            return max(self.live, key=lambda peer: crc32(parts[0] + peer.routing_id), default=WAIT)

and, in pyproject.toml, `[project.entry-points."mqcore.protocols"] sticky = "my_module:Sticky"`.
Then `mq.socket("sticky")` works, with everything a socket has: bind and connect, time-outs,
asyncio, iteration, explain(), stats(). `protocols/README.md` explains how to write one.

The class only decides which peer gets a message, whose message is next, and whether a message is
delivered. Queues, HWMs, waiting, counters and the protocol are native. Each method that
a message passes costs about 0.2 us more than in Cython, plus the time of the method itself. A
method that the class omits costs nothing. For the fast way see `mqcore/spi/pattern.pxd`.

**One instance per socket**, created without arguments together with the socket. It keeps its state
in itself or in `peer.data`.

**Callers and threads.** The socket calls the methods with its lock and the GIL held, on any thread:
a caller's that sends or receives, an I/O thread, the control thread. Calls never overlap, so the
class needs no locks. Do not rely on a particular thread.

**Methods must not block.** Every user of the socket waits for them, and so does, on an I/O thread,
all traffic of that context. Do not wait, lock, open files or log.

**Methods must not call sockets**, their own or others: this raises StateError, because it could
wait for ever. The same holds for code that runs during a method: a signal handler (main thread), or
the `__del__` of an object that it releases. No cyclic garbage collection starts meanwhile. The
class must not keep a reference to its socket.

**Errors.** If a method raises, nothing was taken: a message to send still belongs to the caller,
and a received one is still in its queue. route, pick and accept: the caller of send() or recv()
gets the exception unchanged, so a pattern refuses a message by raising mqcore.UsageError. Without a
caller (a message that waited for its first peer; attach, hangup, detach), the exception becomes a
PatternFailed event and an error in the log "mqcore", once per run, and a message that waited keeps
waiting. The main thread re-raises an exception of a signal handler (KeyboardInterrupt) as soon as
the socket is free. hangup and detach are then called again, and for attach the peer is refused and
reconnects. Write hangup and detach so that a second call is harmless, and detach so that it does
not need a completed attach.

**Protocols**: `zmtp`, `number` and `peers` are as in `mqcore/spi/pattern.pxd`, section "Protocols".
Options arrive as attributes: a row ("weight", "int", 1, "...") creates `self.weight`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from mqcore.spi.python.view import Drop, Parts, Peer

__all__ = ["PYTHON_PATTERN_ABI", "WAIT", "Drop", "Parts", "Pattern", "Peer"]

PYTHON_PATTERN_ABI = 1

WAIT = None  # a result of route() and pick(): nothing now


class Pattern:
    """Base class of patterns in Python: first the properties of the pattern, then the methods. All
    methods are optional, except route() of a pattern that sends."""

    #: the PYTHON_PATTERN_ABI that the class was written for, as a number, not the constant
    abi: ClassVar[int | None] = None
    #: the name for mq.socket() and the entry point: lower-case letters, digits, "_"
    name: ClassVar[str] = ""
    #: the Socket-Type announced to peers; "": only within the process
    zmtp: ClassVar[str] = ""
    #: the number of that type in ZMTP 2.0; -1 for a type of your own
    number: ClassVar[int] = -1
    #: names of the patterns that it accepts as peers
    peers: ClassVar[tuple[str, ...]] = ()
    #: rows (name, type, default, meaning); type: bool, int, size, seconds, bytes, text
    options: ClassVar[tuple[tuple[Any, ...], ...]] = ()

    sends: ClassVar[bool] = False  #: supports send(), which otherwise raises UsageError
    receives: ClassVar[bool] = False  #: supports recv(); otherwise incoming messages are dropped
    waits: ClassVar[bool] = False  #: without any peer, messages wait in the socket
    reroutes: ClassVar[bool] = False  #: messages not yet sent to a lost peer are routed again
    identity: ClassVar[bool] = False  #: announces the routing_id option in the handshake
    fanout: ClassVar[bool] = False  #: route() may return several peers
    exclusive: ClassVar[bool] = False  #: at most one peer: attach() refuses a second one
    replies: ClassVar[bool] = False  #: Message.reply() sends to the peer that the message came from

    #: the connected peers; a new tuple after each change
    live: tuple[Peer, ...] = ()

    def __init__(self) -> None:
        for name, _, default, _ in self.options:
            setattr(self, name, default)

    # -- peers -------------------------------------------------------------------------------------

    def attach(self, peer: Peer) -> bool | str | None:
        """A peer has connected and is in `live` already. Return None or True to accept it. Return
        False, or the reason as text (which becomes an event), to refuse it and close its
        connection."""

    def hangup(self, peer: Peer) -> None:
        """The peer's connection is gone, and `live` no longer has it. Messages that it sent are
        still delivered."""

    def detach(self, peer: Peer) -> None:
        """All messages of a departed peer have been read: forget it. Always after hangup."""

    # -- messages ----------------------------------------------------------------------------------

    def route(self, parts: Parts) -> Peer | Iterable[Peer] | Drop | None:
        """Choose the receiver of this message. Return a peer (if it has no space, the send waits
        for it), WAIT (no peer now; ask again after a change), or Drop("reason") to drop and count
        it. With `fanout`, return any iterable of peers: each gets a copy, and one at its HWM loses
        it, counted. An empty iterable counts the message as unmatched. route() may be
        called several times for one message. peer.has_room(parts) tells beforehand whether it
        fits."""
        raise NotImplementedError(f"the pattern {self.name!r} sends, but has no route()")

    def can_send(self) -> bool:
        """Whether a send would be taken now, for poll() and explain(). By default: whether a live
        peer has space (with fanout: always)."""
        raise NotImplementedError

    def pick(self, ready: tuple[Peer, ...]) -> Peer | None:
        """Choose whose message is next. `ready` are the peers that have one, in turn. WAIT: no
        message now. Without this method the peers take turns."""
        raise NotImplementedError

    def accept(self, peer: Peer, parts: Parts) -> bool | Drop | list[bytes]:
        """Whether to deliver this message. Return True, or a list of bytes to replace its parts.
        Return False or Drop("reason") to drop and count it. accept() may be called several times
        for one message, so it must not change state. Without this method every message is
        delivered."""
        raise NotImplementedError

    # -- options -----------------------------------------------------------------------------------

    def set_option(self, name: str, value: Any) -> None:
        """The program assigns one of the class's own options. Raise ValueError to refuse it."""
        setattr(self, name, value)
