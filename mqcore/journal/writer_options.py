"""What may be given to a writer: the limits of its options."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

from mqcore.errors import OptionError
from mqcore.journal.store.compressors import codec
from mqcore.journal.store.place import group_file

POLICIES = ("always", "interval", "never")
MIN_SEGMENT = 4 << 10
MIN_BLOCK, MAX_BLOCK = 1 << 10, 256 << 20
FRACTIONS: dict[str, tuple[float, float]] = {
    "replica_timeout": (0.1, 3600),
    "fsync_interval": (0.001, 3600), "segment_age": (0.001, 1e9), "retain_age": (0, 1e9)}
NUMBERS: dict[str, tuple[float, float]] = {
    "segment_bytes": (MIN_SEGMENT, 1 << 40), "begin": (0, 1 << 60),
    "block_bytes": (MIN_BLOCK, MAX_BLOCK), "retain_bytes": (0, 1 << 62),
    "max_producers": (1, 1 << 24), "max_producer_bytes": (1 << 16, 1 << 40)}


def check_options(**given: Any) -> None:
    """Some of a Writer's. OptionError; NotSupported: compression= without pyarrow."""
    if given.get("compression") is not None:
        codec(given["compression"])
    if given.get("fsync", POLICIES[0]) not in POLICIES:
        raise OptionError(f"fsync={given['fsync']!r}", hint=f"it is one of {', '.join(POLICIES)}")
    if given.get("deduplicate") and not given.get("stamps"):
        raise OptionError("deduplicate=True without stamps=True",
                          hint="it is by the stamps of their senders that duplicates are known")
    for name in FRACTIONS.keys() & given.keys():
        check_limit(name, given[name], float, FRACTIONS)
    for name in NUMBERS.keys() & given.keys():
        check_limit(name, given[name], int, NUMBERS)


def groups_of(given: Any) -> tuple[str, ...]:
    """retain_for. OptionError: no groups can be called that."""
    try:
        groups = (given,) if isinstance(given, str) else tuple(given)
    except TypeError:
        raise OptionError(f"retain_for={given!r}", hint="give a tuple of consumer groups") from None
    for group in groups:
        group_file(Path(), group)
    return groups


def check_limit(name: str, value: Any, kind: type, limits: dict[str, tuple[float, float]]) -> None:
    low, high = limits[name]
    if value is None and name in ("segment_age", "retain_age", "retain_bytes"):
        return
    try:
        number = operator.index(value) if kind is int else float(value)
        good = low <= number <= high and not isinstance(value, str | bytes | bool)
    except (TypeError, ValueError):
        good = False
    if not good:
        raise OptionError(f"{name}={value!r}", hint=f"it is {low:g} to {high:g}")
