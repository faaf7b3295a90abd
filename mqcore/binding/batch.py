"""Batch: many received messages as three NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Batch:
    """Message i is data[offsets[i]:offsets[i+1]], its parts joined; its first part ends at
    split[i].

    data: uint8[n bytes], offsets: int32[messages + 1], split: int32[messages]. In a batch of more
    than 2 GiB offsets and split are int64. The arrays are the batch's own memory; slices of them
    copy nothing.
    """

    __slots__ = ("data", "offsets", "split")

    def __init__(self, data: Any, offsets: Any, split: Any) -> None:
        self.data = data
        self.offsets = offsets
        self.split = split

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, i: int) -> memoryview:
        n = len(self.split)
        if not -n <= i < n:
            raise IndexError(f"message {i} of {n}")
        i %= n
        return memoryview(self.data)[self.offsets[i]:self.offsets[i + 1]]

    def __iter__(self) -> Iterator[memoryview]:
        return (self[i] for i in range(len(self)))

    def to_list(self) -> list[bytes]:
        """The messages as bytes, parts joined. Copies."""
        raw = self.data.tobytes()
        ends = self.offsets.tolist()
        return [raw[a:b] for a, b in zip(ends, ends[1:], strict=False)]

    def to_arrow(self) -> Any:
        """A pyarrow BinaryArray over the same memory; LargeBinaryArray above 2 GiB."""
        import pyarrow as pa

        kind = pa.binary() if self.offsets.itemsize == 4 else pa.large_binary()
        return pa.Array.from_buffers(
            kind, len(self), [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)])

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} messages, {len(self.data)} B>"
