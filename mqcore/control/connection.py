"""A connection as the control plane sees it, and the protocol that it speaks (ZMTP or SP)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mqcore.base.native import socket
from mqcore.control.crowd import Crowd
from mqcore.control.endpoint import Endpoint
from mqcore.control.route import Route
from mqcore.control.stats import Peer
from mqcore.errors import NotSupported, OptionError
from mqcore.options import CORE
from mqcore.spi.credentials import credentials
from mqcore.spi.filter import FilterSession

OURS = ("socket-type", "identity", "mechanism")  # names that a peer may not set by metadata
RESERVED = ("tls-", "ws-")  # prefixes of names that filters set


class Connection:
    """One engine, as the control plane sees it."""

    __slots__ = ("crowd", "demands", "endpoint", "facts", "judged", "local", "options", "owner",
                 "peer", "owner_ids", "pid", "remote", "slot", "transport", "user", "verified",
                 "why", "wire")

    def __init__(self, route: Route, owner: Any, endpoint: Endpoint, names: tuple[str, str],
                 pid: int | None, options: Mapping[str, Any]) -> None:
        self.owner = owner  # Connector, or None for an accepted one
        self.endpoint = endpoint
        self.local, self.remote = names
        self.pid = pid
        self.owner_ids: tuple[int | None, int | None] = (None, None)  # the peer's user and group
        self.options = options
        self.transport = route.transport
        self.wire = "" if route.transport.kind == "stream" else route.transport.scheme
        self.demands: Any = None  # the engine has a pointer into it
        self.facts: dict[str, bytes] = {}  # the peer's claims in the filters' handshakes
        self.verified: dict[str, bytes] = {}  # proven facts, and the results of allow()
        self.user: str | None = None  # the authenticated user
        self.judged: str | None = None  # the user that security's allow() returned
        self.peer: Peer | None = None
        self.slot = -1
        # of an accepted connection: all of its listener that are in their handshake
        self.crowd: Crowd | None = None
        self.why = ""  # the reason why this side ended it

    def prove(self, mechanism: str, proof: bytes) -> None:
        """Store what the peer has proven with ZMTP's mechanism."""
        security = self.options.get("security")
        if security is not None and security.mechanism == mechanism:
            if mechanism != "NULL":
                self.verified["mechanism"] = mechanism.encode()
            self.user = self.judged or security.user_of(proof) or self.user

    def learn(self, session: FilterSession) -> None:
        """Store what one filter found out. If two filters know the peer, the inner one wins."""
        found = dict(session.facts())
        self.user = found.pop("user", b"").decode("utf-8", "replace") or self.user
        (self.verified if session.proves else self.facts).update(found)

    def metadata(self, said: Mapping[str, bytes]) -> dict[str, bytes]:
        """The contents of Peer.metadata. `said`: the peer's announcement, which cannot override
        results of a handshake."""
        return {**claims(said), **self.facts, **self.verified}


def claims(said: Mapping[str, bytes]) -> dict[str, bytes]:
    """The peer's announced metadata, without names that belong to a handshake."""
    return {name: value for name, value in said.items()
            if name.lower() not in OURS and not name.lower().startswith(RESERVED)}


def owner_of(sock: socket.socket, pid: int | None) -> tuple[int | None, int | None]:
    """The peer's user and group id, if the transport knows its process (unix(7), SO_PEERCRED): the
    ids at the time when it connected, or began to listen."""
    if pid is None or sock.family != socket.AF_UNIX:
        return None, None
    try:
        return credentials(sock)[1:]
    except OSError:  # the peer has already disconnected
        return None, None


def encode_metadata(metadata: Mapping[str, bytes]) -> bytes:
    """READY properties: name length, name, value length (4 bytes), value (ZMTP 3.1, section
    3.3)."""
    out = bytearray()
    for name, value in metadata.items():
        raw = name.encode("ascii")
        out += bytes((len(raw),)) + raw + len(value).to_bytes(4, "big") + value
    return bytes(out)


def mechanism_of(options: Mapping[str, Any]) -> str:
    security = options.get("security")
    return "NULL" if security is None else security.mechanism


def demanded(options: Mapping[str, Any]) -> bool:
    """Whether the endpoint requires authentication or encryption."""
    security = options.get("security")
    return security is not None and bool(security.demands)


