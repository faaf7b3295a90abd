"""Members that are not ours: a plain REP or Rep0 socket, offered by this node as a service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from mqcore.api.patterns import Req
from mqcore.cluster.services import Service
from mqcore.errors import SocketClosed

if TYPE_CHECKING:
    from mqcore.cluster.node import Core

LOOK = 0.1          # seconds between two looks at the connection
READY = 5.0         # seconds that aadopt() waits for it
WAITING = 16 << 20  # bytes of requests that wait for it


class _Forward:
    """REP answers one request at a time, and a request waits for the one before."""

    def __init__(self, socket: Req) -> None:
        self.socket = socket

    async def request(self, req: Any) -> bytes:
        import time

        left = None if req.deadline is None else max(0.0, req.deadline - time.monotonic())
        return await self.socket.arequest(req.body, timeout=left)


class Adopted:
    """A foreign socket that serves. `aclose()` (or `async with`) ends that."""

    def __init__(self, node: Core, name: str, url: str, weight: float,
                 options: dict[str, Any]) -> None:
        self.socket = Req(**{"heartbeat": 1.0, "heartbeat_timeout": 3.0, "correlate": None,
                             **options})
        self.url = url
        self.node = node
        try:
            self.service = Service(node, name, _Forward(self.socket), concurrency=1,
                                   queue_bytes=WAITING, weight=weight, urls=(url,))
            self.endpoint = self.socket.connect(url)
        except BaseException:
            self.socket.close(linger=0)
            raise

    @property
    def connected(self) -> bool:
        return self.endpoint.state == "connected"

    async def watch(self) -> None:
        """Offer it while it is connected."""
        from mqcore.binding.sleep import sleep

        name = self.service.name
        while not self.socket.closed:
            offered = self.node.services.get(name) is self.service
            other = self.node.services.get(name)
            if self.connected and (other is None or other.offer.hops):
                await self.service.astart()
            elif not self.connected and offered:
                del self.node.services[name]
                self.node.announce()
            await sleep(LOOK)

    async def aclose(self) -> None:
        if not self.node.loop.inherited and not self.socket.closed:
            try:
                await self.service.astop()
            finally:
                self.node.adopted.discard(self)
                await self.socket.aclose(0)

    def close(self) -> None:
        """aclose(), blocking."""
        if not self.node.loop.over:
            self.node.loop.call(self.aclose)

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
