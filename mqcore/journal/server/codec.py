"""Records on the way between a journal server and a reader: PROTOCOL.md has the messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mqcore.errors import AddressError, Error, OptionError, UsageError
from mqcore.journal.errors import (
    GroupMoved,
    JobTooLarge,
    JournalBusy,
    JournalCorrupt,
    JournalDenied,
    JournalDiverged,
    JournalError,
    JournalFenced,
    JournalFull,
    JournalNotFound,
    JournalWriteError,
    OffsetGone,
    PartitionLost,
    QueueFull,
)
from mqcore.journal.later import np
from mqcore.journal.records import LAYOUT, Records, bits

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = 1
ALIGN = 64
MOST_TEXT = 2000        # characters of a server's error
PLACES = "places"       # a column: the offset of each message, from `first` on
INTERNAL = "internal"       # the code of what is a mistake of the server, not of the reader
CARRIED: tuple[type[Error], ...] = (OffsetGone, JournalCorrupt, JournalNotFound, JournalBusy,
                                    JournalDenied, JobTooLarge, UsageError, QueueFull, JournalFull,
                                    JournalWriteError, PartitionLost, GroupMoved,
                                    JournalFenced, JournalDiverged)


# -- records ---------------------------------------------------------------------------------------


def pack(records: Records) -> tuple[dict[str, Any], bytes]:
    """What the head says of the columns, and their bytes."""
    columns = rebased(records)
    pieces: list[bytes] = []
    places: dict[str, list[int]] = {}
    at = 0
    for name, dtype in LAYOUT:
        if name in columns:
            raw = np.ascontiguousarray(columns[name], dtype).tobytes()
            places[name] = [at, len(raw)]
            pad = -len(raw) % ALIGN
            pieces += [raw, bytes(pad)]
            at += len(raw) + pad
    gap = {} if records.since == records.first else {"since": records.since}
    if records._places is not None:
        raw = (records._all_offsets() - records.first).tobytes()
        pieces.append(raw)
        places[PLACES] = [at, len(raw)]
    return {"first": records.first, "n": len(records), "columns": places, **gap}, b"".join(pieces)


def rebased(records: Records) -> dict[str, NDArray[Any]]:
    """The columns of these rows alone, their ends from 0 on."""
    own, lo, hi = records._columns, records._lo, records._hi
    found = {"times": own["times"][lo:hi]}
    _cut(own, found, "value_ends", "values", lo, hi)
    if records.nulls is not None:
        found["value_valid"] = _cut_bits(own, "value_valid", lo, hi)
    if "key_ends" in own:
        _cut(own, found, "key_ends", "keys", lo, hi)
        found["key_valid"] = _cut_bits(own, "key_valid", lo, hi)
    if "header_ends" in own:
        lists = own["header_ends"][lo:hi + 1]
        found["header_ends"] = lists - lists[0]
        for ends, data in (("name_ends", "names"), ("datum_ends", "data")):
            _cut(own, found, ends, data, int(lists[0]), int(lists[-1]))
    for name in ("producers", "sequences", "sent"):
        if name in own:
            found[name] = own[name][lo:hi]
    if records.lives is not None and records.lives.any():
        found["lives"] = records.lives
    return found


def _cut(own: dict[str, NDArray[Any]], found: dict[str, NDArray[Any]], ends: str, data: str,
         lo: int, hi: int) -> None:
    bounds = own[ends][lo:hi + 1]
    found[ends] = bounds - bounds[0]
    found[data] = own[data][bounds[0]:bounds[-1]]


def _cut_bits(own: dict[str, NDArray[Any]], name: str, lo: int, hi: int) -> NDArray[np.uint8]:
    return np.packbits(bits(own[name], lo, hi), bitorder="little")


def unpack(head: Any, body: bytes, topic: str, partition: int) -> Records:
    """Raises JournalError if the columns do not fit together."""
    try:
        columns: dict[str, NDArray[Any]] = {}
        types = {**dict(LAYOUT), PLACES: "int64"}
        for name, (at, size) in head["columns"].items():
            kind = np.dtype(types[name])
            columns[name] = np.frombuffer(body, kind, size // kind.itemsize, at)
        n, first = int(head["n"]), int(head["first"])
        since = int(head.get("since", first))
        gaps = columns.pop(PLACES, None)
        good = is_offset(n) and is_offset(first) and 0 <= since <= first and _fits(columns, n) \
            and (gaps is None or _rises(gaps, n))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        good = False
    if not good:
        raise JournalError("what the journal server sent is no records",
                           hint="is it a journal server, and of this version?")
    return Records(first, columns, 0, n, topic, partition, since, gaps)


def _rises(places: NDArray[np.int64], n: int) -> bool:
    return bool(0 < n == len(places) and places[0] == 0 and (np.diff(places) > 0).all()
                and places[-1] < 1 << 61)


def _fits(columns: dict[str, NDArray[Any]], n: int) -> bool:
    def ends(name: str, count: int, into: int) -> bool:
        bounds = columns[name]
        return bool(len(bounds) == count + 1 and bounds[0] == 0 and bounds[-1] == into
                    and (np.diff(bounds) >= 0).all())

    good = len(columns["times"]) == n and ends("value_ends", n, len(columns["values"]))
    if "value_valid" in columns:
        good &= len(columns["value_valid"]) == (n + 7) // 8
    if "key_ends" in columns:
        good &= ends("key_ends", n, len(columns["keys"]))
        good &= len(columns["key_valid"]) == (n + 7) // 8
    if "header_ends" in columns:
        h = len(columns["name_ends"]) - 1
        good &= ends("header_ends", n, h) and ends("name_ends", h, len(columns["names"]))
        good &= ends("datum_ends", h, len(columns["data"]))
    if "producers" in columns:
        good &= all(len(columns[name]) == n for name in ("producers", "sequences", "sent"))
    if "lives" in columns:
        good &= len(columns["lives"]) == n and "producers" in columns
    return bool(good)


# -- heads and errors ------------------------------------------------------------------------------


def encode(head: dict[str, Any]) -> bytes:
    return json.dumps(head, separators=(",", ":"), allow_nan=False).encode()


def decode(raw: bytes) -> dict[str, Any]:
    """ValueError, whatever the bytes are."""
    try:
        found = json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def error_head(error: Exception, **to: Any) -> dict[str, Any]:
    """to: the `id` or the `stream` that it is for."""
    facts = {}
    kind = next((kind for kind in CARRIED if isinstance(error, kind)), None)
    if kind is not None:
        facts = {name: getattr(error, name) for name in kind.fields}
    code = JournalError.code if kind is None else kind.code
    if isinstance(error, (OptionError, AddressError)):
        code = UsageError.code
    text = error.text if isinstance(error, Error) else str(error) or type(error).__name__
    return {**to, "error": {"code": code, "text": readable(text),
                            "hint": readable(getattr(error, "hint", "")), "facts": facts}}


def is_offset(number: Any) -> bool:
    """Whether it can be one, or a count of messages."""
    return type(number) is int and 0 <= number < 1 << 62


def printable(text: str) -> str:
    """What a server says, safe for a terminal and of bounded length."""
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode()
                   for c in text[:MOST_TEXT])
    return safe if len(text) <= MOST_TEXT else safe + "..."


def readable(text: str) -> str:
    """Without what is no Unicode, as in names of files."""
    return text.encode("utf-8", "backslashreplace").decode()


def internal_head(**to: Any) -> dict[str, Any]:
    """The answer to a request that the server failed at."""
    return {**to, "error": {"code": INTERNAL, "text": "the journal server failed at this request",
                            "hint": "its log has the reason", "facts": {}}}


def error_from(told: Any) -> Error:
    """The exception that a server met, as it would have been raised here."""
    try:
        kind = next((kind for kind in CARRIED if kind.code == told["code"]), JournalError)
        text, hint, facts = told["text"], told["hint"], told["facts"]
        known = {name: facts[name] for name, default in kind.fields.items()
                 if type(facts.get(name)) is type(default)}
        if isinstance(text, str) and (hint is None or isinstance(hint, str)):
            return kind(printable(text), hint=hint and printable(hint), **known)
    except (KeyError, TypeError, AttributeError):
        pass
    return JournalError("the journal server answered with an error that cannot be read")
