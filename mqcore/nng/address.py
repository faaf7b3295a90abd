"""Addresses as nng writes them, and as mqcore does.

    tcp tcp4 tcp6     tcp://          an empty host or * is any of this machine's, for listening
    tls+tcp ws wss    the same        and tls+tcp4, ws6 ...
    ipc unix          ipc://path      nng takes the path as it is, mqcore decodes percent signs
    abstract          ipc://@name
    inproc            inproc://name
"""

from __future__ import annotations

import re
import secrets
from urllib.parse import quote

from mqcore.nng.exceptions import AddressInvalid, InvalidOperation, NotSupported, make

#: nng's scheme: mqcore's
SCHEMES = {
    **{f"tcp{n}": "tcp" for n in ("", "4", "6")},
    **{f"tls+tcp{n}": "tls+tcp" for n in ("", "4", "6")},
    **{f"ws{n}": "ws" for n in ("", "4", "6")},
    **{f"wss{n}": "wss" for n in ("", "4", "6")},
    "ipc": "ipc", "unix": "ipc", "abstract": "ipc", "inproc": "inproc",
}
SECURE = ("tls+tcp", "wss")
HOST_PORT = re.compile(r"(?P<host>\[[^\]]*\]|[^:/\[]*)(?P<port>:\d*)?(?P<path>/.*)?", re.S)
PLAIN = "/:@!$&'()*+,;=~[] "  # beside letters, digits, "_.-": left as they are


def split(address: str | bytes) -> tuple[str, str]:
    """Scheme and rest of an address of nng's; raises what nng does for one that is none."""
    text = address.decode() if isinstance(address, bytes) else address
    if not isinstance(text, str):
        raise TypeError(f"an address is str, not {type(address).__name__}")
    scheme, mark, rest = text.partition("://")
    if not mark or not scheme:
        raise make(InvalidOperation, f"{text!r} is no address; write it like "
                                     '"tcp://127.0.0.1:5555"')
    if scheme not in SCHEMES:
        raise make(NotSupported, f"there is no transport {scheme}; known: {', '.join(SCHEMES)}")
    return scheme, rest


def to_mqcore(address: str | bytes, role: str) -> str:
    """The URL for bind() or connect() ("bind", "connect")."""
    scheme, rest = split(address)
    if scheme == "abstract":
        return _abstract(rest, role)
    if not rest:
        raise make(AddressInvalid, f"nothing behind {scheme}://")
    if SCHEMES[scheme] in ("ipc", "inproc"):
        return f"{SCHEMES[scheme]}://{quote(rest, safe=PLAIN)}"
    found = HOST_PORT.fullmatch(rest)
    if found is None or not (found["port"] or SCHEMES[scheme] in ("ws", "wss")):
        raise make(AddressInvalid, f"{scheme}://{rest} lacks a port")
    host = found["host"]
    if host in ("", "*"):
        if role == "connect":
            raise make(AddressInvalid, f"{scheme}://{rest} names no host to dial")
        host = "[::]" if scheme.endswith("6") else "0.0.0.0"
    port = found["port"] or (":443" if SCHEMES[scheme] == "wss" else ":80")
    path = (found["path"] or "").replace("?", "%3F")
    return f"{SCHEMES[scheme]}://{host}{port}{path}"


def _abstract(name: str, role: str) -> str:
    if not name:
        if role == "connect":
            raise make(InvalidOperation, "abstract:// names nothing to dial")
        name = secrets.token_hex(5)
    return "ipc://@" + name.replace("?", "%3F")


def shown(address: str | bytes, real: str) -> str:
    """What `url` of a listener or dialer is: the address as it was given, with the real port."""
    scheme, rest = split(address)
    if SCHEMES[scheme] in ("ipc", "inproc"):
        return f"{scheme}://{rest}"
    given, made = HOST_PORT.fullmatch(rest), HOST_PORT.fullmatch(real.partition("://")[2])
    assert given is not None and made is not None
    host = "" if given["host"] == "*" else given["host"]
    return f"{scheme}://{host}{made['port'] or ''}{given['path'] or ''}"
