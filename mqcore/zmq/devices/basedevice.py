"""Device: what to make and where to bind, told before, done when it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing import Process
from threading import Thread
from typing import Any, ClassVar

from mqcore.zmq.constants import DeviceType, Errno, SocketType
from mqcore.zmq.context import Context
from mqcore.zmq.device import proxy
from mqcore.zmq.error import ZMQBindError, ZMQError

TRIES = 100  # for a port that the device's other ends have not


class End:
    """One of a device's sockets: its type, and what is to be done with it."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.binds: list[str] = []
        self.connects: list[str] = []
        self.options: list[tuple[int, Any]] = []

    def reserve(self, addr: str, taken: set[str], *args: Any, **kwargs: Any) -> int:
        """A free port for later: a socket of the moment finds it. taken: what the device's ends
        have already."""
        for _ in range(TRIES):
            with Context() as context, context.socket(SocketType.PUSH) as socket:
                port = int(socket.bind_to_random_port(addr, *args, **kwargs))
            if f"{addr}:{port}" not in taken:
                taken.add(f"{addr}:{port}")
                self.binds.append(f"{addr}:{port}")
                return port
        raise ZMQBindError("Could not reserve random port.")

    def make(self, context: Any) -> Any:
        socket = context.socket(self.kind)
        for option, value in self.options:
            socket.setsockopt(option, value)
        for addr in self.binds:
            socket.bind(addr)
        for addr in self.connects:
            socket.connect(addr)
        return socket


class Device:
    """A proxy that start() runs here, in the caller's thread. out_type -1: one socket, whose
    messages come back to it."""

    #: makes the context that the sockets are of
    context_factory: Callable[[], Any] = Context.instance
    daemon = True

    def __init__(self, device_type: int = DeviceType.QUEUE, in_type: int | None = None,
                 out_type: int | None = None) -> None:
        if in_type is None or out_type is None:
            raise TypeError("a device needs in_type and out_type")
        self.device_type = device_type
        self.in_type, self.out_type = in_type, out_type
        self.done = False
        self._in = End(in_type)
        self._out = End(out_type) if out_type >= 0 else self._in
        self._sockets: list[Any] = []
        self._reserved: set[str] = set()

    def bind_in(self, addr: str) -> None:
        """The in side listens there."""
        self._in.binds.append(addr)

    def bind_in_to_random_port(self, addr: str, *args: Any, **kwargs: Any) -> int:
        """bind_in() at a free port; which it is."""
        return self._in.reserve(addr, self._reserved, *args, **kwargs)

    def connect_in(self, addr: str) -> None:
        """The in side connects there."""
        self._in.connects.append(addr)

    def setsockopt_in(self, opt: int, value: Any) -> None:
        """An option of the in side."""
        self._in.options.append((opt, value))

    def bind_out(self, addr: str) -> None:
        """The out side listens there."""
        self._out.binds.append(addr)

    def bind_out_to_random_port(self, addr: str, *args: Any, **kwargs: Any) -> int:
        """bind_out() at a free port; which it is."""
        return self._out.reserve(addr, self._reserved, *args, **kwargs)

    def connect_out(self, addr: str) -> None:
        """The out side connects there."""
        self._out.connects.append(addr)

    def setsockopt_out(self, opt: int, value: Any) -> None:
        """An option of the out side."""
        self._out.options.append((opt, value))

    def _ends(self) -> tuple[End, ...]:
        return self._in, self._out

    def _setup_sockets(self) -> tuple[Any, ...]:
        context = self.context_factory()
        self._context = context
        ends = self._ends()
        made = {end: self._keep(end.make(context)) for end in dict.fromkeys(ends)}
        return tuple(made[end] for end in ends)

    def _keep(self, socket: Any) -> Any:
        self._sockets.append(socket)
        return socket

    def run_device(self) -> Any:
        """Make the sockets and move messages until the context ends."""
        return proxy(*self._setup_sockets())

    def _close_sockets(self) -> None:
        for socket in self._sockets:
            socket.close()
        self._sockets = []

    def run(self) -> None:
        """run_device(), whose end with the context is no error."""
        try:
            self.run_device()
        except ZMQError as error:
            if error.errno not in (Errno.ETERM, Errno.ENOTSOCK):
                raise
        finally:
            self.done = True
            self._close_sockets()

    def start(self) -> Any:
        """Run it."""
        return self.run()

    def join(self, timeout: float | None = None) -> Any:
        """Until it is done, or so many seconds."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self.done and (end is None or time.monotonic() < end):
            time.sleep(0.001)


class BackgroundDevice(Device):
    """One that start() runs beside the caller."""

    launcher: Any = None
    _launch_class: ClassVar[Any] = None

    def start(self) -> None:
        self.launcher = self._launch_class(target=self.run)
        self.launcher.daemon = self.daemon
        self.launcher.start()

    def join(self, timeout: float | None = None) -> Any:
        return self.launcher.join(timeout)


class ThreadDevice(BackgroundDevice):
    """In a thread of its own."""

    _launch_class = Thread


class ProcessDevice(BackgroundDevice):
    """In a process of its own, with a context of its own."""

    _launch_class = Process
    context_factory = Context
