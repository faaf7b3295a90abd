"""Records as Arrow: arrays whose buffers are the mapped file's."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mqcore.errors import NotSupported, OptionError
from mqcore.journal.later import np
from mqcore.journal.records import COLUMNS, Records

if TYPE_CHECKING:
    import pyarrow as pa


def library() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
    except ImportError:
        raise NotSupported("Arrow needs the package pyarrow",
                           hint="pip install mqcore[journal]") from None
    return pyarrow


def fields() -> dict[str, Any]:
    """Name to Arrow type. The first six and headers are what Spark's readers of a log expect."""
    pa = library()
    us = pa.timestamp("us", "UTC")
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return {"key": pa.binary(), "value": pa.binary(), "topic": pa.string(), "partition": pa.int32(),
            "offset": pa.int64(), "timestamp": us, "headers": pa.list_(header),
            "producer": pa.uint64(), "sequence": pa.uint64(), "sent": us,
            "life": pa.uint32()}


@functools.lru_cache(maxsize=64)
def schema(columns: tuple[str, ...]) -> pa.Schema:
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown:
        raise OptionError(f"a journal has no column {', '.join(unknown)}",
                          hint=f"it has {', '.join(COLUMNS)}")
    types = fields()
    return library().schema([(name, types[name]) for name in columns])


def record_batch(records: Records, columns: Sequence[str]) -> pa.RecordBatch:
    pa = library()
    wanted = schema(tuple(columns))
    arrays = [_column(pa, records, name, kind)
              for name, kind in zip(columns, wanted.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _column(pa: Any, r: Records, name: str, kind: Any) -> Any:
    n, total, lo, c = len(r), r._hi, r._lo, r._columns
    if name == "value":
        return _binary(pa, kind, c["value_ends"], c["values"], total,
                       c.get("value_valid")).slice(lo)
    if name == "key":
        if "key_ends" not in c:
            return _repeated(None, kind, n)
        return _binary(pa, kind, c["key_ends"], c["keys"], total, c["key_valid"]).slice(lo)
    if name == "headers":
        return _headers(pa, r, kind)
    if name == "offset":
        return pa.Array.from_buffers(kind, n, [None, pa.py_buffer(r._all_offsets())])
    if name in ("topic", "partition"):
        return _repeated(getattr(r, name), kind, n)
    stored = {"timestamp": "times", "producer": "producers", "sequence": "sequences",
              "sent": "sent", "life": "lives"}[name]
    if name == "life" and "producers" in c and "lives" not in c:
        c = {**c, "lives": np.zeros(total, np.uint32)}
    if stored not in c:
        return _repeated(None, kind, n)
    array = pa.Array.from_buffers(kind, total, [None, pa.py_buffer(c[stored])]).slice(lo)
    if name != "timestamp":     # a message without a stamp
        missing = np.equal(c["producers"][lo:r._hi], 0)
        if missing.any():
            return pa.compute.if_else(pa.array(missing), pa.scalar(None, kind), array)
    return array


def _repeated(value: Any, kind: Any, n: int) -> Any:
    """So many times the same."""
    return _repeated_often(value, kind, 1 << max(0, n - 1).bit_length()).slice(0, n)


@functools.lru_cache(maxsize=16)
def _repeated_often(value: Any, kind: Any, n: int) -> Any:
    pa = library()
    return pa.repeat(pa.scalar(value, kind), n)


def _binary(pa: Any, kind: Any, ends: Any, data: Any, n: int, valid: Any = None) -> Any:
    buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(ends),
               pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, n, buffers)


def _headers(pa: Any, r: Records, kind: Any) -> Any:
    c = r._columns
    if "header_ends" not in c:
        return pa.array([[]] * len(r), kind)
    n = int(c["header_ends"][r._hi])
    names = _binary(pa, pa.string(), c["name_ends"], c["names"], n)
    names.validate(full=True)       # what other writers call UTF-8
    data = _binary(pa, pa.binary(), c["datum_ends"], c["data"], n)
    pairs = pa.StructArray.from_arrays([names, data], fields=list(kind.value_type))
    return pa.Array.from_buffers(
        kind, r._hi, [None, pa.py_buffer(c["header_ends"])], children=[pairs]).slice(r._lo)
