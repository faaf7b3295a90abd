"""The options of format("mqcore"): one table, checked all at once on the driver.

Names are the Kafka connector's where it has them, and as there not case-sensitive. Every mistake
is reported, not the first alone, with the nearest known name.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from mqcore.errors import Error, OptionError
from mqcore.journal.store.place import group_name
from mqcore.spi.url import parse

BATCH, STREAM, WRITE = "a batch read", "a streaming read", "a write"
LIVE = "a batch read from live sockets"
READS = (BATCH, STREAM)
EARLIEST, LATEST = -2, -1       # as numbers in JSON
# given by Spark itself along with ours
SPARKS = {"checkpointlocation", "queryname", "outputmode", "overwriteschema", "mergeschema"}
SOCKETS = ("a live socket forgets what nobody received, and a batch could not be read again after "
           "a failure")
RECORD = ('record it with `mq journal record` and read the journal (option("path", ...), or '
             "`mq journal serve` and its address as endpoints)")
NO_STREAM = ("pattern is that of a live socket, which a stream cannot read: "
             f"{SOCKETS}; {RECORD}")
LOCAL = ("inproc", "fd")
SENDS, HEARS = ("push", "pub"), ("pull", "sub")     # patterns of a write, and of a live read
BIND = ("executors come, go and move, so peers could not know their addresses; let the receiver "
        "bind, and give its address as endpoints")


def _text(value: str) -> str:
    if not value:
        raise ValueError("is empty")
    return value


def _job(value: str) -> str:
    """A name that a file can be called."""
    group_name(value)
    return value


def _count(value: str) -> int:
    if not value.strip().isdecimal() or int(value) < 1:
        raise ValueError(f"{value!r} is not a number from 1 on")
    return int(value)


def _bool(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError(f"{value!r} is neither true nor false")
    return value.lower() == "true"


def _names(value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(","))
    if not all(names):
        raise ValueError(f"{value!r} is not a list of names separated by commas")
    return names


def _places(value: str) -> tuple[str, ...]:
    """Separated by commas; or a list in JSON, for names with a comma in them."""
    if not value.startswith("["):
        return _names(value)
    found = _json(value)
    if not found or not all(isinstance(name, str) and name for name in found):
        raise ValueError(f'{value!r} is not of the form ["/data/a", "/data/b"]')
    return tuple(found)


def _folders(value: str) -> tuple[str, ...]:
    found = tuple(name.removeprefix("file://") for name in _places(value))
    for name in found:
        if "://" in name:
            raise ValueError(f"{name!r} is not a folder; journals are read from a file system that "
                             "driver and executors share, by its path, or from journal servers: "
                             'option("endpoints", "tcp://...")')
    return _different(found)


def _addresses(value: str) -> tuple[str, ...]:
    found = _places(value)
    for text in found:
        url = parse(text)
        if url.transport in LOCAL:
            raise ValueError(f"{text!r} is an address within one process; executors are others")
        if url.transport == "tcp" and "/" in url.address:
            raise ValueError(f"{text!r} names a topic; say tcp://host:port, and the topic as "
                             "subscribe (to read) or topic (to write)")
    return _different(found)


def _different(found: tuple[str, ...]) -> tuple[str, ...]:
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice:
        raise ValueError(f"{', '.join(twice)} is named twice")
    return found


def _pattern(value: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except re.error as error:
        raise ValueError(f"{value!r} is no regular expression: {error}") from None


def _json(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f"{value!r} is not JSON: {error}") from None


def _assign(value: str) -> frozenset[tuple[str, int]]:
    """{"flights": [0, 1]}"""
    given = _json(value)
    if not isinstance(given, dict) or not given or not all(
            isinstance(numbers, list) and all(type(n) is int and n >= 0 for n in numbers)
            for numbers in given.values()):
        raise ValueError(f'{value!r} is not of the form {{"topic": [0, 1]}}')
    return frozenset((topic, n) for topic, numbers in given.items() for n in numbers)


def _offsets(value: str) -> str | dict[str, int]:
    """earliest, latest, {"topic|0": 23} or {"topic": {"0": 23}}; as {"topic|0": 23}."""
    if value.lower() in ("earliest", "latest"):
        return value.lower()
    if not value.lstrip().startswith("{"):
        raise ValueError(f"{value!r} is not earliest, latest or JSON")
    flat: dict[str, int] = {}
    for name, given in _json(value).items():
        rows = given.items() if isinstance(given, dict) else [(None, given)]
        for partition, offset in rows:
            key = name if partition is None else f"{name}|{partition}"
            good = type(offset) is int and offset >= EARLIEST and key.rpartition("|")[2].isdecimal()
            if not good or "|" not in key:
                raise ValueError(f'{key!r}: {offset!r} is not of the form "topic|0": 23, with '
                                 f"{EARLIEST} for earliest and {LATEST} for latest")
            flat[key] = offset
    return flat


def _time(value: str) -> float:
    """Milliseconds since the epoch, as the Kafka connector has it, or ISO 8601; as seconds."""
    if value.strip().isdecimal():
        return int(value) / 1000
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(f"{value!r} is neither milliseconds since 1970 nor ISO 8601") from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _choice(*names: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value.lower() not in names:
            raise ValueError(f"{value!r} is not one of {', '.join(names)}")
        return value.lower()
    return check


def _codec(value: str) -> str | None:
    """As a writer's compression= has it."""
    found = _choice("none", "zstd", "lz4")(value)
    return None if found == "none" else found


