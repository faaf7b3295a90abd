"""The relay: bindings of Iris v1 reach a cluster through a port on loopback.

    async with cluster.ajoin(key, seeds=[...]) as net, Relay(net, port=55555) as relay:
        await relay.serve()

Iris (2013 to 2015) had a relay on each machine, and a thin binding in each language. This relay
speaks its protocol v1.0-draft2 to them, so that old programs take part in a cluster unchanged: a
binding that registers under a name is a member of that service, and its requests, broadcasts,
events and tunnels go to services of the cluster.

The protocol has neither encryption nor passwords. The relay therefore listens on loopback only:
every program of this machine can use it.

What differs from Iris: lengths are capped, an overloaded service answers with a fault at once
instead of a time-out, and a binding that reads nothing loses broadcasts and events (counted), not
the relay's memory.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
from collections import Counter
from typing import Any, Self

from mqcore.cluster.relay_binding import FINISH, UNREAD, Binding
from mqcore.cluster.relay_frames import MAX_BODY, PORT
from mqcore.cluster.relay_names import Names
from mqcore.errors import OptionError, StateError

MAX_BINDINGS = 256
LACKS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT)    # no such address here


class Relay:
    """A server for bindings of Iris, within `async with`, on asyncio.

    Args:
        net: the node whose services the bindings use; anything with `arequest`, `abroadcast`,
            `apublish`, `asubscribe`, `atunnel` and `aserve` as `cluster.Node` has them.
        port: to listen at, 0 for a free one. Bindings take 55555 unless told otherwise.
        hosts: loopback addresses. One that the system lacks is left out, as long as another works.
        body_bytes: the longest message, at most 16 MiB.

    `counters` counts what was dropped, refused, late or malformed, by reason.
    """

    def __init__(self, net: Any, *, port: int = PORT, hosts: tuple[str, ...] = ("127.0.0.1", "::1"),
                 body_bytes: int = MAX_BODY) -> None:
        for host in hosts:
            if not _is_loopback(host):
                raise OptionError(f"a relay cannot listen at {host}: its protocol has no "
                                  "encryption and no passwords",
                                  hint='listen at "127.0.0.1" or "::1"')
        if not 0 < body_bytes <= MAX_BODY:
            raise OptionError(f"body_bytes={body_bytes}; it is 1 to {MAX_BODY}")
        self.port = port
        self.counters: Counter[str] = Counter()
        self._net = net
        self._names = Names(net)
        self._hosts = hosts
        self._limit = body_bytes
        self._servers: list[asyncio.Server] = []
        self._bindings: dict[asyncio.Task[Any], Binding] = {}

    def __repr__(self) -> str:
        return f"<Relay at port {self.port}, {len(self._bindings)} bindings>"

    @property
    def clusters(self) -> list[str]:
        """Names that bindings serve at present, once for each."""
        return sorted(binding.cluster for binding in self._bindings.values() if binding.cluster)

    async def __aenter__(self) -> Self:
        if self._servers:
            raise StateError("this relay listens already", hint="make another Relay")
        failed: OSError | None = None
        chosen = bool(self.port)
        for host in self._hosts:
            try:
                server = await asyncio.start_server(self._accept, host, self.port, limit=1 << 17)
            except OSError as error:
                failed = error
                if error.errno in LACKS or not chosen:
                    continue
                # in use, say: bindings would get the other program at one of the hosts
                await self.aclose()
                break
            self._servers.append(server)
            self.port = server.sockets[0].getsockname()[1]      # the same at each host
        if not self._servers:
            assert failed is not None
            raise OptionError(f"the relay cannot listen at port {self.port}: {failed.strerror}",
                              hint="end the other relay, or choose another port") from failed
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def serve(self) -> None:
        """Waits until the relay is closed or this call is cancelled."""
        await asyncio.gather(*(server.wait_closed() for server in self._servers))

    async def aclose(self) -> None:
        """Takes no further bindings and ends those that there are. Idempotent."""
        servers, self._servers = self._servers, []
        for server in servers:
            server.close()
        for binding in self._bindings.values():
            binding.stop()
        tasks = set(self._bindings)
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=2 * FINISH)
            for task in stuck:
                task.cancel()
                self.counters["stuck"] += 1

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._bindings) >= MAX_BINDINGS:
            self.counters["too_many_bindings"] += 1
            writer.close()
            return
        writer.transport.set_write_buffer_limits(high=UNREAD // 4)
        binding = self._bindings[task] = Binding(self._net, self._names, reader, writer,
                                                 self.counters, self._limit)
        self.counters["bindings"] += 1
        try:
            await binding.run()
        except asyncio.CancelledError:
            if self._servers:
                raise           # not by aclose()
        finally:
            del self._bindings[task]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
