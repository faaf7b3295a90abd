"""Checks of what callers of a Queue give."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mqcore.errors import OptionError, UsageError
from mqcore.journal.queues.bulk import handles
from mqcore.journal.queues.job import Job
from mqcore.journal.queues.options import BEST, WORST
from mqcore.journal.queues.requests import encode
from mqcore.journal.waiting import seconds_of

LONGEST_DELAY = 1e9     # seconds

Headers = Mapping[str, bytes | str] | Iterable[tuple[str, bytes | str]]


def handles_of(jobs: Sequence[Job]) -> tuple[list[int], list[int]]:
    """(ids, attempts)"""
    try:
        if isinstance(jobs, Sequence):      # it is gone through twice
            return handles(jobs)
        raise TypeError
    except TypeError:
        raise UsageError("jobs are a list of those that get() returned, not "
                         f"{_kind(jobs)}") from None


def bytes_of(body: Any) -> bytes:
    if isinstance(body, str):
        raise UsageError("a job's body is bytes, not str", hint="call .encode()")
    try:
        return bytes(memoryview(body))
    except TypeError:
        raise UsageError(f"a job's body is bytes, not {type(body).__name__}",
                         hint="encode it first: json.dumps(value).encode()") from None


def bodies_of(bodies: Any) -> Iterable[Any]:
    if isinstance(bodies, (bytes, bytearray, memoryview, str)) or not hasattr(bodies, "__iter__"):
        raise UsageError(f"put_many() takes several bodies, not {type(bodies).__name__}",
                         hint="use put() for one")
    several: Iterable[Any] = bodies
    return several


def count_of(count: Any) -> int:
    if type(count) is not int or not 1 <= count < 1 << 62:
        raise UsageError(f"max={count!r} is no number of jobs")
    return count


def sequence_of(sequence: Any) -> int:
    if type(sequence) is not int or not 0 <= sequence < 1 << 62:
        raise UsageError(f"sequence={sequence!r} is no number of a job",
                         hint="a producer counts its jobs from 0")
    return sequence


def delay_of(delay: Any, name: str = "delay") -> float:
    try:
        seconds = seconds_of(delay, name)
    except UsageError:
        seconds = math.inf
    if seconds > LONGEST_DELAY:
        raise OptionError(f"{name}={delay!r}", hint=f"it is 0 to {LONGEST_DELAY:g} seconds")
    return seconds


def common_of(headers: Headers | None, delay: float, ttl: float | None,
              priority: int) -> tuple[int, float, float, bytes | None]:
    """The options of a put."""
    if type(priority) is not int or not BEST <= priority <= WORST:
        raise OptionError(f"priority={priority!r}", hint=f"it is {BEST} (first) to {WORST}")
    lasting = 0.0
    if ttl is not None:
        lasting = delay_of(ttl, "ttl")
        if not lasting:
            raise OptionError(f"ttl={ttl!r}", hint="it is a number of seconds above 0, or None")
    return priority, delay_of(delay), lasting, _packed(headers) if headers else None


def _packed(headers: Headers) -> bytes:
    rows = headers.items() if isinstance(headers, Mapping) else headers
    try:
        pairs = [(name, value.encode() if isinstance(value, str) else bytes(memoryview(value)))
                 for name, value in rows]
        if all(isinstance(name, str) for name, _ in pairs):
            return encode(pairs)
    except (TypeError, ValueError):     # no pairs, no bytes, lone surrogates
        pass
    raise UsageError("headers are pairs of a name and a value",
                     hint='say headers={"type": b"order"}')


def _kind(jobs: Any) -> str:
    if isinstance(jobs, Sequence):
        return next((type(job).__name__ for job in jobs if not isinstance(job, Job)), "these")
    return type(jobs).__name__
