"""ws: WebSocket over any stream, and the schemes ws:// and wss://.

    ws://host:port/path          ws over tcp: what a browser calls ws://
    wss://host:port/path         ws over tls over tcp
    ws+ipc:///run/app.sock:/path ws over a Unix socket; the path follows a colon

The session only handles the HTTP upgrade (RFC 6455, section 4; wsproto), on the control thread.
Then a native codec frames the traffic. The subprotocol determines the codec:

- ZMTP (wire/websocket/zws.pyx, RFC 45): "ZWS2.0/NULL", and "ZWS2.0", which has no mechanism.
  Browsers can offer only the latter, because the slash is not allowed in an HTTP token.
- SP (wire/websocket/spws.pyx), as in nng and nanomsg: "rep.sp.nanomsg.org", with the name of the
  *listener's* protocol, so a REQ asks for it, too. Both libraries refuse a list of several.

A listener accepts all protocols of its pattern, unless `wire=` names one. A connecting socket
offers SP if it speaks SP (`wire="sp"`, or ZMTP lacks the pattern), else ZMTP. Extensions are never
negotiated, so nothing is compressed.

A refused peer gets the reason in HTTP: 404 for another path, 403 for a page of a disallowed origin,
426 for a plain request, 400 for a malformed one.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote

from mqcore.errors import AddressError, NotSupported, OptionError, UsageError
from mqcore.spi import sp
from mqcore.spi.filter import FilterSession, Options, Refused, StreamFilter
from mqcore.spi.transport import Stack

#: ZMTP's subprotocols, preferred one first, with their codecs
ZWS = {"ZWS2.0/NULL": "zws", "ZWS2.0": "zws-bare"}
SP_NAMES = ".sp.nanomsg.org"  # appended to the name of the listener's protocol
UNIX = ("/", ".", "@")  # first characters of a Unix socket's address
NO_TARGET = b"GET  HTTP/1."  # nng 1.11 sends this if the dialed URL has no path
HEADER_MAX = 16 * 1024  # bytes of the header of a request or a response
ZONE = re.compile("%[^]]*")  # the zone of an IPv6 address, meaningless to the peer
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@]+")
STRANGERS = (
    (b"\x16\x03", "TLS: did it mean wss://?"),
    (b"\xff", "ZMTP without WebSocket: did it mean tcp://?"),
    (b"\x00SP", "SP without WebSocket: did it mean tcp://?"),
    (b"SSH-", "SSH"),
    (b"PRI * HTTP/2", "HTTP/2; WebSocket starts with HTTP/1.1"),
)


class Own(NamedTuple):
    """A filter's part of the address."""

    path: str  # decoded; "" for none
    host: str  # for the Host header: "host:port"


class WebSocket(StreamFilter):
    name = "ws"
    doc = "WebSocket (RFC 6455), messages as ZWS 2.0 (RFC 45) or SP"
    options = (
        ("origin", "text", None,
         "ws: which pages may connect: origins like https://example.org, separated by spaces, or * "
         "for all; unset: pages of the listener's own host and port, on loopback only under "
         "loopback names. Connecting: the Origin to send"),
        ("subprotocol", "text", None,
         "ws: the only one to offer or accept: ZWS2.0/NULL, ZWS2.0 or one of SP's, such as "
         "rep.sp.nanomsg.org; unset: all that fit. The slash is not allowed in an HTTP token, so "
         "strict servers answer 400 unless it is ZWS2.0"),
    )

    def split(self, address: str, role: str) -> tuple[str, Own]:
        if address[:1] in UNIX:
            below, colon, path = address.partition(":/")
            return below, Own("/" + path if colon else "", "localhost")
        at = address.find("/")
        below, path = (address, "") if at < 0 else (address[:at], address[at:])
        if "#" in path:
            raise AddressError("the path of a WebSocket cannot have a fragment",
                               position=at + path.index("#"))
        return below, Own(path, ZONE.sub("", below.rpartition(";")[2]))

    def join(self, address: str, own: Own) -> str:
        return address + (":" if own.path and address[:1] in UNIX else "") + own.path

    def check(self, own: Own, role: str, options: Options) -> None:
        if importlib.util.find_spec("wsproto") is None:
            raise NotSupported("WebSocket needs the package wsproto",
                               hint='pip install "mqcore[ws]"')
        for origin in _origins(options):
            if origin not in ("*", "null") and not ORIGIN.fullmatch(origin):
                raise OptionError(f"origin {origin!r} is not an origin",
                                  hint="write scheme://host or scheme://host:port")

        only = options.get("subprotocol")
        fitting = _spoken(role, options, options.get("wire"))
        if not fitting:
            raise UsageError("WebSocket has no name for this pattern's protocol on SP",
                             hint="use another transport")
        if only and only not in fitting:
            raise OptionError(f"subprotocol {only!r} does not fit this socket",
                              hint=f"choose from {_listed(fitting)}")

    def open(self, own: Own, role: str, options: Options) -> FilterSession:
        only, wire = options.get("subprotocol"), options.get("wire")
        if not (only or wire) and role == "connect":  # one protocol, ZMTP if it has the pattern
            wire = "zmtp" if _zmtp(options) else "sp"
        taken = _spoken(role, options, wire)
        if role == "bind" and ":" in own.host:  # the name of an interface may mean loopback
            own = own._replace(host=options.get("listen.address") or own.host)
        make = Listening if role == "bind" else Connecting
        return make(own, _origins(options), {only: taken[only]} if only else taken)


