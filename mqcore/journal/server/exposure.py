"""Exposure: whether strangers could use a server at its addresses. They are refused by default.

Addresses of this machine (loopback, ipc, inproc, shm) need nothing. All others need CURVE keys or
TLS, unless the caller says insecure=True.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Any

from mqcore.base.native import socket
from mqcore.errors import UsageError
from mqcore.spi import inet, registry
from mqcore.spi.url import parse

LOCAL = ("ipc", "inproc", "shm")        # transports that do not leave this machine


def check(urls: Iterable[str], security: Any, what: str) -> None:
    """Raises UsageError if an address is exposed and neither keys nor TLS protect it."""
    for url in urls:
        if not protected(url, security) and not is_local(url):
            plain = getattr(security, "mechanism", "NULL") == "PLAIN"
            why = "passwords would cross the network in the clear" if plain \
                else f"any machine that reaches it could {what}"
            raise UsageError(
                f"{url} is exposed to the network without keys or TLS: {why}",
                hint="give it keys (security=mq.security.Curve(secret_key=..., allow=...); --key "
                     "and --allow) or TLS (tls+tcp:// with tls_cert, tls_ca), bind 127.0.0.1 or "
                     "ipc://, or accept the risk with insecure=True (--insecure)")


def open_to_all(urls: Iterable[str], security: Any, options: Any) -> bool:
    """Whether a peer at a network address can connect without authentication."""
    if security is not None and security.demands and (
            security.mechanism == "PLAIN" or security.allow is not None
            or getattr(security, "keys", None) is not None):
        return False
    mutual = options.get("tls_mutual")
    checked = bool(options.get("tls_ca")) if mutual is None else bool(mutual)
    return any(not is_local(url) and not ("tls" in layers(url)[0] and checked) for url in urls)


def protected(url: str, security: Any) -> bool:
    """By CURVE keys or by TLS."""
    curve = security is not None and security.mechanism == "CURVE" and security.server
    return curve or "tls" in layers(url)[0]


def layers(url: str) -> tuple[list[str], str, str]:
    """(filters, transport, the transport's part of the address)"""
    parsed = parse(url)
    transport = registry.transport(parsed.transport)
    names = list(parsed.filters)
    if transport.kind == "stack":
        *below, last = transport.below.split("+")
        names += below
        transport = registry.transport(last)
    address = parsed.address
    for name in names:
        address, _ = registry.filter(name).split(address, "bind")
    return names, transport.scheme, address


def is_local(url: str) -> bool:
    """Only this machine can reach it."""
    _, scheme, address = layers(url)
    if scheme in LOCAL:
        return True
    if scheme == "fd":
        return _local_descriptor(address)
    if scheme != "tcp":
        return False
    try:
        found = inet.look_up(inet.parse(address, "bind")[1])
    except (ValueError, OSError):
        return False        # bind() reports what is wrong with it
    return bool(found) and all(_loopback(name) for _, name in found)


def _loopback(name: Any) -> bool:
    """Whether the address of a socket, (host, port, ...), is one."""
    return ipaddress.ip_address(name[0].partition("%")[0]).is_loopback


def _local_descriptor(address: str) -> bool:
    """A descriptor that was passed to this process: by the address that it is bound to."""
    if not address.isdecimal():
        return False
    try:
        sock = socket.socket(fileno=int(address))
    except OSError:
        return False
    try:
        if sock.family == socket.AF_UNIX:
            return True
        return sock.family in (socket.AF_INET, socket.AF_INET6) and _loopback(sock.getsockname())
    finally:
        sock.detach()
