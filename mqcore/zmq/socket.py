"""Socket: libzmq's socket over one of mqcore's. Sending and receiving are Transfer's."""

from __future__ import annotations

import random
import secrets
import time
import warnings
import weakref
from enum import IntEnum
from functools import partial
from types import GenericAlias
from typing import Any, ClassVar

import mqcore as mq
from mqcore.base.waits import Released, guest, start_behind
from mqcore.zmq import options
from mqcore.zmq.attributes import Attributes, shown_module
from mqcore.zmq.borrowed import lend
from mqcore.zmq.constants import Errno, Event, PollEvent, SocketOption, SocketType
from mqcore.zmq.error import ZMQBindError, ZMQError, make
from mqcore.zmq.home import Home
from mqcore.zmq.monitor import Monitor
from mqcore.zmq.part import COPY_THRESHOLD
from mqcore.zmq.shared import Shared
from mqcore.zmq.talk import Talk
from mqcore.zmq.transfer import Transfer

POLLIN, POLLOUT = int(PollEvent.POLLIN), int(PollEvent.POLLOUT)
EVENTS, RCVMORE, FD = map(int, (SocketOption.EVENTS, SocketOption.RCVMORE, SocketOption.FD))
LAST_ENDPOINT, TYPE = int(SocketOption.LAST_ENDPOINT), int(SocketOption.TYPE)
TOPICS_COUNT = int(SocketOption.TOPICS_COUNT)
RANDOM_PORTS = (49152, 65536)
_SHADOWED: weakref.WeakValueDictionary[int, Shared] = weakref.WeakValueDictionary()


class BoundSocket:
    """What bind() and connect() give: `with` ends the address, not the socket."""

    def __init__(self, socket: Socket, kind: str, addr: str) -> None:
        self.socket = socket
        self.kind = kind
        self.addr = addr

    def __enter__(self) -> Socket:
        return self.socket

    def __exit__(self, *args: Any) -> None:
        if not self.socket.closed:
            getattr(self.socket, "unbind" if self.kind == "bind" else "disconnect")(self.addr)

    def __repr__(self) -> str:
        return f"<SocketContext({self.kind}={self.addr!r})>"


