"""Pipe, a connection as the program sees it; Message; and who calls the callbacks.

nng calls back from its own threads, before a pipe takes part (the callback may close it), after,
and when it is gone. Here a socket that has callbacks has a thread, which reads mqcore's events. New
peers of such a socket are held by the socket's core until their first callbacks are through.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import mqcore as mq
from mqcore.base.threads import Thread
from mqcore.base.waits import Condition, Released
from mqcore.nng.exceptions import MessageStateError, NoEntry, make
from mqcore.nng.options import Option, absent
from mqcore.nng.sockaddr import SockAddr, sockaddr_of

if TYPE_CHECKING:
    from mqcore.nng.endpoints import Dialer, Listener
    from mqcore.nng.socket import Socket

logger = logging.getLogger("mqcore.nng")
Callback = Callable[["Pipe"], Any]
BACKLOG = 100_000  # events that may wait for the callbacks; more are lost, and the log says so


class Message:
    """Bytes to send, and where they go or came from. It is sent once."""

    def __init__(self, data: Any, pipe: Pipe | None = None) -> None:
        if isinstance(data, str):
            raise TypeError("a message is bytes, not str; encode the text first (.encode())")
        self._bytes = data if isinstance(data, bytes) else bytes(memoryview(data))
        self._sent = False
        self._pipe = pipe

    @property
    def pipe(self) -> Pipe | None:
        """Where it came from; and where it goes, if the pattern chooses peers."""
        return self._pipe

    @pipe.setter
    def pipe(self, pipe: Pipe | None) -> None:
        self._pipe = pipe

    @property
    def bytes(self) -> bytes:
        """What it says."""
        return self._bytes

    @property
    def _buffer(self) -> memoryview:
        return memoryview(self._bytes)

    def _use(self) -> None:
        if self._sent:
            raise MessageStateError("this message was sent; make another one to send it again")
        self._sent = True

    def _give_back(self) -> None:
        """It was not sent after all."""
        self._sent = False


class Pipe:
    """One connection of a socket. It is the same object as long as the connection lasts."""

    def __init__(self, peer: mq.Peer, socket: Socket) -> None:
        self.pipe = peer
        self.socket = socket
        self._closed = False

    @property
    def id(self) -> int:
        """A number that no other pipe of the process has."""
        return int(self.socket._core._links.number << 32 | self.pipe.id)

    @property
    def closed(self) -> bool:
        return self._closed or not self.socket._has(self)

    @property
    def dialer(self) -> Dialer:
        """What made it; TypeError if it came through a listener."""
        found = self.socket._dialer_of(self.pipe)
        if found is None:
            raise TypeError("this pipe came through a listener; it has no dialer")
        return found

    @property
    def listener(self) -> Listener:
        """What took it in; TypeError if it was dialled."""
        found = self.socket._listener_of(self.pipe)
        if found is None:
            raise TypeError("this pipe was dialled; it has no listener")
        return found

    def close(self) -> None:
        """End the connection. A dialer makes a new one."""
        if self._closed:
            raise make(NoEntry, "this pipe is closed")
        self._closed = True
        self.socket._core._end_pipe(self.pipe.id)

    def send(self, data: Any) -> None:
        """Send to this peer, if the pattern chooses peers (Pair1, polyamorous); else as the socket
        sends."""
        self.socket.send_msg(Message(_outgoing(data), self))

    async def asend(self, data: Any) -> None:
        """send(), awaitable."""
        await self.socket.asend_msg(Message(_outgoing(data), self))

    def send_msg(self, msg: Message) -> None:
        """send() of a Message."""
        msg.pipe = self
        self.socket.send_msg(msg)

    async def asend_msg(self, msg: Message) -> None:
        """send_msg(), awaitable."""
        msg.pipe = self
        await self.socket.asend_msg(msg)

    # -- options -----------------------------------------------------------------------------------

    def _way(self) -> Any:
        return self.socket._listener_of(self.pipe) or self.socket._dialer_of(self.pipe)

    def _url(self) -> str:
        way = self._way()
        return str(way.url if way is not None else self.pipe.endpoint)

    def _local(self) -> SockAddr:
        return sockaddr_of(self.pipe.local or self.pipe.endpoint)

    url = Option("The address that it was dialled at or came in through.", _url)
    local_address = Option("Our end.", _local)
    remote_address = Option("The other end.", lambda self: sockaddr_of(self.pipe.address
                                                                       or self.pipe.endpoint))
    protocol = Option("nng's number of our pattern.", lambda self: self.socket.protocol)
    protocol_name = Option("Its name.", lambda self: self.socket.protocol_name)
    peer = Option("nng's number of the peer's pattern.", lambda self: self.socket.peer)
    peer_name = Option("Its name.", lambda self: self.socket.peer_name)
    tcp_nodelay = Option("Always on.", lambda self: True)
    tcp_keepalive = Option("Keep-alive probes.", lambda self: self.socket.tcp_keepalive)


def _outgoing(data: Any) -> Any:
    """What may be sent."""
    if isinstance(data, str):
        raise ValueError("a message is bytes, not str; encode the text first (.encode())")
    return data


class Watch:
    """The callbacks of one socket, and the thread that calls them, which does not keep the socket
    alive."""

    def __init__(self, socket: Socket) -> None:
        self.before: list[Callback] = []
        self.after: list[Callback] = []
        self.gone: list[Callback] = []
        self._turned_away: set[int] = set()
        self._met: set[int] = set()  # the peers whose first callbacks are through
        self._seen = 0  # the newest peer that is through
        self._core = socket._core
        # The hub's lock: a signal handler that closes the socket releases it while it waits.
        self._through = Condition(self._core._links.hub.lock)
        self._stream = self._core.events(backlog=BACKLOG)
        self._met.update(peer.id for peer in self._core.peers())  # before there were callbacks
        self._thread = Thread(_call_back, "mqcore-nng", (self, weakref.ref(socket)))
        self._thread.start()

    def shows(self, peer: mq.Peer) -> bool:
        """Whether the socket's pipes include this peer: once its first callbacks have returned, and
        for the callbacks themselves."""
        return (not self.before or peer.id in self._met or self._stream.lost > 0
                or self._thread.is_current())

    def settled(self, number: int) -> None:
        """Wait until the callbacks of this peer and all before it are through. In a callback:
        do not."""
        if self._thread.is_current():
            return
        with self._through:
            while not self._through.wait_for(lambda: self._seen >= number, 0.1):
                if not self._thread.is_alive():
                    return

    def end(self) -> None:
        """The socket is closed: what is left to call is called, then the thread ends."""
        if not self._thread.is_current():
            self._stream.close()  # a signal handler may have interrupted the close() that does it
            with Released(self._core._links.hub.lock):
                self._thread.join()

    def take(self, event: mq.Event, socket: Socket) -> None:
        if event.peer is None:
            return
        if event.kind == "Connected":
            self._core._links.settle_peer(event.peer.id)  # before this, the pipe cannot be refused
            self._connected(socket._pipe_of(event.peer), socket)
        elif event.kind == "Disconnected":
            self._disconnected(event.peer, socket)

    def _connected(self, pipe: Pipe, socket: Socket) -> None:
        number = pipe.pipe.id
        held = bool(self.before)
        try:
            self._call(self.before, pipe, "pre pipe connect")
            self._met.add(number)
            admitted = not pipe._closed and self._core._admit(number)
            if pipe._closed or (held and not admitted and not socket._has(pipe)):
                self._turned_away.add(number)  # or it left while it was held
            else:
                self._call(self.after, pipe, "post pipe connect")
        finally:
            with self._through:
                self._seen = max(self._seen, number)
                self._through.notify_all()

    def _disconnected(self, peer: mq.Peer, socket: Socket) -> None:
        pipe = socket._pipe_of(peer)
        socket._forget(peer)
        self._met.discard(peer.id)
        if peer.id in self._turned_away:
            self._turned_away.discard(peer.id)
            return
        pipe._closed = True
        self._call(self.gone, pipe, "post pipe remove")

    def _call(self, callbacks: list[Callback], pipe: Pipe, what: str) -> None:
        for callback in tuple(callbacks):
            try:
                callback(pipe)
            except Exception:
                logger.exception("the %s callback %r failed", what, callback)


def _call_back(watch: Watch, ref: weakref.ref[Any]) -> None:
    lost = 0
    for event in watch._stream:
        socket = ref()
        if socket is None:
            return
        if watch._stream.lost > lost:
            lost = watch._stream.lost
            logger.error("%d events came faster than the callbacks took them, and are lost", lost)
        watch.take(event, socket)
        del socket, event


#: of listeners and dialers without TLS of their own
NO_TLS = "give tls_config to the socket before it dials or listens"


def tls_option(name: str) -> Option:
    return absent(name, NO_TLS)