def check_security(plugin: Any, route: Route, options: Mapping[str, Any]) -> None:
    """Whether this endpoint supports its security option. Raises NotSupported or OptionError."""
    mechanism = mechanism_of(options)
    kind = route.transport.kind
    if not demanded(options) or kind == "inproc":  # one process: no third party
        return
    if plugin.raw:
        raise OptionError(f"raw bytes have no mechanism {mechanism}: it belongs to ZMTP",
                          hint=f"use tls+tcp:// for a {plugin.name} socket")
    if options["wire"] == "sp" or not plugin.zmtp:
        raise OptionError(f"SP has no mechanism {mechanism}: security= belongs to ZMTP"
                          if mechanism != "NULL" else "SP has no mechanism: allow= belongs to ZMTP",
                          hint="use tls+tcp:// for SP")
    if kind != "stream":
        raise NotSupported(f"{route.url.transport}:// cannot carry {mechanism}: it is not a stream",
                           hint="use tcp:// or ipc://, or security=Null() for this endpoint")
    for filter_, _ in route.filters:
        if filter_.name == "ws":
            raise NotSupported(f"{mechanism} over WebSocket is not supported yet",
                               hint="use wss://, or security=Null() for this endpoint")


def _check_raw(plugin: Any, route: Route, wanted: str | None) -> None:
    if wanted is not None:
        raise OptionError(f"a {plugin.name} socket has no protocol, so it cannot use {wanted}",
                          hint="leave wire out")
    if route.transport.kind != "stream" or any(f.name == "ws" for f, _ in route.filters):
        raise NotSupported(f"a {plugin.name} socket cannot use {route.url.transport}: "
                           "it needs a byte stream",
                           hint="use tcp://, tls+tcp:// or ipc://")


def check_wire(plugin: Any, route: Route, options: Mapping[str, Any]) -> None:
    """Whether this pattern can use this route. OptionError for a protocol without the pattern."""
    if plugin.raw:
        _check_raw(plugin, route, options["wire"])
        return
    wanted = options["wire"] if plugin.zmtp or plugin.sp >= 0 else None
    if (wanted == "sp" and plugin.sp < 0) or (wanted == "zmtp" and not plugin.zmtp):
        other = "sp" if wanted == "zmtp" else "zmtp"
        raise OptionError(f"wire={wanted!r} does not support the pattern {plugin.name}",
                          hint=f"leave wire out, or use {other!r}")
    kind = route.transport.kind
    if wanted == "sp" and plugin.zmtp and kind not in ("stream", "inproc"):
        raise OptionError(f"{route.url.transport}:// has a protocol of its own, not SP",
                          hint="use tcp:// or ipc:// for SP peers; between mqcore sockets set "
                               "wire=None for this endpoint")
    if plugin.zmtp or kind == "inproc" or (plugin.sp >= 0 and kind == "stream"):
        return
    if not getattr(route.transport, "patterns", {}):
        raise NotSupported(
            f"a {plugin.name} socket cannot use {route.url.transport}: " + (
                "no protocol supports the pattern" if plugin.sp < 0 else
                "it identifies sockets by ZMTP's names, and ZMTP does not have the pattern"),
            hint="use ipc://, tcp:// or inproc://" if plugin.sp >= 0 else
            "use inproc://" if plugin.peers else "use udp://")


def check_peer_id(plugin: Any, route: Route, role: str, options: Mapping[str, Any]) -> None:
    """Whether this endpoint can name its peer. OptionError, NotSupported."""
    if not options["peer_id"]:
        return
    if plugin.name not in CORE["peer_id"].patterns:
        raise OptionError(f"option 'peer_id' does not apply to {plugin.name}",
                          hint=f"it belongs to {', '.join(CORE['peer_id'].patterns)}")
    if role == "bind":
        raise OptionError("peer_id names one peer, but many may connect to a bound address",
                          hint="pass it to connect()")
    if route.transport.kind == "inproc":
        raise NotSupported("a peer at inproc:// has the routing id that it announces",
                           hint="set routing_id on that socket, or use ipc://")


def codec_of(plugin: Any, conn: Connection) -> str:
    """The codec of a stream. A connector chooses the protocol and a listener detects it
    (`wire/either.pyx`), unless an option or the pattern allows only one. With security the codec is
    ZMTP's, because SP has none."""
    if plugin.raw:
        return "raw"
    if conn.transport.kind != "stream":
        return "zmtp"
    if demanded(conn.options):
        return "zmtp-curve" if mechanism_of(conn.options) == "CURVE" else "zmtp"
    both = plugin.zmtp and plugin.sp >= 0 and conn.owner is None
    wanted = conn.options["wire"] or ("either" if both else "zmtp" if plugin.zmtp else "sp")
    return "zmtp" if wanted == "zmtp" else wanted + conn.transport.framing
