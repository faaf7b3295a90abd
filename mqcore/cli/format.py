"""How messages look as text, in and out: raw, ascii, hex, json.

A codec is a pair: `lines` reads messages from a binary stream, `show` writes one. What hex or json
wrote, they read back the same; ascii is for people, raw for bytes that are nobody's text.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import click

Parts = list[bytes]


class Outgoing(NamedTuple):
    """A message to be sent; `to` is a ROUTER's peer."""

    parts: Parts
    to: bytes | None = None


class Incoming(NamedTuple):
    """A message as it came: what `show` may tell of it."""

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
    """A line is a message, as it stands."""
    for line in stream:
        yield Outgoing([line.removesuffix(b"\n").removesuffix(b"\r")])


def as_text(text: str) -> str:
    """A name for the terminal, without what it might obey."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


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
    raise ValueError(f'a part is "text" or {{"hex": "00ff"}}, not {json.dumps(value)}')


def _of_part(part: bytes) -> Any:
    try:
        return part.decode()
    except UnicodeDecodeError:
        return {"hex": part.hex()}


def read_json(stream: BinaryIO) -> Iterator[Outgoing]:
    """A line is a text, a list of parts, or an object with "parts" (and "to", a ROUTER's peer)."""
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
                raise ValueError("a message has at least one part")
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
    return json.dumps(facts, ensure_ascii=False).encode() + b"\n"


class Format(NamedTuple):
    read: Callable[[BinaryIO], Iterator[Outgoing]]
    show: Callable[[Incoming], bytes]


FORMATS = {
    "raw": Format(read_raw, show_raw),
    "ascii": Format(read_ascii, show_ascii),
    "hex": Format(read_hex, show_hex),
    "json": Format(read_json, show_json),
}
