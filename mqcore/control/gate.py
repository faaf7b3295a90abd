"""The gate: asks the application's `allow=` about peers that wait in the middle of their handshake.

The engine waits without a thread. A callable runs on a worker of the control loop, apart from those
for name look-ups, so that it may wait too; an Inquiry begins on the control thread. The verdict
goes back to the engine. A peer waits for at most handshake_timeout.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from mqcore.control.wire import Wire
from mqcore.security import Asking, Inquiry, Verdict, judge

if TYPE_CHECKING:
    from mqcore.control.links import SocketLinks

_log = logging.getLogger("mqcore")


def ask(links: SocketLinks, slot: int, wire: Wire) -> None:
    """The hub's lock is held."""
    security = wire.options["security"]
    asking = Asking(
        domain=security.domain, address=_host(wire),
        identity=bytes(links.options.get("routing_id", b"")), mechanism=security.mechanism,
        credentials=links.hub.plane.asked(slot), endpoint=wire.endpoint.url, pid=wire.pid,
        uid=wire.owner_ids[0], gid=wire.owner_ids[1])
    loop = links.hub.loop

    def told(verdict: Verdict | None, error: BaseException | None = None) -> None:
        _judged(links, slot, wire, verdict, error)

    allow = security.allow
    if isinstance(allow, Inquiry):
        loop.call(_begin, allow, asking, lambda verdict: loop.call(told, verdict), told)
        return

    def decide() -> Verdict | None:
        """Many may have asked and gone: they must not stand before who waits in earnest."""
        return judge(allow, asking) if links.wires.get(slot) is wire else None

    loop.call(loop.judge, decide, told)


def _begin(inquiry: Inquiry, asking: Asking, tell: Callable[[Verdict], None],
           told: Callable[..., None]) -> None:
    try:
        inquiry.begin(asking, tell)
    except Exception as error:
        told(None, error)


def _judged(links: SocketLinks, slot: int, wire: Wire, verdict: Verdict | None,
            error: BaseException | None) -> None:
    """On the control thread."""
    if error is not None:
        _log.error("allow= failed for a peer at %s", wire.remote, exc_info=error)
        verdict = Verdict(500, f"allow() failed: {type(error).__name__}: {error}")
    with links.hub.lock:
        if verdict is None or links.wires.get(slot) is not wire:
            return  # it left meanwhile
        wire.judged = verdict.user
        wire.verified.update(verdict.metadata)
        links.hub.plane.judge(slot, verdict.status, verdict.text or "allow() said no")


def _host(wire: Wire) -> str:
    """The peer's address as ZAP has it: without the port."""
    where = wire.remote.split("://", 1)[-1]
    if wire.transport.scheme == "tcp":
        where = where.rsplit(":", 1)[0].strip("[]")
    return where
