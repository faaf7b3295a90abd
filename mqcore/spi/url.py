"""The grammar of addresses: what is before "://", and what is behind "?".

    URL = [filter "+"]* transport "://" address ["?" name=value ("&" name=value)*]

"%41" is a character anywhere behind the "://", so an ipc path may hold a "?" (written "%3F").
After "[" and an IPv6 address a percent sign starts a zone ("[fe80::1%eth0]"; "%25eth0" is taken
too). What the address means is the transport's business. Text that is no UTF-8 comes
through as surrogate escapes, as file names do. Every mistake is an AddressError with its position.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from mqcore.errors import AddressError, UsageError

SCHEME = frozenset("abcdefghijklmnopqrstuvwxyz0123456789.-_")
ZONE = re.compile(r"(^|;)\[[0-9A-Fa-f:.]+\Z")  # what stands before a zone's percent sign
IPV6 = re.compile(r"\[[0-9A-Fa-f:.]+(%[^\]]+)?\]")
HEX = frozenset("0123456789abcdefABCDEF")


class Url(NamedTuple):
    """A parsed URL. `offsets[i]` is where the i-th character of `address` stands in `text`."""

    text: str
    filters: tuple[str, ...]
    transport: str
    address: str
    query: tuple[tuple[str, str], ...]
    offsets: tuple[int, ...]

    def __str__(self) -> str:
        return self.text

    def locate(self, error: AddressError) -> AddressError:
        """A transport's error, which counts within `address`, counted in the whole URL."""
        at = min(max(error.position, 0), len(self.offsets) - 1)
        error.position = self.offsets[at]
        error.text = f"{self.text!r}, position {error.position}: {error.text}"
        return error


def text_of(address: object) -> str:
    """An address as text; what prints as its URL (an Endpoint) is one, too."""
    if isinstance(address, str):
        return address
    if address is None or isinstance(address, (bytes, bytearray, memoryview, int, float)):
        data = isinstance(address, (bytes, bytearray, memoryview))
        raise UsageError(f"an address must be text, not {type(address).__name__}",
                         hint='decode it first: address.decode()' if data else
                         'write it like "tcp://127.0.0.1:5555"')
    return str(address)


def parse(text: str) -> Url:
    text = text_of(text)
    head, mark, rest = text.partition("://")
    if not mark:
        bare = re.fullmatch(r"[^:/]+:\d+|\[[0-9A-Fa-f:.]+\]:\d+", text)
        raise _error(text, 0, "no '://' in it", f'did you mean "tcp://{text}"?' if bare else
                     'write it like "tcp://127.0.0.1:5555"')
    at = len(head) + 3
    body, question, query = rest.partition("?")
    names = _schemes(text, head)
    abstract = names[-1] == "ipc" and body[:1] == "@"  # a name of Linux's, which is no C string
    address, offsets = _unquote(text, at, at + len(body), zone=True, zero=abstract)
    if not address:
        raise _error(text, at, "nothing behind the '://'")
    pairs = _pairs(text, at + len(body) + 1) if question else ()
    return Url(text, names[:-1], names[-1], address, pairs, offsets)


def render(transport: str, address: str, filters: tuple[str, ...] = ()) -> str:
    """The URL of a decoded address: the reverse of parse, without a query."""
    body = []
    for i, char in enumerate(address):
        if char == "%" and ZONE.search(address[:i]):
            char = "%25" if address[i + 1 : i + 3] == "25" else "%"
        elif char in "%? " or not char.isprintable() or (
                char == "[" and not IPV6.match(address, i)):  # no zone begins behind that one
            char = "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogateescape"))
        body.append(char)
    return "+".join((*filters, transport)) + "://" + "".join(body)


def _error(text: str, at: int, what: str, hint: str | None = None) -> AddressError:
    return AddressError(f"{text!r}, position {at}: {what}", hint=hint, position=at)


def _schemes(text: str, head: str) -> tuple[str, ...]:
    at = 0
    names = []
    for name in head.split("+"):
        if not name:
            raise _error(text, at, "a transport's or filter's name is missing")
        for i, char in enumerate(name.lower()):
            if char not in SCHEME:
                raise _error(text, at + i, f"{char!r} cannot be part of a transport's name")
        names.append(name.lower())
        at += len(name) + 1
    return tuple(names)


def _unquote(text: str, start: int, end: int, *, zone: bool = False, zero: bool = False
             ) -> tuple[str, tuple[int, ...]]:
    """Decode text[start:end]; also where each character came from, and the end. zero: it may hold
    zero bytes."""
    data = bytearray()
    origin = []
    at = start
    while at < end:
        char = text[at]
        width, raw = 1, char.encode("utf-8", "surrogateescape")
        if char == "%" and zone and ZONE.search(text[start:at]):
            width = 3 if text[at + 1 : at + 3] == "25" else 1
        elif char == "%":
            digits = text[at + 1 : min(at + 3, end)]
            if len(digits) != 2 or not HEX.issuperset(digits):
                raise _error(text, at, "a percent sign needs two hexadecimal digits",
                             "write %25 for the percent sign itself")
            width, raw = 3, bytes.fromhex(digits)
        if raw == b"\0" and not zero:
            raise _error(text, at, "a zero byte cannot be part of an address")
        data += raw
        origin += [at] * len(raw)
        at += width
    decoded = data.decode("utf-8", "surrogateescape")
    offsets, i = [], 0
    for char in decoded:
        offsets.append(origin[i])
        i += len(char.encode("utf-8", "surrogateescape"))
    return decoded, (*offsets, end)


def _pairs(text: str, start: int) -> tuple[tuple[str, str], ...]:
    pairs: list[tuple[str, str]] = []
    at = start
    for item in text[start:].split("&"):
        end = at + len(item)
        equals = text.find("=", at, end)
        if equals <= at:
            raise _error(text, at, "the query is written name=value&name=value")
        name = _unquote(text, at, equals)[0]
        if any(name == known for known, _ in pairs):
            raise _error(text, at, f"{name!r} is given twice")
        pairs.append((name, _unquote(text, equals + 1, end)[0]))
        at = end + 1
    return tuple(pairs)
