"""Members that are not ours: a plain REP or Rep0 socket, offered by this node as a service."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from mqcore.api.patterns import Req
from mqcore.api.wakers import waker_of
from mqcore.binding.sleep import sleep
from mqcore.cluster import frames
from mqcore.cluster.services import Refusal, Service
from mqcore.errors import Error, PeerGone, SocketClosed, Timeout

if TYPE_CHECKING:
    from mqcore.cluster.node import Core

LOOK = 0.1          # seconds between two looks at the connection
READY = 5.0         # seconds that aadopt() waits for it
GRACE = 1.0         # seconds to connect again: a request that is given up breaks the connection
WAITING = 16 << 20  # bytes of requests that wait for it


class _Forward:
    """REP answers one request at a time, and a request waits for the one before."""

    def __init__(self, adopted: Adopted) -> None:
        self.adopted = adopted

    async def request(self, req: Any) -> bytes:
        while not self.adopted.connected:
            if self.adopted.gone:       # it has not run, so another member may
                raise Refusal(frames.NO_SERVICE)
            await sleep(LOOK / 5)
        loop = self.adopted.node.loop
        found: list[bytes | Exception] = []
        nap = loop.nap()

        async def ask() -> None:
            try:
                found.append(await self._ask(req))
            except (Error, OSError, Refusal) as error:
                if isinstance(error, PeerGone):     # the next one must not take it for connected
                    await self.adopted.node.until(lambda: not self.adopted.connected, GRACE)
                found.append(_refusal_of(error))
            finally:
                nap.wake()

        # while REP hangs, a request that was given up would keep its place, perhaps for ever
        req._stop = self.adopted.lost = nap.wake
        cancel = loop.spawn(ask)
        try:
            await nap.wait()
        finally:
            cancel()
        answer = found[0] if found else Refusal(frames.LOST if self.adopted.gone else None)
        if isinstance(answer, Exception):
            raise answer
        return bytes(answer)

    async def _ask(self, req: Any) -> bytes:
        try:        # before it is sent: what its answer is waited for with, kept for a while
            waker_of(self.adopted.socket)
        except OSError:     # no descriptor is left: another member may take the request
            raise Refusal(frames.OVERLOADED) from None
        left = None if req.deadline is None else max(0.0, req.deadline - time.monotonic())
        return await self.adopted.socket.arequest(req.body, timeout=left)


def _refusal_of(error: Exception) -> Exception:
    """What the requester sees of it."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, PeerGone | SocketClosed):
        return Refusal(frames.LOST)
    return Refusal(None) if isinstance(error, Timeout) else error   # its own time-out tells it


class Adopted:
    """A foreign socket that serves. `aclose()` (or `async with`) ends that."""

    def __init__(self, node: Core, name: str, url: str, weight: float,
                 options: dict[str, Any]) -> None:
        self.socket = Req(**{"heartbeat": 1.0, "heartbeat_timeout": 3.0, "correlate": None,
                             **options})
        self.url = url
        self.node = node
        self.closing = False
        self._seen = float("-inf")      # when it was connected
        self.lost: Callable[[], Any] = lambda: None     # ends the request that it has
        try:
            self.service = Service(node, name, _Forward(self), concurrency=1,
                                   queue_bytes=WAITING, weight=weight, urls=(url,))
            self.endpoint = self.socket.connect(url)
        except BaseException:
            self.socket.close(linger=0)
            raise

    @property
    def connected(self) -> bool:
        return self.endpoint.state == "connected"

    @property
    def gone(self) -> bool:
        """It is not connected, and not because a request was given up."""
        return not self.connected and time.monotonic() - self._seen > GRACE

    async def watch(self) -> None:
        """Offer it while it is connected."""
        name = self.service.name
        while not (self.socket.closed or self.node.closed):
            offered = self.node.services.get(name) is self.service
            other = self.node.services.get(name)
            if self.connected:
                self._seen = time.monotonic()
            if self.connected and not self.closing and (other is None or other.offer.hops):
                await self.service.astart()
            elif self.gone and offered:
                del self.node.services[name]
                self.node.announce()
                self.lost()
            await sleep(LOOK)

    async def aclose(self) -> None:
        if not self.node.loop.inherited and not self.socket.closed:
            self.closing = True
            try:
                await self.service.astop()
            finally:
                self.node.adopted.discard(self)
                await self.socket.aclose(0)

    def close(self) -> None:
        """aclose(), blocking."""
        self.node.loop.end(self.aclose)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


async def adopt(node: Core, name: str, url: str, weight: float,
                options: dict[str, Any]) -> Adopted:
    adopted = Adopted(node, name, url, weight, options)
    node.adopted.add(adopted)       # from here on, the node closes it when it leaves
    try:
        await adopted.endpoint.await_ready(READY)
    except (TimeoutError, SocketClosed):
        pass            # it is offered when it comes
    except BaseException:           # cancelled: the caller cannot close it
        node.adopted.discard(adopted)
        adopted.socket.close(linger=0)
        raise
    node.loop.spawn(adopted.watch)
    return adopted