class Row(NamedTuple):
    check: Callable[[str], Any]
    default: Any
    where: tuple[str, ...]
    meaning: str


EVERYWHERE = (*READS, LIVE, WRITE)
RECEIVES = (*READS, LIVE)
TABLE: dict[str, Row] = {
    "path": Row(_folders, None, (*READS, WRITE), "folders of journals, separated by commas"),
    "endpoints": Row(_addresses, None, EVERYWHERE, "addresses, separated by commas"),
    "subscribe": Row(_names, None, RECEIVES, "topics (of a SUB: their beginnings), by commas"),
    "subscribePattern": Row(_pattern, None, READS, "regular expression over whole topic names"),
    "assign": Row(_assign, None, READS, 'partitions: {"topic": [0, 1]}'),
    "startingOffsets": Row(_offsets, None, READS, 'earliest, latest or {"topic|0": 23}'),
    "startingTimestamp": Row(_time, None, READS, "milliseconds since 1970, or ISO 8601"),
    "endingOffsets": Row(_offsets, "latest", (BATCH,), "as startingOffsets"),
    "maxOffsetsPerTrigger": Row(_count, None, (STREAM,), "messages in a micro-batch"),
    "maxBytesPerTrigger": Row(_count, None, (STREAM,), "bytes in a micro-batch, by the average"),
    "minPartitions": Row(_count, None, READS, "Spark partitions at least"),
    "maxPartitions": Row(_count, None, READS, "Spark partitions at most"),
    "failOnDataLoss": Row(_bool, True, READS, "stop when messages are gone, or warn and go on"),
    "includeHeaders": Row(_bool, False, READS, "the column headers"),
    "includeStamps": Row(_bool, False, READS, "the columns producer, sequence, sent and life"),
    "durable": Row(_bool, True, READS, "read only what survives a power cut"),
    "filterPushdown": Row(_bool, False, (BATCH,), "use filters on partition and offset"),
    "batchBytes": Row(_count, 8 << 20, RECEIVES, "bytes of an Arrow batch at most"),
    "maxMessageBytes": Row(_count, 64 << 20, RECEIVES, "a larger one is an error, not a dead JVM"),
    "timeoutMs": Row(_count, 10_000, EVERYWHERE, "how long peers and locks are waited for"),
    "topic": Row(_text, None, (WRITE,), "for rows without the column topic"),
    "partitions": Row(_count, 1, (WRITE,), "of a topic, for rows without the column partition"),
    "compression": Row(_codec, None, (WRITE,), "of what is written"),
    "jobId": Row(_job, None, (WRITE,), "a second run of a batch job is known by it"),
    "pattern": Row(_choice(*SENDS, *HEARS), "push", (WRITE, LIVE), "of our sockets"),
    "hwm": Row(_count, 1000, (WRITE, LIVE), "messages that wait in a socket, for each peer"),
    "maxMessages": Row(_count, None, (LIVE,), "ends the read; shared evenly among the tasks"),
    "idleMs": Row(_count, None, (LIVE,), "ends a task to which nothing comes for so long"),
    "numPartitions": Row(_count, None, (LIVE,), "tasks that receive; one per endpoint"),
    "topicFrom": Row(_choice("first-part"), None, (LIVE,), "where the column topic comes from"),
}


