"""A connection as the control plane remembers it, and which of the two wires it speaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mqcore.control.endpoint import Endpoint
from mqcore.control.records import Peer
from mqcore.control.route import Route
from mqcore.errors import NotSupported, OptionError


class Wire:
    """One engine, as the control plane remembers it."""

    __slots__ = ("demands", "endpoint", "facts", "judged", "local", "options", "owner", "peer",
                 "pid", "remote", "slot", "transport", "user", "wire")

    def __init__(self, route: Route, owner: Any, endpoint: Endpoint, names: tuple[str, str],
                 pid: int | None, options: Mapping[str, Any]) -> None:
        self.owner = owner  # Connector, or None for an accepted one
        self.endpoint = endpoint
        self.local, self.remote = names
        self.pid = pid
        self.options = options
        self.transport = route.transport
        self.wire = "" if route.transport.kind == "stream" else route.transport.scheme
        self.demands: Any = None  # the engine points into it
        self.facts: dict[str, bytes] = {}  # what filters found out about the peer
        self.user: str | None = None  # who it has proven to be
        self.judged: str | None = None  # who security's allow() said that it is
        self.peer: Peer | None = None
        self.slot = -1

    def prove(self, mechanism: str, proof: bytes) -> None:
        """What the peer's handshake has proven by ZMTP's mechanism."""
        security = self.options.get("security")
        if security is not None and security.mechanism == mechanism != "NULL":
            self.facts["mechanism"] = mechanism.encode()
            self.user = self.judged or security.user_of(proof) or self.user

    def learn(self, facts: Mapping[str, bytes]) -> None:
        """What one filter found out; of two that know the peer, the inner one is believed."""
        found = dict(facts)
        self.user = found.pop("user", b"").decode("utf-8", "replace") or self.user
        self.facts.update(found)


def encode_metadata(metadata: Mapping[str, bytes]) -> bytes:
    """READY properties: name length, name, value length (4 bytes), value (ZMTP 3.1, section
    3.3)."""
    out = bytearray()
    for name, value in metadata.items():
        raw = name.encode("ascii")
        out += bytes((len(raw),)) + raw + len(value).to_bytes(4, "big") + value
    return bytes(out)


def decode_metadata(raw: bytes) -> dict[str, bytes]:
    """The same read; the codec has checked the bounds. The first of a doubled name counts."""
    out: dict[str, bytes] = {}
    at = 0
    while at < len(raw):
        name = raw[at + 1:at + 1 + raw[at]].decode("latin-1")
        at += 1 + raw[at]
        size = int.from_bytes(raw[at:at + 4], "big")
        out.setdefault(name, raw[at + 4:at + 4 + size])
        at += 4 + size
    return out


def mechanism_of(options: Mapping[str, Any]) -> str:
    security = options.get("security")
    return "NULL" if security is None else security.mechanism


def check_security(plugin: Any, route: Route, options: Mapping[str, Any]) -> None:
    """May this endpoint demand what it demands? NotSupported, OptionError."""
    mechanism = mechanism_of(options)
    kind = route.transport.kind
    if mechanism == "NULL" or kind == "inproc":  # one process: there is nobody in between
        return
    if options["wire"] == "sp" or not plugin.zmtp:
        raise OptionError(f"SP has no mechanism {mechanism}: security= belongs to ZMTP",
                          hint="use tls+tcp:// for SP")
    if kind != "stream":
        raise NotSupported(f"{route.url.transport}:// cannot carry {mechanism}: it is no stream",
                           hint="use tcp:// or ipc://, or security=Null() for this endpoint")
    for filter_, _ in route.filters:
        if filter_.name == "ws":
            raise NotSupported(f"{mechanism} over WebSocket is not there yet",
                               hint="use wss://, or security=Null() for this endpoint")


def check_wire(plugin: Any, route: Route, options: Mapping[str, Any]) -> None:
    """May this pattern go over this route? OptionError for a wire that does not know it."""
    wanted = options["wire"]
    if (wanted == "sp" and plugin.sp < 0) or (wanted == "zmtp" and not plugin.zmtp):
        other = "sp" if wanted == "zmtp" else "zmtp"
        raise OptionError(f"wire={wanted!r} does not know the pattern {plugin.name}",
                          hint=f"leave wire out, or say {other!r}")
    kind = route.transport.kind
    if wanted == "sp" and plugin.zmtp and kind not in ("stream", "inproc"):
        raise OptionError(f"{route.url.transport}:// has a wire of its own, not SP",
                          hint="use tcp:// or ipc:// for peers that speak SP; between mqcore's "
                               "sockets wire=None for this endpoint")
    if plugin.zmtp or kind == "inproc" or (plugin.sp >= 0 and kind == "stream"):
        return
    if not getattr(route.transport, "patterns", {}):
        raise NotSupported(
            f"a {plugin.name} socket cannot use {route.url.transport}: " + (
                "no wire knows the pattern" if plugin.sp < 0 else
                "sockets meet there by the names of ZMTP, which does not know the pattern"),
            hint="use inproc://" if plugin.sp < 0 else "use ipc://, tcp:// or inproc://")


def codec_of(plugin: Any, wire: Wire) -> str:
    """The codec of a stream: who connects says which wire, who listens can tell them apart
    (`wire/either.pyx`), unless an option or the pattern leaves only one. Where security is
    demanded only ZMTP is: the other wire has none."""
    if wire.transport.kind != "stream":
        return "zmtp"
    mechanism = mechanism_of(wire.options)
    if mechanism != "NULL":
        return "zmtp-curve" if mechanism == "CURVE" else "zmtp"
    both = plugin.zmtp and plugin.sp >= 0 and wire.owner is None
    wanted = wire.options["wire"] or ("either" if both else "zmtp" if plugin.zmtp else "sp")
    return "zmtp" if wanted == "zmtp" else wanted + wire.transport.framing
