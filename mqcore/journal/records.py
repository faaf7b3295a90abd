"""Records: a run of messages as arrays that are views of the mapped file."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from mqcore.errors import UsageError
from mqcore.journal.later import np
from mqcore.journal.store.scan import Block
from mqcore.trace import TraceContext, extract

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

# columns of a block, in the order in which they lie there: (name, dtype)
LAYOUT: tuple[tuple[str, Any], ...] = (
    ("times", "int64"), ("value_ends", "int32"), ("value_valid", "uint8"), ("values", "uint8"),
    ("key_ends", "int32"), ("key_valid", "uint8"), ("keys", "uint8"),
    ("header_ends", "int32"), ("name_ends", "int32"), ("names", "uint8"),
    ("datum_ends", "int32"), ("data", "uint8"),
    ("producers", "uint64"), ("sequences", "uint64"), ("sent", "int64"),
    ("lives", "uint32"),
)
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers",
           "producer", "sequence", "sent", "life")
DEFAULT = ("key", "value", "offset", "timestamp")
FAR = 2.0 ** 62         # us
ROW = 12                # bytes of a message's time and end
HEADER = 8              # and of the two ends of each of its headers
MOST = 1 << 62          # no offset comes so far


class Records:
    """Messages of one partition, from the offset `first` on. They follow each other, unless
    compaction has removed some of those between: message i is at `offset(i)`, and `next` is the
    offset behind the last one.

    `data` uint8[bytes] and `offsets` int32[n + 1]: message i is data[offsets[i]:offsets[i+1]];
    offsets[0] need not be 0. Both are views of the mapped file, read-only, and keep it mapped; of a
    compressed block, they are views of the memory that it was decompressed into. Copy what is to be
    kept for long. If several small blocks were put together, they are copies.
    A tombstone, a message whose value is null, is None where messages come one by one, and has no
    bytes in `data`; `nulls` tells it from an empty message.
    `since`: the offset that was read. It is below `first` if compaction has removed what was there.
    With columns for Arrow, `offset` has that of each message.
    `times` and `sent` are computed on access.
    """

    def __init__(self, first: int, columns: dict[str, NDArray[Any]], lo: int, hi: int,
                 topic: str, partition: int, since: int | None = None,
                 places: NDArray[Any] | None = None) -> None:
        self.first = first          # of row lo
        self.since = first if since is None else since
        self.topic = topic
        self.partition = partition
        self._columns = columns
        self._lo = lo
        self._hi = hi
        self._places = places       # of each row of the columns, from any number on; None: no gaps

    def __len__(self) -> int:
        return self._hi - self._lo

    def __getitem__(self, i: int) -> bytes | None:
        ends = self._columns["value_ends"]
        at = self._row(i)
        valid = self._columns.get("value_valid")
        if valid is not None and not valid[at // 8] >> (at % 8) & 1:
            return None
        return self._columns["values"][ends[at]:ends[at + 1]].tobytes()

    def __iter__(self) -> Iterator[bytes | None]:
        return iter(self.to_list())

    def _row(self, i: int) -> int:
        if not -len(self) <= i < len(self):
            raise IndexError(f"message {i} of {len(self)}")
        return self._lo + i % len(self)

    def slice(self, start: int, stop: int | None = None) -> Records:
        """Rows start to stop, without a copy."""
        start, stop, _ = slice(start, stop).indices(len(self))
        stop = max(start, stop)
        if self._places is None:
            first = self.first + start
            since = None if start else self.since
        else:
            since = self.offset(start - 1) + 1 if start else self.since
            first = self.offset(start) if start < len(self) else self.next
        return Records(first, self._columns, self._lo + start, self._lo + stop, self.topic,
                       self.partition, since, self._places)

    def offset(self, i: int) -> int:
        """Of message i."""
        at = self._row(i)
        if self._places is None:
            return self.first + at - self._lo
        return self.first + int(self._places[at]) - int(self._places[self._lo])

    def _all_offsets(self) -> NDArray[np.int64]:
        if self._places is None:
            return np.arange(self.first, self.first + len(self), dtype=np.int64)
        places = self._places[self._lo:self._hi].astype(np.int64)
        return places + (self.first - places[:1])

    def _below(self, offset: int) -> int:
        """How many of them have a smaller one."""
        ahead = offset - self.first
        if self._places is None:
            return min(max(0, ahead), len(self))
        places = self._places[self._lo:self._hi]
        return int(np.searchsorted(places, int(places[0]) + ahead)) if len(places) else 0

    # -- NumPy --

    @property
    def next(self) -> int:
        """The offset behind the last message."""
        if self._places is None:
            return self.first + self._hi - self._lo
        return self.offset(-1) + 1 if len(self) else self.first

    @property
    def data(self) -> NDArray[np.uint8]:
        return self._columns["values"]

    @property
    def offsets(self) -> NDArray[np.int32]:
        return self._columns["value_ends"][self._lo:self._hi + 1]

    @property
    def nulls(self) -> NDArray[np.bool_] | None:
        """Which messages are tombstones; None: none of them is."""
        if "value_valid" not in self._columns:
            return None
        found = np.equal(bits(self._columns["value_valid"], self._lo, self._hi), 0)
        return found if found.any() else None

    @property
    def times(self) -> NDArray[np.float64]:
        """When each message was stored: seconds since the epoch."""
        return self._microseconds / 1e6

    @property
    def _microseconds(self) -> NDArray[np.int64]:
        return self._columns["times"][self._lo:self._hi]

    @property
    def nbytes(self) -> int:
        """Bytes of the messages, without keys and headers."""
        ends = self.offsets
        return int(ends[-1]) - int(ends[0])

    @property
    def size(self) -> int:
        """Bytes of all that is held: messages, keys and headers, and 12 for each message. Every
        bound in bytes counts this."""
        lo, hi = self._lo, self._hi
        c = self._columns
        found = ROW * (hi - lo) + self.nbytes
        if "key_ends" in c:
            found += int(c["key_ends"][hi]) - int(c["key_ends"][lo])
        if "header_ends" in c:
            lo, hi = int(c["header_ends"][lo]), int(c["header_ends"][hi])
            found += HEADER * (hi - lo) + sum(
                int(c[name][hi]) - int(c[name][lo]) for name in ("name_ends", "datum_ends"))
        return found

    def _sizes(self) -> NDArray[np.int64]:
        """The size of the first i messages, for i from 0 to their number."""
        rows = slice(self._lo, self._hi + 1)
        c = self._columns
        found = ROW * np.arange(len(self) + 1, dtype=np.int64)
        ends = [c[name][rows] for name in ("value_ends", "key_ends") if name in c]
        if "header_ends" in c:
            headers = c["header_ends"][rows]
            found += HEADER * (headers.astype(np.int64) - int(headers[0]))
            ends += [c[name][headers] for name in ("name_ends", "datum_ends")]
        for column in ends:
            found += column.astype(np.int64) - int(column[0])
        return found

    def _optional(self, name: str) -> NDArray[Any] | None:
        column = self._columns.get(name)
        return None if column is None else column[self._lo:self._hi]

    @property
    def producers(self) -> NDArray[np.uint64] | None:
        """Of each message; 0: it had no stamp. None: none of them had one."""
        return self._optional("producers")

    @property
    def sequences(self) -> NDArray[np.uint64] | None:
        return self._optional("sequences")

    @property
    def sent(self) -> NDArray[np.float64] | None:
        """When each message was sent, by its stamp: seconds since the epoch."""
        column = self._optional("sent")
        return None if column is None else column / 1e6

    @property
    def lives(self) -> NDArray[np.uint32] | None:
        """The life of each message's producer; 0: its stamp had none. None: no stamp had one."""
        return self._optional("lives")

    def to_list(self) -> list[bytes | None]:
        ends = self.offsets.tolist()
        raw = self.data[ends[0]:ends[-1]].tobytes() if ends else b""
        found: list[bytes | None] = [
            raw[a - ends[0]:b - ends[0]] for a, b in zip(ends, ends[1:], strict=False)]
        if (nulls := self.nulls) is not None:
            for i in np.flatnonzero(nulls).tolist():
                found[i] = None
        return found

    def key(self, i: int) -> bytes | None:
        at = self._row(i)
        if "key_ends" not in self._columns or not (
                self._columns["key_valid"][at // 8] >> (at % 8) & 1):
            return None
        ends = self._columns["key_ends"]
        return self._columns["keys"][ends[at]:ends[at + 1]].tobytes()

    def trace_context(self, i: int) -> TraceContext | None:
        """The trace that message i carries, for trace.span(parent=); None if it has none, or
        malformed headers, which are counted in trace.stats()."""
        return extract(self.headers(i))

    def headers(self, i: int) -> list[tuple[str, bytes]]:
        at = self._row(i)
        c = self._columns
        if "header_ends" not in c:
            return []
        return [(c["names"][c["name_ends"][k]:c["name_ends"][k + 1]].tobytes().decode(
                     errors="backslashreplace"),    # what other writers call UTF-8
                 c["data"][c["datum_ends"][k]:c["datum_ends"][k + 1]].tobytes())
                for k in range(c["header_ends"][at], c["header_ends"][at + 1])]

    # -- Arrow --

    def to_arrow(self, columns: Sequence[str] = DEFAULT) -> pa.RecordBatch:
        """A pyarrow.RecordBatch over the same memory, of the columns named: key, value, topic,
        partition, offset, timestamp, headers, producer, sequence, sent, life. Only topic, partition
        and offset, which are not stored per message, are made anew."""
        from mqcore.journal.arrow import record_batch

        return record_batch(self, columns)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        answer: tuple[object, object] = self.to_arrow().__arrow_c_array__(requested_schema)
        return answer

    def __repr__(self) -> str:
        return f"<Records {self.first} to {self.next - 1}, {self.nbytes} B>"


def single(value: bytes | None, key: bytes | None, headers: Sequence[tuple[str, bytes]],
           stamp: tuple[int, int], time: float) -> Records:
    """One stamped message, for append_records(). time: seconds since the epoch."""
    def ends(items: Sequence[bytes]) -> NDArray[np.int32]:
        return np.cumsum([0, *map(len, items)], dtype=np.int32)

    def joined(items: Sequence[bytes]) -> NDArray[np.uint8]:
        return np.frombuffer(b"".join(items), np.uint8)

    us = micros(time)
    names, data = [name.encode() for name, _ in headers], [datum for _, datum in headers]
    values, keys = [value or b""], [key or b""]
    columns = {
        "times": np.array([us]), "value_ends": ends(values), "values": joined(values),
        "value_valid": np.array([value is not None], np.uint8),
        "key_ends": ends(keys), "keys": joined(keys),
        "key_valid": np.array([key is not None], np.uint8),
        "header_ends": np.array([0, len(headers)], np.int32), "name_ends": ends(names),
        "names": joined(names), "datum_ends": ends(data), "data": joined(data),
        "producers": np.array([stamp[0]], np.uint64), "sequences": np.array([stamp[1]], np.uint64),
        "sent": np.array([us])}
    return Records(0, columns, 0, 1, "", 0)


def of_block(block: Block, topic: str, partition: int) -> Records:
    """All messages of a block that segment.readable() has returned."""
    columns, place = {}, block.place
    for i, (name, dtype) in enumerate(LAYOUT):
        at, size = block.column(i)
        if size or (name in ("values", "keys", "names", "data") and _has(block, name)):
            columns[name] = np.frombuffer(place, dtype, size // np.dtype(dtype).itemsize, at)
    places = None
    if block.compacted:
        at, size = block.column(len(LAYOUT))
        places = np.frombuffer(place, np.uint32, size // 4, at)
    return Records(block.first, columns, 0, block.count, topic, partition, None, places)


def _has(block: Block, name: str) -> bool:
    flag = {"values": 0, "keys": 1, "names": 2, "data": 2}[name]
    return not flag or bool(block.flags & flag)


def from_offset(block: Block, offset: int, topic: str, partition: int) -> Records:
    """The messages from this one on. If compaction has removed it, from the next one on."""
    found = of_block(block, topic, partition)
    if offset != block.first:
        found = found.slice(found._below(offset))
        found.since = offset
    return found


def until(records: Records, stop: int) -> Records:
    """Those below this offset. If there are none, `next` tells how far compaction has removed all,
    and is `stop` at most."""
    if n := records._below(stop):
        return records.slice(0, n)
    return nothing(min(stop, records.first), records.since, records.topic, records.partition)


def runs(records: Records) -> Iterator[Records]:
    """Those without a gap between, one after the other."""
    ends = [len(records)]
    if records._places is not None:
        ends = [*np.flatnonzero(np.diff(records._all_offsets()) != 1) + 1, len(records)]
    at = 0
    for end in ends:
        yield records.slice(at, int(end))
        at = int(end)


def nothing(first: int, since: int, topic: str, partition: int) -> Records:
    return Records(first, {"values": np.zeros(0, np.uint8), "times": np.zeros(0, np.int64),
                           "value_ends": np.zeros(1, np.int32)}, 0, 0, topic, partition, since)


def at_most(records: Records, room: int) -> Records:
    """The first of them, of so many bytes in all, but one message at least."""
    if records.size <= room:
        return records
    n = int(np.searchsorted(records._sizes(), room, side="right")) - 1
    return records.slice(0, max(1, n))


def whole(offset: object) -> int:
    """The offset as a number. UsageError: it cannot be one."""
    try:
        number = operator.index(offset)     # type: ignore[arg-type]
    except TypeError:
        raise UsageError(f"the offset {offset!r} is no whole number") from None
    if number >= MOST:
        raise UsageError(f"no message has the offset {number}",
                         hint="`first` and `end` tell which there are")
    return number


def micros(time: float) -> int:
    """Seconds since the epoch in us, within int64."""
    try:
        us = float(time) * 1e6
    except (TypeError, ValueError, OverflowError):
        us = math.nan
    if isinstance(time, str | bytes | bytearray) or math.isnan(us):
        raise UsageError(f"the time {time!r} is no number of seconds since the epoch",
                         hint="of a datetime, give its timestamp()")
    return round(max(-FAR, min(FAR, us)))


def gather(parts: Sequence[Records]) -> Records:
    """Records that follow each other as one, by copying."""
    return parts[0] if len(parts) == 1 else joined(parts)


def joined(parts: Sequence[Records]) -> Records:
    """gather(), always of columns that begin with the first row and end with the last."""
    names = {name for part in parts for name in part._columns}
    columns: dict[str, NDArray[Any]] = {}
    columns["times"] = np.concatenate([part._microseconds for part in parts])
    columns["value_ends"], columns["values"] = _joined(parts, "value_ends", "values")
    if "value_valid" in names:
        columns["value_valid"] = _joined_bits(parts, "value_valid", 1)
    if "key_ends" in names:
        columns["key_ends"], columns["keys"] = _joined(parts, "key_ends", "keys")
        columns["key_valid"] = _joined_bits(parts, "key_valid", 0)
    if "header_ends" in names:
        _join_headers(parts, columns)
    for name in ("producers", "sequences", "sent", "lives"):
        if name in names:
            columns[name] = np.concatenate([
                np.zeros(len(part), dict(LAYOUT)[name]) if part._optional(name) is None
                else part._optional(name) for part in parts])
    places = None
    if any(part._places is not None for part in parts) or not all(
            part.next == behind.first for part, behind in pairwise(parts)):
        places = np.concatenate([part._all_offsets() for part in parts])
    return Records(parts[0].first, columns, 0, sum(map(len, parts)), parts[0].topic,
                   parts[0].partition, parts[0].since, places)


def _joined(parts: Sequence[Records], ends: str, data: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Offsets from 0 on, and what they point into, of all rows; a part without them has nothing."""
    bounds, pieces, at = [np.zeros(1, np.int32)], [], 0
    for part in parts:
        own = part._columns.get(ends)
        if own is None:
            bounds.append(np.full(len(part), at, np.int32))
            continue
        own = own[part._lo:part._hi + 1]
        bounds.append(own[1:] - own[0] + np.int32(at))
        pieces.append(part._columns[data][own[0]:own[-1]])
        at += int(own[-1]) - int(own[0])
    return np.concatenate(bounds), (np.concatenate(pieces) if pieces else np.zeros(0, np.uint8))


def bits(column: NDArray[np.uint8], lo: int, hi: int) -> NDArray[np.uint8]:
    """Bits lo to hi of a column of bits: one byte for each."""
    at = lo // 8
    found = np.unpackbits(column[at:(hi + 7) // 8], count=hi - 8 * at, bitorder="little")
    return found[lo - 8 * at:]


def _bits(part: Records, name: str, default: int) -> NDArray[np.uint8]:
    """One byte for each row. default: without the column."""
    column = part._columns.get(name)
    if column is None:
        return np.full(len(part), default, np.uint8)
    return bits(column, part._lo, part._hi)


def _joined_bits(parts: Sequence[Records], name: str, default: int) -> NDArray[np.uint8]:
    return np.packbits(np.concatenate([_bits(part, name, default) for part in parts]),
                       bitorder="little")


def _join_headers(parts: Sequence[Records], columns: dict[str, NDArray[Any]]) -> None:
    lists, names, data = [np.zeros(1, np.int32)], [], []
    at = 0
    for part in parts:
        own = part._columns.get("header_ends")
        if own is None:
            lists.append(np.full(len(part), at, np.int32))
            continue
        own = own[part._lo:part._hi + 1]
        lists.append(own[1:] - own[0] + np.int32(at))
        at += int(own[-1]) - int(own[0])
        inner = Records(0, part._columns, int(own[0]), int(own[-1]), "", 0)
        names.append(inner)
        data.append(inner)
    columns["header_ends"] = np.concatenate(lists)
    columns["name_ends"], columns["names"] = _joined(names, "name_ends", "names")
    columns["datum_ends"], columns["data"] = _joined(data, "datum_ends", "data")
