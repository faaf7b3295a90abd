"""Device: what to make and where to bind, told before, done when it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from multiprocessing import Process
from typing import Any, ClassVar

from mqcore.base.native import socket as sockets
from mqcore.base.native import threading
from mqcore.zmq.borrowed import lend
from mqcore.zmq.constants import DeviceType, Errno, SocketOption, SocketType
from mqcore.zmq.context import Context
from mqcore.zmq.device import proxy
from mqcore.zmq.error import ZMQBindError, ZMQError

TRIES = 100  # for a port that the device's other ends have not
EVERYWHERE = {"tcp://0.0.0.0", "tcp://[::]"}


def overlaps(host: str, port: str, taken: set[tuple[str, str]]) -> bool:
    """Whether a socket that listens there would be in the way of one of the others."""
    return any(port == other and (host == where or {host, where} & EVERYWHERE)
               for where, other in taken)


class End:
    """One of a device's sockets: its type, and what is to be done with it."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.binds: list[str] = []
        self.connects: list[str] = []
        self.options: list[tuple[int, Any]] = []
        self._held: list[sockets.socket] = []

    def reserve(self, addr: str, taken: set[tuple[str, str]], *args: Any, **kwargs: Any) -> int:
        """Find a free port, and hold it until the device listens there. `taken` has the hosts and
        ports of the device's other ends."""
        for _ in range(TRIES):
            with Context() as context, context.socket(SocketType.PUSH) as socket:
                port = int(socket.bind_to_random_port(addr, *args, **kwargs))
                endpoint = socket.get_string(SocketOption.LAST_ENDPOINT)
            host = endpoint.rpartition(":")[0]
            if not overlaps(host, str(port), taken) and self._hold(endpoint):
                taken.add((host, str(port)))
                self.binds.append(f"{addr}:{port}")
                return port
        raise ZMQBindError("Could not reserve random port.")

    def _hold(self, endpoint: str) -> bool:
        """Whether the port is still ours. A socket that is bound and does not listen keeps the
        port from outgoing connections and from everybody else who asks for any port; the device
        can listen there all the same, since both have SO_REUSEADDR."""
        host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
        host = host.strip("[]")
        try:
            held = sockets.socket(sockets.AF_INET6 if ":" in host else sockets.AF_INET)
        except OSError:
            return True
        try:
            held.setsockopt(sockets.SOL_SOCKET, sockets.SO_REUSEADDR, 1)
            held.bind((host, int(port)))
        except (OSError, ValueError) as error:
            held.close()
            return getattr(error, "errno", None) != Errno.EADDRINUSE
        self._held.append(held)
        return True

    def release(self) -> None:
        """Give up the ports that are held: the device listens there, or has ended."""
        for held in self._held:
            held.close()
        self._held = []

    def __getstate__(self) -> dict[str, Any]:
        """For a process that is not forked; the ports are not held there."""
        return {**self.__dict__, "_held": []}

    def __del__(self) -> None:
        self.release()

    def make(self, context: Any) -> Any:
        socket = context.socket(self.kind)
        for option, value in self.options:
            socket.setsockopt(option, value)
        for addr in self.binds:
            socket.bind(addr)
        self.release()
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
        self._reserved: set[tuple[str, str]] = set()

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
        """run_device(). The end of the context is not an error."""
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

    # looked up when it starts: gevent may have patched the threads meanwhile
    _launch_class = staticmethod(lambda **kw: threading.Thread(**kw))


class ProcessDevice(BackgroundDevice):
    """In a process of its own, with a context of its own."""

    _launch_class = Process
    context_factory = Context

    def join(self, timeout: float | None = None) -> Any:
        super().join(timeout)
        # Not sooner: a process that is not forked does not hold the ports before it listens.
        if self.launcher.exitcode is not None:
            for end in self._ends():
                end.release()


__getattr__ = lend(__name__)
