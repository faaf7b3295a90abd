"""A tunnel between a binding of Iris and the cluster: messages cut into chunks, and credit.

The receiver of a direction grants bytes with TUN_ALLOW: first its whole buffer, then what it has
consumed. A sender may begin a message if its credit covers the first chunk. The further chunks of
that message follow without waiting, so that credit may fall below zero.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from mqcore.base.described import described
from mqcore.cluster.relay_frames import (
    CHUNK,
    MalformedPacket,
    TunnelAllow,
    TunnelTransfer,
)
from mqcore.errors import Error

WINDOW = 4 << 20        # bytes that a binding may send ahead
MAX_CREDIT = 1 << 40    # bytes that a binding may grant


class Pipe:
    """One tunnel, as seen from its binding's connection.

    Args:
        number: the binding's id of it.
        send: writes a frame to the binding.
        drain: waits until the binding takes more.
        limit: bytes of a message.
    """

    def __init__(self, number: int, send: Callable[[Any], None], drain: Callable[[], Any],
                 limit: int) -> None:
        self.number = number
        self._send = send
        self._drain = drain
        self._limit = limit
        self._credit = 0                    # bytes that the binding takes
        self._more = asyncio.Event()
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._held = 0                      # bytes from the binding, not yet returned as credit
        self._partial = bytearray()
        self._expected = 0                  # bytes of the message that comes in pieces

    # -- from the binding --------------------------------------------------------------------------

    def allow(self, size: int) -> None:
        """The binding takes more."""
        self._credit = min(self._credit + size, MAX_CREDIT)
        self._more.set()

    def transfer(self, size: int, chunk: bytes) -> bool:
        """A piece of a message came. False: it belongs to none. Raises MalformedPacket."""
        if size:
            if size > self._limit:
                raise MalformedPacket(f"a message of {size} bytes in a tunnel, {self._limit} is "
                                      "the limit")
            self._return(len(self._partial))    # an unfinished message is discarded
            self._partial.clear()
            self._expected = size
        elif not self._expected:
            self._return(len(chunk))
            return False
        self._partial += chunk
        self._held += len(chunk)
        if len(self._partial) > self._expected:
            raise MalformedPacket(f"{len(self._partial)} bytes of a message of {self._expected}")
        if self._held > WINDOW + self._limit:
            raise MalformedPacket(f"{self._held} bytes in a tunnel that allows {WINDOW}")
        if len(self._partial) == self._expected:
            self._queue.put_nowait(bytes(self._partial))
            self._partial.clear()
            self._expected = 0
        return True

    def finish(self) -> None:
        """The binding has closed the tunnel: what it sent still goes."""
        self._queue.put_nowait(None)

    # -- the pumps ---------------------------------------------------------------------------------

    async def run(self, tunnel: Any) -> str:
        """Moves messages both ways until either side ends. Returns the reason, "" if all is well.
        The caller closes the tunnel."""
        self._send(TunnelAllow(self.number, WINDOW))
        pumps = {asyncio.ensure_future(self._up(tunnel)), asyncio.ensure_future(self._down(tunnel))}
        try:
            done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            results = await asyncio.gather(*pumps, return_exceptions=True)
        for result in results:
            if isinstance(result, Error):
                return result.text
            if isinstance(result, Exception):
                return described(result)
        return ""

    async def _up(self, tunnel: Any) -> None:
        while (message := await self._queue.get()) is not None:
            await tunnel.asend(message)
            self._held -= len(message)
            self._return(len(message))

    async def _down(self, tunnel: Any) -> None:
        async for message in tunnel:
            view = memoryview(message)
            while self._credit < min(CHUNK, len(view)):
                self._more.clear()
                await self._more.wait()
            for at in range(0, len(view), CHUNK):
                chunk = bytes(view[at:at + CHUNK])
                self._credit -= len(chunk)
                self._send(TunnelTransfer(self.number, 0 if at else len(view), chunk))
                await self._drain()

    def _return(self, size: int) -> None:
        if size:
            self._send(TunnelAllow(self.number, size))