def _zmtp(options: Options) -> bool:
    return bool(options.get("pattern.zmtp", True))


def _spoken(role: str, options: Options, wire: str | None) -> dict[str, str]:
    """The subprotocols of the socket's pattern, and the codec for each. `wire` None: any."""
    found = dict(ZWS) if _zmtp(options) and wire != "sp" else {}
    number = options.get("pattern.sp", -1)
    listener = number if role == "bind" else sp.peer_of(number)
    if listener in sp.PROTOCOLS and wire != "zmtp":
        found[sp.name_of(listener).lower() + SP_NAMES] = "sp-ws"
    return found


def _origins(options: Options) -> list[str]:
    return (options.get("origin") or "").split()


def _loopback(place: str) -> bool:
    """Whether host:port is on this machine's loopback."""
    host = place[1:].partition("]")[0] if place.startswith("[") else place.partition(":")[0]
    host = host.lower().rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _target(path: str) -> str:
    """The path as sent in a request, with other than ASCII characters percent-encoded."""
    return quote(path or "/", safe="/?&=:@!$'()*+,;~", encoding="utf-8", errors="surrogateescape")


def _not_http(seen: bytes, client: bool) -> str:
    """What the peer speaks if its first bytes are not HTTP/1; "" while they can be."""
    for mark, what in STRANGERS:
        if seen.startswith(mark):
            return f"the peer speaks {what}"
        if mark.startswith(seen):
            return ""
    fits = seen[:7] == b"HTTP/1."[:len(seen)] if client else b"A" <= seen[:1] <= b"Z"
    return "" if fits else "the peer does not speak HTTP"


class Upgrading(FilterSession):
    """What both sides of the upgrade share."""

    established = False

    client: ClassVar[bool]

    def __init__(self, own: Own, origins: list[str], taken: Mapping[str, str]) -> None:
        super().__init__()
        # Slow to import, and only WebSocket needs it.
        from wsproto import ConnectionType
        from wsproto.handshake import H11Handshake

        self.own = own
        self.origins = origins
        self.taken = taken  # accepted subprotocols and their codecs
        self.shake = H11Handshake(ConnectionType.CLIENT if self.client else ConnectionType.SERVER)
        self.seen = b""  # the received part of the header
        self.found: dict[str, bytes] = {}

    def receive(self, data: bytes) -> bytes:
        from wsproto.utilities import RemoteProtocolError

        if self.established:  # the codec reads it
            return data
        self.seen += data
        strange = _not_http(self.seen, self.client)
        if strange:
            self.strange(strange)
        head, end, left = self.seen.partition(b"\r\n\r\n")
        if len(head) > HEADER_MAX:
            self.refuse(431, "the peer's HTTP header is longer than 16 KiB")
        if not end:
            return b""
        if head.startswith(NO_TARGET):
            head = head.replace(b"  ", b" / ", 1)
        try:
            self.shake.receive_data(head + end)
        except RemoteProtocolError as error:
            self.malformed(head, str(error))
        except Exception as error:  # such as an invalid Host, which wsproto decodes unchecked
            self.refuse(400, f"the peer's HTTP request is malformed ({error})")
        for event in self.shake.events():
            self.judge(event)
        self.established = self.transparent = True
        return left

    def facts(self) -> Mapping[str, bytes]:
        return self.found

    def agreed(self, subprotocol: str) -> None:
        self.codec = self.taken[subprotocol]
        self.found["ws-subprotocol"] = subprotocol.encode()

    # -- each side overrides these; all but judge raise Refused

    def judge(self, event: Any) -> None:
        raise NotImplementedError

    def refuse(self, status: int, reason: str) -> None:
        raise Refused(reason)

    def strange(self, what: str) -> None:
        """The peer does not speak HTTP, so an HTTP response would not help it."""
        raise Refused(f"{what}, but this is a WebSocket address")

    def malformed(self, head: bytes, what: str) -> None:
        raise Refused(f"the peer's response is malformed ({what})")


# -- listening -------------------------------------------------------------------------------------


