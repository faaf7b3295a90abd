"""ThreadAuthenticator: a ZAP handler on a thread of its own, for programs that block."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from mqcore.base.native import threading
from mqcore.base.waits import Event, guest, start, start_behind
from mqcore.zmq.auth.base import Authenticator
from mqcore.zmq.borrowed import lend
from mqcore.zmq.constants import Errno, PollEvent, SocketType
from mqcore.zmq.error import ZMQError
from mqcore.zmq.poller import Poller
from mqcore.zmq.socket import Socket

STOP = b"TERMINATE"


class AuthenticationThread(threading.Thread):
    """Answers requests until something comes through the pipe."""

    pipe: Any
    poller: Any = None
    started: Event
    _instead: Any = None  # the thread, in a program whose threads gevent has patched meanwhile

    def __init__(self, authenticator: Authenticator, pipe: Any) -> None:
        super().__init__(daemon=True, name="mqcore-zmq-auth")
        self.authenticator = authenticator
        self.log = authenticator.log
        self.pipe = pipe
        self.started = Event()

    def start(self) -> None:
        """As a thread of the system's: a greenlet that blocks would stop all others."""
        if isinstance(self, threading.Thread):
            super().start()
        else:
            self._instead = threading.Thread(target=self.run, name=self.name, daemon=True)
            self._instead.start()

    def is_alive(self) -> bool:
        """It runs."""
        return super().is_alive() if self._instead is None else bool(self._instead.is_alive())

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""
        (super().join if self._instead is None else self._instead.join)(timeout)

    def run(self) -> None:
        """On this thread."""
        try:
            asyncio.run(self._run())
        except ZMQError as error:
            if error.errno not in (Errno.ETERM, Errno.ENOTSOCK):  # else the context has ended
                raise
        finally:
            self.started.set()  # waiters see that the thread has ended

    async def _run(self) -> None:
        zap = self.authenticator.zap_socket
        try:
            self.poller = Poller()
            self.poller.register(self.pipe, PollEvent.POLLIN)
            self.poller.register(zap, PollEvent.POLLIN)
            self.started.set()
            while True:
                ready = dict(self.poller.poll())
                if self.pipe in ready and self._handle_pipe_message(self.pipe.recv_multipart()):
                    return
                if zap in ready:
                    await self.authenticator.handle_zap_message(zap.recv_multipart())
        finally:
            self.pipe.close()
            Authenticator.stop(self.authenticator)  # its own stop() waits for us

    def _handle_pipe_message(self, msg: list[bytes]) -> bool:
        """True: that was all."""
        return msg[0] == STOP


class ThreadAuthenticator(Authenticator):
    """Authenticator on a thread: start() and stop(), everything else at any time between."""

    pipe_endpoint: ClassVar[str] = ""
    thread: Any
    pipe: Any

    def __init__(self, context: Any = None, encoding: str = "utf-8", log: Any = None) -> None:
        super().__init__(context=context, encoding=encoding, log=log)
        self.pipe = None
        self.pipe_endpoint = f"inproc://{id(self)}.inproc"  # type: ignore[misc]
        self.thread = None

    def start(self) -> None:
        """Start the thread; the handler is bound when this returns."""
        super().start()
        self.pipe = self.context.socket(SocketType.PAIR, socket_class=Socket)
        self.pipe.linger = 1
        self.pipe.bind(self.pipe_endpoint)
        far = self.context.socket(SocketType.PAIR, socket_class=Socket)
        far.linger = 1
        far.connect(self.pipe_endpoint)
        self.thread = AuthenticationThread(self, far)
        start(self.thread)
        if not self.thread.started.wait(timeout=10):
            raise RuntimeError("Authenticator thread failed to start")

    def stop(self) -> None:
        """End the thread and wait for it. In a finalizer that may not wait another thread does."""
        if self.pipe and guest():   # see base/waits.pyx
            start_behind(self.stop, "mqcore-zmq")
        elif self.pipe:
            if self.is_alive():
                self.pipe.send(STOP)
                self.thread.join()
            self.thread = None
            self.pipe.close()
            self.pipe = None

    def is_alive(self) -> bool:
        """The thread runs."""
        return bool(self.thread and self.thread.is_alive())

    def __del__(self) -> None:
        self.stop()


__all__ = ["ThreadAuthenticator"]

__getattr__ = lend(__name__)
