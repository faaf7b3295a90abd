"""Messages as text, for input and output: raw, ascii, hex, json.

A codec is a pair: `lines` reads messages from a binary stream, `show` writes one. hex and json can
be read back without loss. ascii is for people, raw for arbitrary bytes.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import click

Parts = list[bytes]


class Outgoing(NamedTuple):
    """A message to send. `to` is the routing id of a ROUTER's peer."""

    parts: Parts
    to: bytes | None = None


class Incoming(NamedTuple):
    """A received message and what `show` may print about it."""

    parts: Parts
    peer: str = ""
    routing_id: bytes | None = None
    at: float = 0.0


PLAIN = frozenset(string.printable.encode()) - frozenset(b"\\\r\n\t\x0b\x0c")
ASCII = [
    chr(byte) if byte in PLAIN else "\\\\" if byte == 0x5C else f"\\x{byte:02x}"
    for byte in range(256)
]


def _wrong(number: int, why: object) -> click.ClickException:
    return click.ClickException(f"line {number} of the input: {why}")


# -- raw -----------------------------------------------------------------------------------------


def read_raw(stream: BinaryIO) -> Iterator[Outgoing]:
    """The whole input is one message."""
    yield Outgoing([stream.read()])


def show_raw(message: Incoming) -> bytes:
    return b"".join(message.parts)


# -- ascii ---------------------------------------------------------------------------------------


def read_ascii(stream: BinaryIO) -> Iterator[Outgoing]:
    """Each line is a message, unchanged."""
    for line in stream:
        yield Outgoing([line.removesuffix(b"\n").removesuffix(b"\r")])


def as_text(text: str) -> str:
    """A name for the terminal, with control characters escaped."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def told_messages(first: int, end: int) -> str:
    """Which messages there are."""
    return f"messages {first} to {end - 1}" if first < end else f"no messages, the next is {end}"


def as_lines(text: str) -> str:
    """as_text() of each line."""
    return "\n".join(map(as_text, text.split("\n")))


def show_ascii(message: Incoming) -> bytes:
    text = "\t".join("".join(map(ASCII.__getitem__, part)) for part in message.parts)
    return text.encode() + b"\n"


# -- hex -----------------------------------------------------------------------------------------


def read_hex(stream: BinaryIO) -> Iterator[Outgoing]:
    for number, line in enumerate(stream, 1):
        try:
            yield Outgoing([bytes.fromhex(part) for part in line.decode("ascii").split(",")])
        except ValueError as error:
            raise _wrong(number, error) from None


def show_hex(message: Incoming) -> bytes:
    return ",".join(part.hex() for part in message.parts).encode() + b"\n"


# -- json lines ----------------------------------------------------------------------------------


def _to_part(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and isinstance(value.get("hex"), str):
        return bytes.fromhex(value["hex"])
    raise ValueError(f'a part must be "text" or {{"hex": "00ff"}}, not {json.dumps(value)}')


def _of_part(part: bytes) -> Any:
    try:
        return part.decode()
    except UnicodeDecodeError:
        return {"hex": part.hex()}


def read_json(stream: BinaryIO) -> Iterator[Outgoing]:
    """Each line is a text, a list of parts, or an object with "parts" (and "to" for a ROUTER)."""
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
            to = None
            if isinstance(value, dict) and "parts" in value:
                to = _to_part(value["to"]) if "to" in value else None
                value = value["parts"]
            parts = value if isinstance(value, list) else [value]
            if not parts:
                raise ValueError("a message needs at least one part")
            yield Outgoing([_to_part(part) for part in parts], to)
        except ValueError as error:
            raise _wrong(number, error) from None


def show_json(message: Incoming) -> bytes:
    facts: dict[str, Any] = {"parts": [_of_part(part) for part in message.parts]}
    if message.peer:
        facts["peer"] = message.peer
    if message.routing_id is not None:
        facts["to"] = _of_part(message.routing_id)
    if message.at:
        facts["at"] = round(message.at, 6)
    return as_json(facts).encode() + b"\n"


def as_json(value: Any) -> str:
    """JSON in one line, with terminal control characters escaped, even those JSON allows
    (U+009B)."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


class Format(NamedTuple):
    read: Callable[[BinaryIO], Iterator[Outgoing]]
    show: Callable[[Incoming], bytes]


FORMATS = {
    "raw": Format(read_raw, show_raw),
    "ascii": Format(read_ascii, show_ascii),
    "hex": Format(read_hex, show_hex),
    "json": Format(read_json, show_json),
}
