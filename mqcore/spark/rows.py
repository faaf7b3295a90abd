"""What is written: which columns a DataFrame needs, and Arrow batches of it as NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from mqcore.errors import OptionError, UsageError
from mqcore.journal import Records
from mqcore.journal.stamp import MAGIC, SIZE

TEXT: tuple[DataType, ...] = (BinaryType(), StringType())
JOURNAL: dict[str, tuple[DataType, ...]] = {
    "value": TEXT, "key": TEXT, "topic": (StringType(),), "partition": (IntegerType(),),
    "timestamp": (TimestampType(),)}
SOCKET: dict[str, tuple[DataType, ...]] = {
    "value": TEXT, "key": TEXT, "topic": (StringType(),)}
FARTHEST = 253402300800 * 10**6      # us: the year 10000; a journal's times lie before it
STAMP = np.dtype([("magic", "S4"), ("zero", "<u4"), ("producer", "<u8"), ("sequence", "<u8"),
                  ("time", "<i8")])


def check_columns(schema: StructType, known: dict[str, tuple[DataType, ...]], overwrite: bool,
                  topic: str | None) -> None:
    """value is required; every other column must be known, so that nothing is lost unseen."""
    wrong = []
    names = [field.name for field in schema.fields]
    if overwrite:
        wrong.append('mode "overwrite": messages are only ever appended; use mode "append"')
    if "value" not in names:
        wrong.append('there is no column value; for all columns as JSON: df.selectExpr('
                     '"to_json(struct(*)) AS value")')
    for field in schema.fields:
        if field.name == "headers":
            wrong.append("headers are not written; drop the column, or put them in the value")
        elif field.name not in known:
            wrong.append(f"the column {field.name} is not known; known are {', '.join(known)}")
        elif field.dataType not in known[field.name]:
            kinds = " or ".join(kind.simpleString() for kind in known[field.name])
            wrong.append(f"{field.name} is {field.dataType.simpleString()}, not {kinds}")
    if known is JOURNAL and "topic" not in names and topic is None:
        wrong.append('there is no column topic; add it, or say option("topic", ...)')
    if wrong:
        raise OptionError("the DataFrame cannot be written:"
                          + "".join(f"\n  - {line}" for line in wrong))


def column(batch: Any, name: str) -> Any:
    """The Arrow column, or None."""
    at = batch.schema.get_field_index(name)
    return None if at < 0 else batch.column(at)


def parts_of(array: Any, what: str | None = None) -> tuple[Any, Any]:
    """Of a binary or string column: (uint8 data, int64 offsets). what: its name, if nulls are an
    error."""
    import pyarrow as pa

    if what is not None and array.null_count:
        raise UsageError(f"{array.null_count} rows without {what}",
                         hint=f'leave them out: df.where("{what} IS NOT NULL")')
    wide = pa.types.is_large_binary(array.type) or pa.types.is_large_string(array.type)
    if not (wide or pa.types.is_binary(array.type) or pa.types.is_string(array.type)):
        array = array.cast(pa.large_binary())
        wide = True
    n = len(array)
    _, ends, data = array.buffers()
    kind = np.int64 if wide else np.int32
    if ends is None or n == 0:
        return np.zeros(0, np.uint8), np.zeros(n + 1, np.int64)
    offsets = np.frombuffer(ends, kind, n + 1, array.offset * np.dtype(kind).itemsize)
    raw = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return raw, offsets.astype(np.int64)


def check_tombstones(values: Any, keys: Any) -> None:
    """A row without value becomes a tombstone, which needs a key. UsageError. keys: None: no row
    has one."""
    import pyarrow.compute as pc

    if values.null_count:
        keyless = values.null_count if keys is None else \
            pc.sum(pc.and_(values.is_null(), keys.is_null())).as_py()
        if keyless:
            raise UsageError(
                f"{keyless} rows without value and without key",
                hint="a row without value is a tombstone for its key; leave the others out: "
                     'df.where("value IS NOT NULL OR key IS NOT NULL")')


def check_times(times: Any) -> None:
    """UsageError: a time that no journal takes, so the ledger must not promise it. times: None: no
    row has one."""
    import pyarrow.compute as pc

    if times is not None:
        ends = pc.min_max(times.view("int64")).as_py()
        if any(us is not None and not -FARTHEST < us < FARTHEST for us in ends.values()):
            raise UsageError("rows with a timestamp beyond the year 9999",
                             hint="leave them out, or leave the column timestamp out: the time is "
                                  "then that of the publication")


def tombstones_too(batch: Any, when: Any, sender: int, sequence: int, now: int) -> Records:
    """Rows of value and key, some without value, as a journal's reader would give them, stamped.
    when: datetime64[us] each."""
    columns = {"times": when.view(np.int64)}
    for name in ("value", "key"):
        array = column(batch, name)
        if array is None:
            continue
        data, ends = parts_of(array)
        data = data[ends[0]:ends[-1]]
        columns[f"{name}_ends"] = (ends - ends[0]).astype(np.int32)
        columns[f"{name}s"] = data
        columns[f"{name}_valid"] = np.packbits(
            array.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
    n = batch.num_rows
    columns["producers"] = np.full(n, sender, np.uint64)
    columns["sequences"] = np.arange(sequence, sequence + n, dtype=np.uint64)
    columns["sent"] = np.full(n, now, np.int64)
    return Records(0, columns, 0, n, "", 0)


def stamped(data: Any, ends: Any, sender: int, sequence: int, now: int) -> tuple[Any, Any]:
    """The messages with a stamp in front of each."""
    n = len(ends) - 1
    starts = ends[:-1] - ends[0] + SIZE * np.arange(n)
    out = np.empty(int(ends[-1] - ends[0]) + SIZE * n, np.uint8)
    stamps = np.zeros(n, STAMP)
    stamps["magic"], stamps["producer"], stamps["time"] = MAGIC, sender, now
    stamps["sequence"] = sequence + np.arange(n)
    body = np.ones(len(out), bool)
    at = starts[:, None] + np.arange(SIZE)
    body[at] = False
    out[at] = stamps.view(np.uint8).reshape(n, SIZE)
    out[body] = data[ends[0]:ends[-1]]
    return out, np.append(starts, len(out)).astype(np.int64)


def with_topics(values: Any, topics: Any, default: str | None) -> tuple[Any, Any, Any]:
    """(data, offsets, split) of messages of two parts, topic and value; of one, and split -1, where
    there is neither topic nor default. topics: an Arrow column or None."""
    import pyarrow as pa
    import pyarrow.compute as pc

    binary = pa.large_binary()
    if topics is None:
        topics = pa.scalar(default, pa.string())
    elif default is not None:
        topics = topics.fill_null(default)
    topics = topics.cast(binary)
    data, ends = parts_of(pc.binary_join_element_wise(
        topics, values.cast(binary), pa.scalar(b"", binary), null_handling="replace",
        null_replacement=b""))
    sizes = pc.binary_length(topics)
    if isinstance(sizes, pa.Scalar):
        return data, ends, ends[:-1] + sizes.as_py()
    split = ends[:-1] + sizes.fill_null(0).to_numpy()
    if sizes.null_count:
        split[sizes.is_null().to_numpy(zero_copy_only=False)] = -1
    return data, ends, split
