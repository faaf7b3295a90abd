"""Names that bindings of one relay serve. A node has one handler for a name, and several bindings
may register under it, as workers of one machine do: here they share it. A request or a tunnel goes
to the one with the fewest, a broadcast to all.
"""

from __future__ import annotations

import asyncio
from typing import Any

from mqcore.cluster import frames
from mqcore.cluster.services import Refusal

PATIENCE = 5.0          # seconds for what a binding still has when it leaves


class Names:
    """All names of a relay."""

    def __init__(self, net: Any) -> None:
        self._net = net
        self._shared: dict[str, Shared] = {}

    async def enter(self, name: str, binding: Any) -> None:
        """From now on the binding serves the name. Raises what aserve() does."""
        shared = self._shared.get(name)
        if shared is None:
            shared = self._shared[name] = Shared(self._net, name)
        shared.users += 1
        try:
            await shared.enter(binding)
        except BaseException:
            self._over(shared)
            raise

    async def leave(self, name: str, binding: Any) -> None:
        """It takes nothing new. Waits a while for what it has."""
        shared = self._shared[name]
        try:
            await shared.leave(binding)
        finally:
            self._over(shared)

    def _over(self, shared: Shared) -> None:
        shared.users -= 1
        if not shared.users:
            del self._shared[shared.name]


class Shared:
    """The bindings of one name, as the handler of its service. `users`: those that begin or end
    included."""

    def __init__(self, net: Any, name: str) -> None:
        self.name = name
        self.users = 0
        self._net = net
        self._lock = asyncio.Lock()         # while the service begins or ends
        self._service: Any = None
        self._bindings: dict[Any, set[asyncio.Future[None]]] = {}   # and what each has

    async def enter(self, binding: Any) -> None:
        async with self._lock:
            self._bindings[binding] = set()
            if self._service is not None:
                return
            try:
                service = self._net.aserve(self.name, self)
                await service.__aenter__()
            except BaseException:
                del self._bindings[binding]
                raise
            self._service = service

    async def leave(self, binding: Any) -> None:
        async with self._lock:
            if len(self._bindings) > 1:
                running = self._bindings.pop(binding)
            else:
                service, self._service = self._service, None
                try:
                    await service.__aexit__(None, None, None)
                finally:
                    running = self._bindings.pop(binding)
        if running:
            await asyncio.wait(running, timeout=PATIENCE)

    async def _pass_on(self, what: str, argument: Any) -> Any:
        able = [one for one in self._bindings if not one.gone]
        if not able:        # the last one is about to leave
            raise Refusal(frames.NO_SERVICE, "", "the binding is gone")
        binding = min(able, key=lambda one: (one.full, len(self._bindings[one])))
        running, over = self._bindings[binding], asyncio.get_running_loop().create_future()
        running.add(over)
        try:
            return await getattr(binding, what)(argument)
        finally:
            running.discard(over)
            over.cancel()

    # -- the handler -------------------------------------------------------------------------------

    async def request(self, request: Any) -> bytes:
        return bytes(await self._pass_on("serve", request))

    async def broadcast(self, message: Any) -> None:
        await asyncio.gather(*(binding.hear(message) for binding in list(self._bindings)))

    async def tunnel(self, tunnel: Any) -> None:
        await self._pass_on("carry", tunnel)
