"""Dead letters: which queue gets them, what their headers say, and that they do not go in circles.

A job that is a dead letter of a queue already never becomes one of that queue again: there it
stays, as in any queue of dead letters, and its headers do not grow.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mqcore.errors import OptionError
from mqcore.journal.queues.entry import Entry, QueueState
from mqcore.journal.queues.options import QueueOptions
from mqcore.journal.queues.requests import Malformed, headers_of

_pack = msgspec.msgpack.Encoder().encode


def queue_for(entry: Entry) -> str | None:
    """The queue that gets this job as a dead letter. None: it stays, or is discarded."""
    name = entry.queue.options.dead_of(entry.queue.name)
    return None if name is None or name in _before(entry) else name


def stays(entry: Entry) -> bool:
    """Whether the queue is the last one of its dead letters: they are delivered again and again."""
    return entry.queue.options.dead is not None and queue_for(entry) is None


def _before(entry: Entry) -> set[str]:
    """The queues whose dead letter it has been."""
    if not entry.headers:
        return set()
    try:
        return {value.decode() for name, value in headers_of(entry.headers)
                if name == "dead-queue"}
    except (Malformed, UnicodeDecodeError):
        return set()


def headers(entry: Entry, now: float, why: str) -> bytes:
    """Those of the dead letter: the job's own, and what has become of it."""
    try:
        before = headers_of(entry.headers)
    except Malformed:           # stored by a server that did not look: its end is not ours
        before = [("dead-headers", entry.headers or b"")]
    return _pack([*before,
                  ["dead-reason", why.encode()], ["dead-queue", entry.queue.name.encode()],
                  ["dead-attempts", str(entry.attempts).encode()],
                  ["dead-id", str(entry.id).encode()],
                  ["dead-time", f"{now:.6f}".encode()]])


def check_circle(name: str, options: QueueOptions, queues: Mapping[str, QueueState],
                 defaults: QueueOptions) -> None:
    """Raises OptionError if dead letters of the queue `name` would come back to it. A queue that
    does not exist has the defaults."""
    path = [name]
    at = options.dead_of(name)
    while at is not None and at not in path:
        path.append(at)
        there = queues.get(at)
        at = (defaults if there is None else there.options).dead_of(at)
    if at is not None:
        raise OptionError(f"dead={options.dead!r}: dead letters would go in a circle, "
                          f"{' -> '.join([*path, at])}",
                          hint="name a queue whose own dead letters end elsewhere")