class Socket(Transfer, Attributes, Talk):
    """A socket of a Context. Any thread may use it: a message is sent and received whole."""

    _known: ClassVar[type[IntEnum]] = SocketOption
    _shadow = False
    _warn_unclosed = True
    context: Any
    __class_getitem__: Any = classmethod(GenericAlias)  # annotations say zmq.Socket[bytes]

    def __init__(self, ctx_or_socket: Any = None, socket_type: int = 0, *, shadow: Any = 0,
                 copy_threshold: int | None = None) -> None:
        if isinstance(ctx_or_socket, Socket):
            shadow, ctx_or_socket = ctx_or_socket, None
        self.copy_threshold = COPY_THRESHOLD if copy_threshold is None else copy_threshold
        self._monitor: Monitor | None = None
        self._shadow_obj = shadow if isinstance(shadow, Socket) else None  # pyzmq's; keeps it alive
        if shadow:
            self._shadow = True
            self._shared = _shared_of(shadow)
            self.context = getattr(shadow, "context", None)
        else:
            if ctx_or_socket is None:
                raise TypeError("a Socket needs a Context: Context().socket(type)")
            self.context = ctx_or_socket
            self._shared = Shared(ctx_or_socket._home, socket_type)
            _SHADOWED[id(self._shared)] = self._shared
        if self._shared.core is not None:
            self._set_quick()

    # -- life --------------------------------------------------------------------------------------

    def close(self, linger: int | None = None) -> None:
        """Nothing more is sent or received. What was sent is delivered behind, for `linger`
        milliseconds (left out: LINGER); Context.term() waits for it."""
        if self._shadow:
            self.__dict__["_let_go"] = True
        if guest():  # see base/waits.pyx
            self._shared.closed = True
            start_behind(partial(self._close, linger), "mqcore-zmq")
        else:
            self._close(linger)

    def _close(self, linger: int | None) -> None:
        with Released():
            self.disable_monitor()
            self._shared.close(linger)
            self.disable_monitor()  # another thread may have begun one; none begins from now on

    @property
    def closed(self) -> bool:
        """close() was called, or the context is gone."""
        core = self._shared.core
        return self._shared.closed or (core is not None and core._links.hub.forked)

    @property
    def underlying(self) -> int:
        """A number for shadow(), in this process."""
        return id(self._shared)

    @classmethod
    def shadow(cls, address: Any) -> Any:
        """The same socket as another object, of this class. `address`: a Socket, or its
        `underlying`."""
        return cls(shadow=address)

    def __copy__(self, memo: Any = None) -> Any:
        return type(self).shadow(self)

    __deepcopy__ = __copy__

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *args: Any, **kwargs: Any) -> None:
        self.close()

    def __del__(self) -> None:
        shared = self.__dict__.get("_shared")
        if shared is None or self._shadow or self.closed:
            return
        if self._warn_unclosed:
            warnings.warn(f"Unclosed socket {self}", ResourceWarning, stacklevel=2, source=self)
        self.close()

    def __repr__(self) -> str:
        cls = type(self)
        module = shown_module(cls)
        state = " closed" if self._shared.closed else ""
        return f"<{module}.{cls.__name__}(zmq.{self.type.name}) at {hex(id(self))}{state}>"

    # -- options -----------------------------------------------------------------------------------

    @property
    def type(self) -> SocketType:
        """What kind of socket it is."""
        return self._shared.type

    @property
    def socket_type(self) -> SocketType:
        """Deprecated: `type`."""
        warnings.warn("Socket.socket_type is deprecated, use Socket.type", DeprecationWarning,
                      stacklevel=2)
        return self._shared.type

    def set(self, option: int, optval: Any) -> None:
        """Set an option by its number."""
        self._shared.refuse()
        options.write(self._shared, option, optval)
        if self._core is not self._shared.core:
            self._set_quick()

    def get(self, option: int) -> Any:
        """An option's value by its number."""
        shared = self._shared
        shared.refuse()
        if option == EVENTS:
            found = self._now()
            if not found & POLLIN:
                self._open()._look_beside()
            return found
        if option == RCVMORE:
            return int(self._more)
        if option == FD:
            fd = shared.descriptor()
            self._set_quick()
            return fd
        if option == LAST_ENDPOINT:
            return shared.last
        if option == TYPE:
            return int(shared.type)
        if option == TOPICS_COUNT:
            return len(shared.wanted)
        return options.read(shared, option)

    setsockopt = set
    getsockopt = get

    def set_string(self, option: int, optval: str, encoding: str = "utf-8") -> None:
        """set() of text."""
        if not isinstance(optval, str):
            raise TypeError(f"strings only, not {type(optval)}: {optval!r}")
        self.set(option, optval.encode(encoding))

    def get_string(self, option: int, encoding: str = "utf-8") -> str:
        """get() of text."""
        value = self.get(option)
        if not isinstance(value, bytes):
            raise TypeError(f"option {option} will not return a string to be decoded")
        return value.decode(encoding)

    setsockopt_string = setsockopt_unicode = set_string
    getsockopt_string = getsockopt_unicode = get_string

    def get_hwm(self) -> int:
        """SNDHWM."""
        return int(self.get(SocketOption.SNDHWM))

    def set_hwm(self, value: int) -> None:
        """SNDHWM and RCVHWM."""
        self.set(SocketOption.HWM, value)

    hwm = property(get_hwm, set_hwm, None, "SNDHWM; set: RCVHWM too.")

    def __setattr__(self, key: str, value: Any) -> None:
        if key in ("subscribe", "unsubscribe"):  # options by the names of methods
            getattr(self, key)(value)
        else:
            super().__setattr__(key, value)

    def subscribe(self, topic: str | bytes) -> None:
        """SUB: want messages that start so."""
        self.set(SocketOption.SUBSCRIBE, topic.encode() if isinstance(topic, str) else topic)

    def unsubscribe(self, topic: str | bytes) -> None:
        """SUB: take it back."""
        self.set(SocketOption.UNSUBSCRIBE, topic.encode() if isinstance(topic, str) else topic)

    def join(self, group: str | bytes) -> None:
        """DISH: want the messages of a group."""
        self._group("join", group)

    def leave(self, group: str | bytes) -> None:
        """DISH: take it back."""
        self._group("leave", group)

    def _group(self, what: str, group: str | bytes) -> None:
        core = self._open()
        if self._shared.type != SocketType.DISH:
            raise ZMQError(Errno.EINVAL)
        try:
            getattr(core, what)(group)
        except mq.Error as error:
            raise make(Errno.EINVAL, error.text) from error

    # -- addresses ---------------------------------------------------------------------------------

    def bind(self, addr: str) -> BoundSocket:
        """Listen there. The real address is LAST_ENDPOINT."""
        return BoundSocket(self, "bind", self._shared.attach("bind", addr).said)

    def connect(self, addr: str) -> BoundSocket:
        """Keep a connection to this address."""
        return BoundSocket(self, "connect", self._shared.attach("connect", addr).said)

    def connect_peer(self, addr: str) -> int:
        """PEER: connect() that waits for the peer and returns its routing id. EAGAIN after
        SNDTIMEO."""
        return self._shared.attach_peer(addr)

    def unbind(self, addr: str | bytes) -> None:
        """Stop listening there."""
        self._shared.detach("bind", addr)

    def disconnect(self, addr: str | bytes) -> None:
        """End that connection."""
        self._shared.detach("connect", addr)

    def bind_to_random_port(self, addr: str, min_port: int = RANDOM_PORTS[0],
                            max_port: int = RANDOM_PORTS[1], max_tries: int = 100) -> int:
        """bind() at a free port; which it is. ZMQBindError if there is none among those tried."""
        if (min_port, max_port) == RANDOM_PORTS:
            self.bind(f"{addr}:*")
            return int(self.get_string(SocketOption.LAST_ENDPOINT).rpartition(":")[2])
        for _ in range(max_tries):
            port = random.randrange(min_port, max_port)
            try:
                self.bind(f"{addr}:{port}")
            except ZMQError as error:
                if error.errno not in (Errno.EADDRINUSE, 13):  # EACCES: a port of the system's
                    raise
            else:
                return port
        raise ZMQBindError("Could not bind socket to random port.")

    # -- waiting -----------------------------------------------------------------------------------

    def _events(self) -> int:
        """EVENTS: POLLIN and POLLOUT, as they are now. It calms FD."""
        core = self._open()
        edge = self._shared.edge
        if edge is not None:
            try:
                edge.calm()
            except mq.Error as error:  # another thread has just closed it
                raise self._failed(error) from error
        return self._ready(core)

    def _ready(self, core: Any = None) -> int:
        core = core or self._open()
        try:
            readable, writable = core._can()
        except mq.Error as error:
            raise self._failed(error) from error
        return ((POLLIN if readable or self._more else 0)
                | (POLLOUT if writable else 0))

    def poll(self, timeout: int | None = None, flags: int = POLLIN) -> int:
        """Which of POLLIN and POLLOUT hold, waiting up to `timeout` milliseconds for one; 0: none
        in time."""
        if self.closed:
            raise ZMQError(Errno.ENOTSUP)
        core = self._open()
        flags = int(flags)
        end = None
        if timeout is not None and not timeout < 0:
            timeout = int(timeout)      # which refuses NaN: no time is ever later
            end = time.monotonic() + timeout / 1000
        while True:
            seen = core._change()
            found = self._now() & flags
            if found or timeout == 0:
                if not found:
                    core._look_beside()
                return found
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return 0
            try:
                core._wait(seen, left)
            except mq.Error as error:
                raise self._failed(error) from error

    def fileno(self) -> int:
        """FD."""
        return int(self.get(SocketOption.FD))

    # -- monitors ----------------------------------------------------------------------------------

    def monitor(self, addr: str | bytes | None, events: int = int(Event.ALL)) -> None:
        """Tell of connections at a PAIR socket bound to this inproc address. None: no more."""
        core = self._open()
        with self._shared.alone():
            self._shared.refuse()
            monitor, self._monitor = self._monitor, None
            if monitor is not None:
                monitor.close()
            if addr is not None:
                home: Home = self._shared.home
                self._monitor = Monitor(core, home.context(), addr, events)

    def get_monitor_socket(self, events: int | None = None, addr: str | None = None) -> Any:
        """A PAIR socket that gets this socket's events; zmq.utils.monitor reads them."""
        found = self.__dict__.get("_monitor_socket")
        if found is not None and not found.closed:
            return found
        if addr is None:
            addr = f"inproc://monitor.s-{secrets.token_hex(6)}"
        self.monitor(addr, int(Event.ALL) if events is None else events)
        found = self.context.socket(SocketType.PAIR)
        try:
            found.connect(addr)
        except BaseException:  # term() would wait for it
            found.close(0)
            raise
        self.__dict__["_monitor_socket"] = found
        return found

    def disable_monitor(self) -> None:
        """End it. Closing the socket does so, too."""
        self.__dict__.pop("_monitor_socket", None)
        with self._shared.alone():
            monitor, self._monitor = self._monitor, None
        if monitor is not None:
            monitor.close()


def _shared_of(shadow: Any) -> Shared:
    if isinstance(shadow, Socket):
        return shadow._shared
    found = _SHADOWED.get(int(shadow))
    if found is None:
        raise make(Errno.ENOTSOCK, "no socket of mqcore.zmq is at this address")
    return found


SyncSocket = Socket

__getattr__ = lend(__name__)
