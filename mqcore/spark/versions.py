"""What PySpark 4.0 and 4.1 lack, so that the rest works with them too.

4.0 has no filters for data sources, and hands streams to a sink as rows. 4.0 and 4.1 tell a
streaming source neither where a batch begins nor how much it may hold. The names below then stand
for nothing that Spark ever passes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark import __version__ as VERSION  # noqa: N812  a constant
from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from mqcore.errors import NotSupported

try:
    from pyspark.sql.datasource import (
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        LessThan,
        LessThanOrEqual,
    )

    FILTERS = True
except ImportError:  # before 4.1
    FILTERS = False

    @dataclass(frozen=True)
    class Filter:  # type: ignore[no-redef]
        attribute: tuple[str, ...]
        value: Any

    class EqualTo(Filter):  # type: ignore[no-redef]
        pass

    class GreaterThan(Filter):  # type: ignore[no-redef]
        pass

    class GreaterThanOrEqual(Filter):  # type: ignore[no-redef]
        pass

    class In(Filter):  # type: ignore[no-redef]
        pass

    class LessThan(Filter):  # type: ignore[no-redef]
        pass

    class LessThanOrEqual(Filter):  # type: ignore[no-redef]
        pass

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    ARROW_STREAMS = True
except ImportError:  # before 4.1
    ARROW_STREAMS = False

    class DataSourceStreamArrowWriter(DataSourceStreamWriter):  # type: ignore[no-redef]
        pass

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    LIMITS = True
except ImportError:  # before 4.2
    LIMITS = False

    class ReadLimit:  # type: ignore[no-redef]
        pass

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        pass

    @dataclass(frozen=True)
    class ReadMaxBytes(ReadLimit):  # type: ignore[no-redef]
        max_bytes: int

    @dataclass(frozen=True)
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        max_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        pass

ROWS = 4096  # in an Arrow batch that is made of rows

__all__ = ["FILTERS", "LIMITS", "VERSION", "DataSourceStreamArrowWriter", "EqualTo", "Filter",
           "GreaterThan", "GreaterThanOrEqual", "In", "LessThan", "LessThanOrEqual",
           "ReadAllAvailable", "ReadLimit", "ReadMaxBytes", "ReadMaxRows",
           "SupportsTriggerAvailableNow", "batches", "check_filters", "check_limits"]


def batches(iterator: Iterator[Any], schema: StructType) -> Iterator[Any]:
    """Arrow batches of what Spark hands to a streaming sink."""
    if ARROW_STREAMS:
        return iterator
    return _of_rows(iterator, schema)


def _of_rows(rows: Iterator[Any], schema: StructType) -> Iterator[Any]:
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    types = to_arrow_schema(schema)
    while chunk := list(itertools.islice(rows, ROWS)):
        yield pa.RecordBatch.from_pylist(
            [dict(zip(types.names, map(_plain, row), strict=True)) for row in chunk], types)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):  # Spark's are local
        return value.astimezone(UTC)
    return bytes(value) if isinstance(value, bytearray) else value


def check_filters(wanted: bool) -> None:
    if wanted and not FILTERS:
        raise NotSupported(f"PySpark {VERSION} does not hand filters to sources: "
                           "filterPushdown needs 4.1 or later",
                           hint="leave it out; the filters then run in Spark")


def check_limits(**limits: int | None) -> None:
    for name, value in limits.items():
        if value is not None and not LIMITS:
            raise NotSupported(f"PySpark {VERSION} does not tell a streaming source where a batch "
                               f"begins: {name} needs 4.2 or later",
                               hint="leave it out; a batch then holds all that is there")
