"""A pattern as one Python class: the pattern's door without a compiler.

    class Sticky(Pattern):
        "each message to the peer that its first part belongs to"
        abi = 1
        name = "sticky"
        zmtp, number, peers = "PUSH", 8, ("pull",)
        sends = waits = reroutes = True

        def route(self, parts):
            return max(self.live, key=lambda peer: crc32(parts[0] + peer.routing_id), default=WAIT)

and, in pyproject.toml, `[project.entry-points."mqcore.protocols"] sticky = "my_module:Sticky"`.
From then on `mq.socket("sticky")` works, with everything a socket has: bind and connect, time-outs,
asyncio, iteration, explain(), stats(). `protocols/README.md` walks through one.

The class only decides: who gets a message, whose comes next, whether one is delivered. Queues,
marks, waiting, accounts and the wire are done beneath it, natively. It is slower than a pattern in
Cython by some 0.2 us for each method that a message passes, and by what the method itself does; a
method that it leaves out costs nothing. For the fast way see `mqcore/spi/pattern.pxd`.

**One instance a socket**, made without arguments when the socket is. What it needs to know of the
peers, it keeps on itself or in `peer.data`.

**Who calls, on which thread.** The socket, with its lock and the GIL held, on whatever thread has
business there: the application's that sends or receives, an I/O thread, the control thread. Never
two at a time, so the class needs no locks; but never assume which thread.

**May it block.** No. Whoever uses the socket waits for it, and so does, on an I/O thread, all
traffic of that context. No waiting, no locks, no files, no logging.

**It must not call sockets**, its own or others: StateError, since that could wait for ever. The
same holds for whatever runs while a method runs: a signal's handler (main thread), a `__del__` of
an object that it lets go of. No cyclic garbage collection starts meanwhile. Nor may it keep a
reference to its socket.

**Errors.** Whatever a method raises, nothing was taken: a message to send is still the caller's, a
received one is still in its queue. route, pick and accept: the exception goes to whoever called
send() or recv(), as it is; so a pattern refuses a message by raising mqcore.UsageError. If nobody
called (a message that had waited for its first peer; attach, hangup, detach), it becomes a
PatternFailed event and an error in the log "mqcore", once a run, and a message that waited goes on
waiting. What a signal's handler raises there (KeyboardInterrupt) is raised again in the main thread
as soon as the socket is free; hangup and detach are then called once more, and for attach the peer
is refused and connects anew: write them so that a second call does no harm, and detach so that it
can do without a finished attach.

**Wires**: `zmtp`, `number` and `peers` are as in `mqcore/spi/pattern.pxd`, section "Wires". Options
arrive as attributes: a row ("weight", "int", 1, "...") makes `self.weight`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from mqcore.spi.python_view import Drop, Parts, Peer

__all__ = ["PYTHON_PATTERN_ABI", "WAIT", "Drop", "Parts", "Pattern", "Peer"]

PYTHON_PATTERN_ABI = 1

WAIT = None  # an answer of route() and pick(): nothing now


class Pattern:
    """Base of patterns in Python: facts about the pattern first, then the methods, all optional but
    route() of a pattern that sends."""

    #: PYTHON_PATTERN_ABI that the class was written for: a number, not the constant
    abi: ClassVar[int | None] = None
    #: what mq.socket() and the entry point call it: lower-case letters, digits, "_"
    name: ClassVar[str] = ""
    #: Socket-Type announced to peers; "": talks within the process only
    zmtp: ClassVar[str] = ""
    #: the number of that type in ZMTP 2.0; -1 for a type of your own
    number: ClassVar[int] = -1
    #: names of the patterns that it talks to
    peers: ClassVar[tuple[str, ...]] = ()
    #: rows (name, type, default, what it does); type: bool, int, size, seconds, bytes, text
    options: ClassVar[tuple[tuple[Any, ...], ...]] = ()

    sends: ClassVar[bool] = False  #: send() means something; else it is a UsageError
    receives: ClassVar[bool] = False  #: recv() means something; else what comes is dropped, counted
    waits: ClassVar[bool] = False  #: with no peer at all, messages wait in the socket for the first
    reroutes: ClassVar[bool] = False  #: what a dead peer had not been sent is routed again
    identity: ClassVar[bool] = False  #: announces the routing_id option in the handshake
    fanout: ClassVar[bool] = False  #: route() may give several peers
    exclusive: ClassVar[bool] = False  #: one peer at most: attach() refuses a second one
    replies: ClassVar[bool] = False  #: Message.reply() sends to the peer that the message came from

    #: the peers that can be written to now; a new tuple whenever it changes
    live: tuple[Peer, ...] = ()

    def __init__(self) -> None:
        for name, _, default, _ in self.options:
            setattr(self, name, default)

    # -- peers -------------------------------------------------------------------------------------

    def attach(self, peer: Peer) -> bool | str | None:
        """A peer is there, in `live` already. None or True: welcome. False, or the reason as text
        (which becomes an event): refused, its connection is closed."""

    def hangup(self, peer: Peer) -> None:
        """Its connection is gone, `live` no longer has it. What it sent is still delivered."""

    def detach(self, peer: Peer) -> None:
        """And everything that it sent has been read: forget it. After hangup, always."""

    # -- messages ----------------------------------------------------------------------------------

    def route(self, parts: Parts) -> Peer | Iterable[Peer] | Drop | None:
        """Who gets this message? A peer (if it has no room, the send waits for it); WAIT: nobody
        now, ask again when something changes; Drop("reason"): nobody ever, it is counted. With
        `fanout`, any iterable of peers: a copy to each, one at its mark loses it, counted; none:
        counted as unmatched. May be asked several times for one message. peer.has_room(parts)
        tells beforehand whether it fits."""
        raise NotImplementedError(f"the pattern {self.name!r} sends, but has no route()")

    def can_send(self) -> bool:
        """Would a send be taken now? For poll() and explain(). Unless you know better: some live
        peer has room (with fanout: always)."""
        raise NotImplementedError

    def pick(self, ready: tuple[Peer, ...]) -> Peer | None:
        """Whose message is next? `ready` are the peers that have one, in turn. WAIT: nobody's now.
        Without this method they take turns."""
        raise NotImplementedError

    def accept(self, peer: Peer, parts: Parts) -> bool | Drop | list[bytes]:
        """Deliver this message? True; a list of bytes: these parts in its place; False or
        Drop("reason"): never, it is counted. May be asked several times for one message, so it
        only looks. Without this method every message is delivered."""
        raise NotImplementedError

    # -- options -----------------------------------------------------------------------------------

    def set_option(self, name: str, value: Any) -> None:
        """An option of the class's own rows is assigned. ValueError: not possible."""
        setattr(self, name, value)
