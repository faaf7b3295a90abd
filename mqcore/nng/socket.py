"""Socket: what all patterns have, nng's rules over one of mqcore's sockets."""

from __future__ import annotations

import itertools
import logging
from typing import Any, ClassVar

import mqcore as mq
from mqcore.base.native import threading
from mqcore.nng import options
from mqcore.nng.address import SECURE, split, to_mqcore
from mqcore.nng.endpoints import Dialer, Listener
from mqcore.nng.exceptions import (
    AuthenticationError,
    Closed,
    ConnectionRefused,
    CryptoError,
    NotSupported,
    make,
    translated,
)
from mqcore.nng.fds import SendLevel
from mqcore.nng.first import first_attempt
from mqcore.nng.lib import Opener
from mqcore.nng.lines import Line
from mqcore.nng.options import Option, absent
from mqcore.nng.pipes import Callback, Message, Pipe, Watch
from mqcore.nng.talks import Context, Talks
from mqcore.nng.tls import TLSConfig
from mqcore.spi import sp

logger = logging.getLogger("mqcore.nng")


class Socket(Talks):
    """Base of the patterns. `socket` is mqcore's own, with all that it can do."""

    _pattern: ClassVar[str] = ""        # mqcore's name
    _protocol: ClassVar[int] = 0        # SP's number
    _buffers: ClassVar[tuple[int, int]] = (0, 0)        # receive, send: nng's defaults
    _least: ClassVar[tuple[int, int]] = (0, 0)          # and the shortest that it takes
    _queues: ClassVar[bool] = False     # messages wait for a peer in send_buffer_size
    _line_of: ClassVar[type[Line]] = Line

    def __new__(cls, *args: Any, opener: Opener | None = None, **kwargs: Any) -> Socket:
        kind: Any = cls
        if cls is Socket and opener is not None:  # nng's way to say which pattern
            kind = next((one for one in cls.__subclasses__() + [
                deep for one in cls.__subclasses__() for deep in one.__subclasses__()]
                if one.__name__ == opener.pattern), cls)
        made: Socket = super().__new__(kind)
        return made

    def __init__(self, *, dial: str | bytes | None = None, listen: str | bytes | None = None,
                 recv_timeout: int | None = None, send_timeout: int | None = None,
                 recv_buffer_size: int | None = None, send_buffer_size: int | None = None,
                 recv_max_size: int | None = None, reconnect_time_min: int | None = None,
                 reconnect_time_max: int | None = None, opener: Opener | None = None,
                 block_on_dial: bool | None = None, name: str | None = None,
                 tls_config: TLSConfig | None = None, async_backend: str | None = None) -> None:
        if not self._pattern:
            raise TypeError("Socket is the base of the patterns; make a Pair0, Req0, Sub0 ...")
        if opener is not None:
            opener.check(type(self).__name__)
        self._listeners: dict[int, Listener] = {}
        self._dialers: dict[int, Dialer] = {}
        self._pipes: dict[int, Pipe] = {}
        self._numbers = itertools.count(1)
        self._watch: Watch | None = None
        self._send_level: SendLevel | None = None
        # The first use makes a watch or a descriptor, once. Reentrant: for signal handlers.
        self._lock = threading.RLock()
        self._tls: TLSConfig | None = None
        self._reconnect = [1000, 0]
        self._size = list(self._buffers)
        self._nodelay = True
        self._core: Any = self._make()
        self._name = str(self._core._links.number)
        self._line = self._first_line()
        given = {"recv_timeout": recv_timeout, "send_timeout": send_timeout,
                 "recv_buffer_size": recv_buffer_size, "send_buffer_size": send_buffer_size,
                 "recv_max_size": recv_max_size, "reconnect_time_min": reconnect_time_min,
                 "reconnect_time_max": reconnect_time_max, "name": name, "tls_config": tls_config}
        try:
            for option, value in given.items():
                if value is not None:
                    setattr(self, option, value)
            if listen is not None:
                self.listen(listen)
            if dial is not None:
                self.dial(dial, block=block_on_dial)
        except BaseException:
            self.close()
            raise

    def _make(self, **more: Any) -> Any:
        """mqcore's socket. Without a send buffer nng waits for a peer: `immediate`."""
        return mq.socket(self._pattern, wire="sp", immediate=True, max_message_size=None,
                         max_unfinished=None, reconnect=1.0, reconnect_max=1.0, keepalive=False,
                         **more)

    # -- lines -------------------------------------------------------------------------------------

    def _first_line(self) -> Line:
        return self._line_of(self._core, self._core)

    def _new_line(self) -> Line:
        if self._core.closed:
            raise make(Closed, "the socket is closed")
        raise make(NotSupported, f"{type(self).__name__} has no contexts")

    def new_context(self) -> Context:
        """A line of its own over the same connections."""
        return Context(self)

    def _owner(self) -> Socket:
        return self

    @property
    def socket(self) -> Any:
        """mqcore's socket."""
        return self._core

    def send(self, data: Any, block: bool = True) -> None:
        """Send bytes. Timeout after send_timeout, TryAgain if it must not block."""
        self._send(data, block)

    def recv(self, block: bool = True) -> bytes:
        """The next message. Timeout after recv_timeout, TryAgain if it must not block."""
        return self._recv(block)

    def send_msg(self, msg: Message, block: bool = True) -> None:
        """send() of a Message, once."""
        self._send_msg(msg, block)

    def recv_msg(self, block: bool = True) -> Message:
        """recv() that gives a Message, which knows its pipe."""
        return self._recv_msg(block)

    def _sent(self) -> None:
        level = self._send_level
        if level is not None and not self._core._links.hub.forked:
            level.settle()

    # -- listening and dialling --------------------------------------------------------------------

    def listen(self, address: str | bytes, flags: int = 0) -> Listener:
        """Take connections in at this address."""
        url = to_mqcore(address, "bind")
        try:
            endpoint = self._core.bind(url, **self._tls_options(address))
        except mq.Error as error:
            raise translated(error) from error
        made = Listener(endpoint, self, _text(address), self._number())
        self._listeners[made.id] = made
        return made

    def dial(self, address: str | bytes, *, block: bool | None = None) -> Dialer:
        """Keep a connection to this address. block=True: the first attempt must succeed; False:
        nothing is waited for; None: it is waited for, but a refusal is only logged."""
        if block is not None:
            return self._dial(address, block)
        try:
            return self._dial(address, True)
        except ConnectionRefused as error:
            logger.warning("%s; it is tried again in the background", error)
            return self._dial(address, False)

    def _dial(self, address: str | bytes, block: bool) -> Dialer:
        url = to_mqcore(address, "connect")
        try:
            endpoint = self._core.connect(url, **self._tls_options(address))
            failed = first_attempt(endpoint) if block else None
        except mq.Error as error:
            raise translated(error) from error
        if isinstance(failed, mq.HandshakeFailed) and split(address)[0] not in SECURE:
            # nng has dialled by then, and the peer hangs up again and again
            logger.warning("%s; it is tried again in the background", failed)
        elif failed is not None:
            endpoint.close()
            raise _refused(failed) from failed
        made = Dialer(endpoint, self, _text(address), self._number())
        self._dialers[made.id] = made
        if block and self._watch is not None:
            self._watch.settled(max((peer.id for peer in self._core.peers()
                                     if peer.endpoint == endpoint.url), default=0))
        return made

    def _tls_options(self, address: str | bytes) -> dict[str, Any]:
        if self._tls is None or split(address)[0].rstrip("46") not in SECURE:
            return {}
        return self._tls._options()

    def _number(self) -> int:
        with self._lock:  # without the GIL, itertools.count gives a number twice
            return next(self._numbers)

    def _drop(self, way: Listener | Dialer | Any) -> None:
        (self._listeners if isinstance(way, Listener) else self._dialers).pop(way.id, None)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        return tuple(list(self._listeners.values()))

    @property
    def dialers(self) -> tuple[Dialer, ...]:
        return tuple(list(self._dialers.values()))

    def close(self) -> None:
        """Deliver what was sent for up to a second, then end everything. Idempotent."""
        if self._core._links.hub.forked:  # the parent's; what it had locked stays locked here
            return
        guest = self._core._links.hub.guest
        self._core.close()
        if guest:  # see base/waits.pyx
            self._core._links.hub.behind(self._finish)
        else:
            self._finish()

    def _finish(self) -> None:
        if self._watch is not None:
            self._watch.end()
        if self._send_level is not None:
            self._send_level.close()
        self._listeners.clear()
        self._dialers.clear()
        self._pipes.clear()

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is None or core.closed or core._links.hub.forked:
            return
        core._links.hold(core)
        core._links.close_behind(core, level=self._send_level, daemon=False)

    # -- pipes -------------------------------------------------------------------------------------

    @property
    def pipes(self) -> tuple[Pipe, ...]:
        """The connections that there are now. One with a pre-connect callback is among them once
        that has returned."""
        try:
            peers = self._core.peers()
        except (mq.SocketClosed, mq.Forked):
            return ()
        watch = self._watch
        found = tuple(self._pipe_of(peer) for peer in peers if watch is None or watch.shows(peer))
        for number in set(list(self._pipes)) - {peer.id for peer in peers}:
            self._pipes.pop(number, None)
        return tuple(pipe for pipe in found if not pipe._closed)

    def _pipe_of(self, peer: mq.Peer) -> Pipe:
        found = self._pipes.get(peer.id)
        return found if found is not None else self._pipes.setdefault(peer.id, Pipe(peer, self))

    def _forget(self, peer: mq.Peer) -> None:
        self._pipes.pop(peer.id, None)

    def _has(self, pipe: Pipe) -> bool:
        return not self._core.closed and pipe.pipe.id in self._core._links.peers

    def _listener_of(self, peer: mq.Peer) -> Listener | None:
        return next((way for way in self.listeners if way._endpoint.url == peer.endpoint), None)

    def _dialer_of(self, peer: mq.Peer) -> Dialer | None:
        return next((way for way in self.dialers if way._endpoint.url == peer.endpoint), None)

    def _inherited(self) -> None:
        """Raise Closed in a forked child, where a thread of the parent may have held our lock."""
        if self._core._links.hub.forked:
            raise make(Closed, "this socket belongs to the parent process")

    def _watched(self) -> Watch:
        self._inherited()
        with self._lock:
            if self._watch is None:
                try:
                    self._watch = Watch(self)
                except mq.Error as error:
                    raise translated(error) from error
            return self._watch

    def add_pre_pipe_connect_cb(self, callback: Callback) -> None:
        """callback(pipe) before a connection takes part; it may close the pipe."""
        watch = self._watched()
        watch.before.append(callback)
        self._hold(True)

    def add_post_pipe_connect_cb(self, callback: Callback) -> None:
        """callback(pipe) when a connection takes part."""
        self._watched().after.append(callback)

    def add_post_pipe_remove_cb(self, callback: Callback) -> None:
        """callback(pipe) when a connection has ended."""
        self._watched().gone.append(callback)

    def remove_pre_pipe_connect_cb(self, callback: Callback) -> None:
        """ValueError if it was not added."""
        watch = self._watched()
        watch.before.remove(callback)
        if not watch.before:
            self._hold(False)

    def _hold(self, on: bool) -> None:
        """Keep new peers from the pattern until their first callbacks are through."""
        try:
            self._core._set("held", on)
        except mq.Error as error:
            raise translated(error) from error

    def remove_post_pipe_connect_cb(self, callback: Callback) -> None:
        """ValueError if it was not added."""
        self._watched().after.remove(callback)

    def remove_post_pipe_remove_cb(self, callback: Callback) -> None:
        """ValueError if it was not added."""
        self._watched().gone.remove(callback)

    # -- options -----------------------------------------------------------------------------------

    def _get(self, name: str) -> Any:
        if self._core.closed:
            raise make(Closed, "the socket is closed")
        return self._core._options[name]

    def _put(self, name: str, value: Any) -> None:
        try:
            self._core._set_option(name, value)
        except mq.Error as error:
            raise translated(error) from error

    def _set_pause(self, which: int, value: Any) -> None:
        self._reconnect[which] = options.whole(value)
        least, most = map(options.pause, self._reconnect)
        self._put("reconnect", least)
        self._put("reconnect_max", max(least, most))

    def _set_recv_buffer(self, value: Any) -> None:
        self._size[0] = options.buffer(value, self._least[0])
        self._put("recv_hwm", max(1, self._size[0]))

    def _set_send_buffer(self, value: Any) -> None:
        before, self._size[1] = self._size[1], options.buffer(value, self._least[1])
        self._put("send_hwm", max(1, self._size[1]))
        if self._queues and (before > 0) != (self._size[1] > 0):
            self._put("immediate", self._size[1] == 0)
            # nng queues for later peers, even without any dialer
            self._core._connects(1 if self._size[1] else -1)

    def _set_tls(self, value: Any) -> None:
        if not isinstance(value, TLSConfig):
            raise ValueError(f"tls_config is a TLSConfig, not {type(value).__name__}")
        self._tls = value

    def _set_name(self, value: Any) -> None:
        self._name = str(value)

    def _set_nodelay(self, value: Any) -> None:
        self._nodelay = bool(value)

    def _recv_fd(self) -> int:
        return self._fd("receives", lambda: self._core.fileno())

    def _send_fd(self) -> int:
        def made() -> int:
            self._inherited()
            with self._lock:
                level = self._send_level
                if level is None:
                    level = self._send_level = SendLevel(self._core)
            if self._core.closed:  # meanwhile: close() may not have seen it
                level.close()
                self._get("wire")
            return level.fd

        return self._fd("sends", made)

    def _fd(self, what: str, made: Any) -> int:
        if not getattr(self._core.plugin, what):
            raise make(NotSupported, f"{type(self).__name__} never {what}")
        try:
            return int(made())
        except mq.Error as error:
            raise translated(error) from error

    name = Option("For logs.", lambda self: self._get("wire") and self._name, _set_name)
    protocol = Option("nng's number of the pattern.", lambda self: self._protocol)
    protocol_name = Option("Its name.", lambda self: sp.name_of(self._protocol).lower())
    peer = Option("nng's number of the peer's pattern.", lambda self: sp.peer_of(self._protocol))
    peer_name = Option("Its name.", lambda self: sp.name_of(self.peer).lower())
    raw = Option("False.", lambda self: False)
    recv_timeout = Option(
        "ms; -1: for ever.", lambda self: options.milliseconds(self._get("recv_timeout")),
        lambda self, value: self._put("recv_timeout", options.seconds(value)))
    send_timeout = Option(
        "ms; -1: for ever.", lambda self: options.milliseconds(self._get("send_timeout")),
        lambda self, value: self._put("send_timeout", options.seconds(value)))
    recv_max_size = Option(
        "Bytes; a longer message ends its connection. 0: no limit.",
        lambda self: self._get("max_message_size") or 0,
        lambda self, value: self._put("max_message_size", options.size(value)))
    reconnect_time_min = Option(
        "ms.", lambda self: self._get("wire") and self._reconnect[0],
        lambda self, value: self._set_pause(0, value))
    reconnect_time_max = Option(
        "ms; 0: always reconnect_time_min.", lambda self: self._get("wire") and self._reconnect[1],
        lambda self, value: self._set_pause(1, value))
    recv_buffer_size = Option("Messages.", lambda self: self._get("wire") and self._size[0],
                              _set_recv_buffer)
    send_buffer_size = Option("Messages.", lambda self: self._get("wire") and self._size[1],
                              _set_send_buffer)
    recv_fd = Option("Readable while recv() would not wait.", _recv_fd)
    send_fd = Option("Readable while send() would not wait.", _send_fd)
    tcp_nodelay = Option("mqcore never waits to fill a packet, whatever this says.",
                         lambda self: self._get("wire") and self._nodelay, _set_nodelay)
    tcp_keepalive = Option("Keep-alive probes, for connections from now on.",
                           lambda self: self._get("keepalive"),
                           lambda self, value: self._put("keepalive", bool(value)))
    tls_config = Option("Write-only: for what is dialled and listened to from now on.",
                        lambda self: _unreadable(), _set_tls)
    ttl_max = absent("ttl_max", "this pattern's messages do not pass devices that count")


def _unreadable() -> Any:
    raise TypeError("tls_config can only be set")


def _text(address: str | bytes) -> str:
    return address.decode() if isinstance(address, bytes) else address


def _refused(error: mq.Error) -> Exception:
    """What a dial says of a first attempt that failed."""
    if isinstance(error, mq.HandshakeFailed):  # of TLS
        kind = AuthenticationError if "certificate" in error.reason else CryptoError
        return make(kind, str(error))
    return translated(error)