class Options:
    """The checked options as attributes, by the names of TABLE. `path` and `endpoints` are tuples;
    `nodes`: the one or the other, as whatever of journals is read."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    @property
    def nodes(self) -> tuple[str, ...]:
        found: tuple[str, ...] = self.path or self.endpoints
        return found

    @property
    def folder(self) -> str:
        """Where is written."""
        [path] = self.path
        return str(path)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(name) from None


def check(given: Mapping[str, str], use: str) -> Options:
    """All options for this use, defaults filled in; OptionError lists everything that is wrong."""
    values, wrong = _look(given, use)
    if wrong:
        raise _error(wrong, use)
    return Options(values)


def is_live(given: Mapping[str, str]) -> bool:
    """Whether these options of a read mean live sockets, not journals."""
    return "pattern" in (name.lower() for name in given)


def check_read(given: Mapping[str, str]) -> None:
    """What is wrong for any read, before it is known whether it is a stream."""
    if is_live(given):
        if live := _look(given, LIVE)[1]:
            raise _error([*live, f"if it is to be a stream: {NO_STREAM}"], LIVE)
        return
    batch, stream = (_look(given, use)[1] for use in READS)
    if batch and stream:
        raise _error([line for line in stream if line in batch] or stream, "a read")


def _error(wrong: list[str], use: str) -> OptionError:
    lines = "".join(f"\n  - {line}" for line in wrong)
    return OptionError(f'options of format("mqcore") for {use}:{lines}')


def _look(given: Mapping[str, str], use: str) -> tuple[dict[str, Any], list[str]]:
    """The values, and everything that is wrong."""
    names = {name.lower(): name for name in TABLE}
    values: dict[str, Any] = {name: row.default for name, row in TABLE.items()}
    wrong: list[str] = []
    for raw, value in given.items():
        if raw.lower() in SPARKS:
            continue
        if raw.lower() == "bind":
            wrong.append(f"bind is refused: {BIND}")
        elif raw.lower() == "pattern" and use == STREAM:
            wrong.append(NO_STREAM)
        elif raw.lower() not in names:
            close = difflib.get_close_matches(raw.lower(), names, n=1, cutoff=0.6)
            wrong.append(f"{raw} is not known; " + (
                f"did you mean {names[close[0]]}?" if close else
                f"known are {', '.join(n for n, row in TABLE.items() if use in row.where)}"))
        else:
            _check_one(names[raw.lower()], value, use, values, wrong)
    present = {names.get(raw.lower()) for raw in given}
    return values, wrong + _together(present, use, values)


def _check_one(name: str, value: str, use: str, values: dict[str, Any], wrong: list[str]) -> None:
    row = TABLE[name]
    if use not in row.where:
        wrong.append(f"{name} does not belong to {use}, only to {' and '.join(row.where)}")
        return
    try:
        values[name] = row.check(value)
    except (ValueError, AttributeError, Error) as error:
        wrong.append(f"{name}: {error}")


def _together(present: set[str | None], use: str, values: dict[str, Any]) -> list[str]:
    """What must, and what must not, be there along with something else."""
    wrong = []
    if use in READS:
        if ("path" in present) == ("endpoints" in present):
            wrong.append("either path (folders of journals) or endpoints (journal servers) is "
                         "needed" + (", not both" if "path" in present else ""))
        chosen = sorted(present & {"subscribe", "subscribePattern", "assign"}, key=str)
        if len(chosen) != 1:
            wrong.append("one of subscribe, subscribePattern and assign is needed, "
                         + (f"not {' and '.join(map(str, chosen))}" if chosen else
                            'as in option("subscribePattern", ".*") for all topics'))
        if {"startingOffsets", "startingTimestamp"} <= present:
            wrong.append("startingOffsets and startingTimestamp exclude each other")
        least, most = values["minPartitions"], values["maxPartitions"]
        if least is not None and most is not None and least > most:
            wrong.append(f"minPartitions, {least}, is more than maxPartitions, {most}")
    elif use == LIVE:
        wrong += _live(present, values)
    else:
        if ("path" in present) == ("endpoints" in present):
            wrong.append("either path (a journal, exactly once) or endpoints (sockets, at least "
                         "once) is needed" + (", not both" if "path" in present else ""))
        if len(values["path"] or ()) > 1:
            wrong.append("path: a write goes to one folder; for a name with a comma in it: "
                         """option("path", '["/a,b"]')""")
        if values["pattern"] not in SENDS:
            wrong.append(f"pattern: {values['pattern']} receives; a write takes push or pub")
        others = {"path": ("pattern", "hwm"), "endpoints": ("partitions", "jobId")}
        for where, names in others.items():
            wrong += [f"{name} has no meaning with {where}"
                      for name in names if name in present and where in present]
    return wrong


def _live(present: set[str | None], values: dict[str, Any]) -> list[str]:
    wrong = []
    if "endpoints" not in present:
        wrong.append("endpoints is missing: the addresses that the tasks connect to")
    if values["pattern"] not in HEARS:
        wrong.append(f"pattern: {values['pattern']} sends; a read takes pull or sub")
    if "subscribe" in present and values["pattern"] == "pull":
        wrong.append("subscribe has no meaning with pattern pull, which gets what it is sent")
    if not present & {"maxMessages", "idleMs"}:
        wrong.append("maxMessages or idleMs is needed: what ends the read, or both")
    tasks, endpoints = values["numPartitions"], len(values["endpoints"] or ())
    if values["pattern"] == "sub" and tasks is not None and tasks > endpoints:
        wrong.append(f"numPartitions: {tasks} tasks for {endpoints} endpoints; two that subscribe "
                     "at one endpoint get everything twice")
    return wrong
