"""Calls the application's `allow=` for peers that wait in their handshake.

The engine waits without a thread. A callable runs on a worker of the control loop, so it may block.
These workers are separate from those for name look-ups. An AuthHandler starts on the control
thread. The result goes back to the engine. A peer waits for at most handshake_timeout.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from mqcore.base.described import described
from mqcore.control.connection import Connection
from mqcore.security import AuthHandler, AuthRequest, AuthResult, authenticate

if TYPE_CHECKING:
    from mqcore.control.tables import Tables

_log = logging.getLogger("mqcore")


def ask(links: Tables, slot: int, conn: Connection) -> None:
    """Callers hold the hub's lock."""
    security = conn.options["security"]
    asking = AuthRequest(
        domain=security.domain, address=_host(conn),
        identity=bytes(links.options.get("routing_id", b"")), mechanism=security.mechanism,
        credentials=links.hub.plane.asked(slot), endpoint=conn.endpoint.url, pid=conn.pid,
        uid=conn.owner_ids[0], gid=conn.owner_ids[1])
    loop = links.hub.loop

    asked = True

    def told(result: AuthResult | None, error: BaseException | None = None) -> None:
        """Runs on the control thread. Only the first answer counts."""
        nonlocal asked
        if asked:
            asked = False
            _decided(links, slot, conn, result, error)

    allow = security.allow
    if isinstance(allow, AuthHandler):
        loop.call(_begin, allow, asking, lambda result: loop.call(told, result), told)
        return

    def decide() -> AuthResult | None:
        """Skip peers that have disconnected meanwhile, so that they do not delay waiting ones."""
        return authenticate(allow, asking) if links.connections.get(slot) is conn else None

    loop.call(loop.authenticate, decide, told)


def _begin(handler: AuthHandler, asking: AuthRequest, tell: Callable[[AuthResult], None],
           told: Callable[..., None]) -> None:
    try:
        handler.begin(asking, tell)
    except Exception as error:
        told(None, error)


def _decided(links: Tables, slot: int, conn: Connection, result: AuthResult | None,
             error: BaseException | None) -> None:
    """Runs on the control thread."""
    if error is not None:
        _log.error("allow= failed for a peer at %s", conn.remote, exc_info=error)
        result = AuthResult(500, f"allow() failed: {described(error)}")
    elif not isinstance(result, AuthResult | None):
        _log.error("allow= returned a %s for a peer at %s, not an AuthResult",
                   type(result).__name__, conn.remote)
        result = AuthResult(500, f"allow() returned a {type(result).__name__}, not an AuthResult")
    with links.hub.lock:
        if result is None or links.connections.get(slot) is not conn:
            return  # the peer has disconnected meanwhile
        conn.judged = result.user
        conn.verified.update(result.metadata)
        links.hub.plane.judge(slot, result.status, result.text or "allow() said no")


def _host(conn: Connection) -> str:
    """The peer's address in ZAP's form, without the port."""
    where = conn.remote.split("://", 1)[-1]
    if conn.transport.scheme == "tcp":
        where = where.rsplit(":", 1)[0].strip("[]")
    return where
