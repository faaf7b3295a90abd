"""The columns: Spark's types, Arrow's, and a journal's records as batches of exactly these.

Spark takes an Arrow batch only if its schema equals the DataFrame's to the last field name and
nullability, so the Arrow schema is made here from the Spark one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from mqcore.errors import OptionError, UsageError
from mqcore.journal import Records

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
BASE: dict[str, DataType] = {
    "key": BinaryType(), "value": BinaryType(), "topic": StringType(), "partition": IntegerType(),
    "offset": LongType(), "timestamp": TimestampType()}
HEADERS: dict[str, DataType] = {"headers": ArrayType(HEADER)}
STAMPS: dict[str, DataType] = {
    "producer": LongType(), "sequence": LongType(), "sent": TimestampType(),
    "life": LongType()}
ALL = {**BASE, **HEADERS, **STAMPS}
LIVE: dict[str, DataType] = {
    "value": BinaryType(), "topic": StringType(), "timestamp": TimestampType()}
# never null, but for the value of a tombstone, which record_batch() looks for
FULL = ("value", "topic", "partition", "offset", "timestamp")


def full_schema(headers: bool, stamps: bool) -> StructType:
    return _schema({**BASE, **(HEADERS if headers else {}), **(STAMPS if stamps else {})})


def live_schema() -> StructType:
    return _schema(LIVE)


def _schema(wanted: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in wanted.items()])


def check_schema(schema: StructType, known: dict[str, DataType] = ALL) -> None:
    """A schema that the user gave is a projection: any of our columns, in any order."""
    wrong = []
    for field in schema.fields:
        kind = known.get(field.name)
        if kind is None:
            wrong.append(f"{field.name} is not known; known are {', '.join(known)}")
        elif field.dataType != kind:
            wrong.append(f"{field.name} is {kind.simpleString()}, not "
                         f"{field.dataType.simpleString()}; cast it afterwards")
        elif not field.nullable and (field.name not in FULL or known is LIVE and
                                     field.name == "topic"):
            wrong.append(f"{field.name} may be null")
    if wrong:
        raise OptionError("the schema does not fit:" + "".join(f"\n  - {line}" for line in wrong))


def arrow_schema(schema: StructType) -> Any:
    import pyarrow as pa

    us = pa.timestamp("us", "UTC")
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    kinds = {"key": pa.binary(), "value": pa.binary(), "topic": pa.string(),
             "partition": pa.int32(), "offset": pa.int64(), "timestamp": us,
             "headers": pa.list_(pa.field("element", header)), "producer": pa.int64(),
             "sequence": pa.int64(), "sent": us, "life": pa.int64()}
    return pa.schema([pa.field(field.name, kinds[field.name], field.nullable)
                      for field in schema.fields])


def record_batch(records: Records, schema: Any) -> Any:
    """The records as one Arrow batch of this schema; values are views of the mapped file.
    UsageError: a tombstone, and the schema says that values are never null."""
    import pyarrow as pa

    raw = records.to_arrow(schema.names)
    arrays = []
    for array, field in zip(raw.columns, schema, strict=True):
        if field.name in ("producer", "sequence"):      # Spark has no unsigned numbers
            array = array.view(field.type)
        elif field.name in ("headers", "life"):
            array = array.cast(field.type)
        elif not field.nullable and array.null_count:
            raise UsageError(
                f"message {records.offset(array.is_null().index(True).as_py())} of topic "
                f"{records.topic!r}, partition {records.partition} is a tombstone, and the schema "
                f"says that {field.name} is never null",
                hint="leave NOT NULL out, and filter: df.where('value IS NOT NULL')")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def halves(batch: Any, most: int) -> Iterator[Any]:
    """The batch in pieces of at most so many bytes, or of one row."""
    if batch.nbytes <= most or batch.num_rows <= 1:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from halves(batch.slice(0, middle), most)
    yield from halves(batch.slice(middle), most)


def gathered(batches: Iterator[Any], most: int) -> Iterator[Any]:
    """Small batches put together up to `most` bytes, since each costs the JVM a turn."""
    import pyarrow as pa

    held: list[Any] = []
    size = 0
    for whole in batches:
        for batch in halves(whole, most):
            if held and size + batch.nbytes > most:
                yield held[0] if len(held) == 1 else pa.concat_batches(held)
                held, size = [], 0
            held.append(batch)
            size += batch.nbytes
    if held:
        yield held[0] if len(held) == 1 else pa.concat_batches(held)
