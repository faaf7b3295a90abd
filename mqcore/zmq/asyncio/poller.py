"""Poller whose poll() gives a future."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import mqcore as mq
from mqcore.api.poll import FEW
from mqcore.zmq.calls import look
from mqcore.zmq.poller import Poller as SyncPoller
from mqcore.zmq.poller import _failed, awaited, entries, limit_of, merged, to_wait_for


async def apoll(sockets: list[tuple[Any, int]], timeout: int | None) -> list[tuple[Any, int]]:
    """zmq_poll(), awaitable."""
    asked = entries(sockets)
    end = None if timeout is None or timeout < 0 else time.monotonic() + int(timeout) / 1000
    while True:
        ready, others = look(sockets)
        if ready and not others:
            return ready
        left = 0 if ready else None if end is None else max(0.0, end - time.monotonic())
        try:
            found = await mq.apoll(to_wait_for(asked), left)
        except mq.Error as error:
            raise _failed(asked, error) from error
        result = merged(asked, found)
        if result or left == 0:
            return result


def begun(look: Callable[[], Any], timeout: int | None, wait: Callable[[], Any]) -> Any:
    """A future of what look() finds, done if there is something or no time to wait; else of
    wait()."""
    future = asyncio.get_running_loop().create_future()
    try:
        found = look()
    except Exception as error:
        future.set_exception(error)
        return future
    if not found and timeout != 0:
        return asyncio.ensure_future(wait())
    future.set_result(found)
    return future


class Poller(SyncPoller):
    """zmq.Poller for asyncio."""

    def poll(self, timeout: int | None = None) -> Any:
        """A future of what zmq.Poller.poll() returns."""
        look = super().poll
        return begun(lambda: look(0), timeout, lambda: self._apoll(timeout))

    async def _apoll(self, timeout: int | None) -> list[tuple[Any, int]]:
        some = self._claimed() if len(self.sockets) > FEW else None
        if some is None:  # another task polls; or the loop reads for itself, since there are few
            return await apoll(list(self.sockets), timeout)
        try:
            return await awaited(some, self._asked(), limit_of(timeout))
        finally:
            some.release()
