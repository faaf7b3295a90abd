"""Addresses as libzmq writes them, and as mqcore does: percent signs mean nothing there."""

from __future__ import annotations

from urllib.parse import quote, unquote

from mqcore.zmq.constants import Errno
from mqcore.zmq.error import make

PLAIN = "/:@!$&'()*+,;=~[] "  # beside letters, digits, "_.-": left as they are
VERBATIM = ("ipc", "inproc")


def text_of(address: str | bytes) -> str:
    if isinstance(address, bytes):
        return address.decode("utf-8", "surrogateescape")
    if not isinstance(address, str):
        raise TypeError(f"expected str, got: {address!r}")
    return address


def to_mqcore(address: str) -> str:
    """The URL for bind() and connect()."""
    scheme, mark, rest = address.partition("://")
    if not mark:
        raise make(Errno.EINVAL, f"{address!r} is no address (addr={address!r})")
    return f"{scheme}://{quote(rest, safe=PLAIN)}" if scheme in VERBATIM else address


def from_mqcore(url: str) -> str:
    """What LAST_ENDPOINT says."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{unquote(rest)}" if scheme in VERBATIM else url
