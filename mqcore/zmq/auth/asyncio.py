"""AsyncioAuthenticator: a ZAP handler as a task of the running loop."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

from mqcore.zmq.asyncio.poller import Poller
from mqcore.zmq.auth.base import Authenticator
from mqcore.zmq.borrowed import lend
from mqcore.zmq.constants import PollEvent


class AsyncioAuthenticator(Authenticator):
    """Authenticator in the loop: start() it there."""

    def __init__(self, context: Any = None, loop: Any = None, encoding: str = "utf-8",
                 log: Any = None) -> None:
        super().__init__(context, encoding, log)
        if loop is not None:
            warnings.warn("AsyncioAuthenticator's loop is that in which start() is called",
                          DeprecationWarning, stacklevel=2)
        self.loop = loop
        self._task: Any = None
        self._poller: Any = None

    async def _serve(self) -> None:
        while True:
            if dict(await self._poller.poll()).get(self.zap_socket):
                await self.handle_zap_message(self.zap_socket.recv_multipart())

    def start(self) -> None:
        """Bind the handler and begin to answer."""
        super().start()
        self._poller = Poller()
        self._poller.register(self.zap_socket, PollEvent.POLLIN)
        self._task = asyncio.ensure_future(self._serve())

    def stop(self) -> None:
        """No more answers."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self.zap_socket is not None:
            self._poller.unregister(self.zap_socket)
        super().stop()


__all__ = ["AsyncioAuthenticator"]

__getattr__ = lend(__name__)