class Listening(Upgrading):
    client = False

    def judge(self, event: Any) -> None:
        from wsproto.events import AcceptConnection

        headers = {name.decode("latin-1"): value for name, value in event.extra_headers}
        self._check_path(event.target)
        self._check_origin(headers.get("origin"), event.host)
        fitting = [(name, ours) for name in event.subprotocols if (ours := self._ours(name))]
        if not fitting:
            self.refuse(400, "the peer offers " + (
                f"the subprotocols {_shown(', '.join(event.subprotocols))}"
                if event.subprotocols else "no subprotocol") + f", needed: {_listed(self.taken)}")
        offered, ours = fitting[0]
        self.agreed(ours)
        self._passing += self.shake.send(AcceptConnection(subprotocol=offered))
        self.found |= {"ws-path": event.target.encode(), "ws-host": event.host.encode()}
        for header, name in (("origin", "ws-origin"), ("user-agent", "ws-user-agent")):
            if header in headers:
                self.found[name] = headers[header]

    def _ours(self, offered: str) -> str:
        """The accepted subprotocol that the peer offers, or "". nng and nanomsg ignore case in SP's
        names."""
        small = offered.lower()
        name = small if small.endswith(SP_NAMES) else offered
        return name if name in self.taken else ""

    def _check_path(self, target: str) -> None:
        wanted = _target(self.own.path)
        if wanted not in (target, target.partition("?")[0]):
            self.refuse(404, f"the peer asks for the path {_shown(target)}, not for {wanted}")

    def _check_origin(self, origin: bytes | None, host: str) -> None:
        """Only browsers send an origin. Without this check, any page that a user visits could talk
        to listeners on the user's machine and network (RFC 6455, section 10.2)."""
        if origin is None or "*" in self.origins:
            return
        text = origin.decode("latin-1")
        allowed = text in self.origins or (
            not self.origins and text.partition("://")[2].lower() == host.lower() != ""
            and self._ours_by_name(host))
        if not allowed:
            self.refuse(403, f"pages of {_shown(text)} are not allowed: the "
                             "listener's option origin lists the allowed ones")

    def _ours_by_name(self, host: str) -> bool:
        """A listener on loopback accepts loopback names only. A page can make its own name resolve
        to 127.0.0.1 (DNS rebinding); it then sends that name in both Origin and Host."""
        return ":" not in self.own.host or not _loopback(self.own.host) or _loopback(host)

    def refuse(self, status: int, reason: str) -> None:
        """Refuse with an HTTP response that states the same reason as text."""
        phrase = {400: "Bad Request", 403: "Forbidden", 404: "Not Found", 426: "Upgrade Required",
                  431: "Request Header Fields Too Large"}[status]
        body = f"{reason}\n".encode("utf-8", "replace")
        upgrade = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" if status == 426 else ""
        self._passing += (
            f"HTTP/1.1 {status} {phrase}\r\n{upgrade}Connection: "
            f"{'Upgrade, ' if upgrade else ''}close\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body
        raise Refused(reason)

    def malformed(self, head: bytes, what: str) -> None:
        lines = head.split(b"\r\n")
        request = _shown(lines[0].decode("latin-1"))
        if not any(line.lower().startswith(b"upgrade:") for line in lines):
            self.refuse(426, f"the peer sent a plain HTTP request ({request}), "
                             "but this is a WebSocket address")
        version = [line for line in lines if line.lower().startswith(b"sec-websocket-version:")]
        if version and version[0].partition(b":")[2].strip() != b"13":
            self.refuse(426, "the peer's WebSocket version is not 13")
        self.refuse(400, f"the peer's WebSocket request is malformed ({what})")


# -- connecting ------------------------------------------------------------------------------------


class Connecting(Upgrading):
    client = True

    def start(self) -> None:
        from wsproto.events import Request

        extra = [(b"Origin", self.origins[0].encode())] if self.origins else []
        self._passing += self.shake.send(Request(
            host=self.own.host, target=_target(self.own.path), extra_headers=extra,
            subprotocols=list(self.taken)))

    def judge(self, event: Any) -> None:
        from wsproto.events import AcceptConnection

        if not isinstance(event, AcceptConnection):
            self._rejected(event)
        elif event.extensions:
            raise Refused("the peer selected a WebSocket extension that was not offered")
        elif event.subprotocol is None or event.subprotocol not in self.taken:
            raise Refused(f"the peer selected no subprotocol of {_listed(self.taken)}")
        else:
            self.agreed(event.subprotocol)

    def _rejected(self, event: Any) -> None:
        status = getattr(event, "status_code", 0)
        hint = {400: self._strict(),
                404: ": is the path right?", 403: ": does it allow this origin?",
                401: ": it requires a login",
                426: ": it requires another WebSocket version"}.get(status, "")
        place = {bytes(name).lower(): value for name, value in getattr(event, "headers", ())}
        if 300 <= status < 400 and b"location" in place:
            hint = f": it moved to {_shown(place[b'location'].decode('latin-1'))}"
        raise Refused(f"the peer answered the upgrade with HTTP {status}{hint}")


    def _strict(self) -> str:
        if any(name.endswith(SP_NAMES) for name in self.taken):
            return f": is it a {next(iter(self.taken)).partition('.')[0]} socket that speaks SP?"
        return ": if it is a strict server, subprotocol=ZWS2.0 may help"


def _listed(names: Iterable[str]) -> str:
    return " or ".join(names)


def _shown(text: str) -> str:
    """A peer's text, escaped for logs."""
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= 80 else text[:77] + "..."


websocket = WebSocket()
ws = Stack("ws", "ws+tcp", "WebSocket over TCP")
wss = Stack("wss", "ws+tls+tcp", "WebSocket over TLS over TCP")
