from collections.abc import Callable, Iterable, Sequence
from typing import Any

READY: int
DELAYED: int
HELD: int
GONE: int

class Entry:
    id: int
    queue: Any
    body: bytes | None
    headers: bytes | None
    lease: Lease | None
    size: int
    place: int
    index: int
    attempts: int
    state: int
    priority: int
    ready: float
    expires: float
    def __init__(self, number: int, queue: Any, body: bytes | None, size: int, place: int,
                 index: int, priority: int) -> None: ...

class Lease:
    deadline: float
    holder: Any
    entries: list[Entry]
    open: int
    def __init__(self, deadline: float, holder: Any, entries: list[Entry]) -> None: ...

def insert(jobs: dict[int, Entry], append: Callable[[Entry], object], queue: Any,
           bodies: Iterable[bytes], first: int, place: int, priority: int) -> None: ...
def choose(lanes: Iterable[Any], most: int, room: int,
           now: float) -> tuple[list[Entry], list[Entry], int]: ...
def deliver(entries: list[Entry]) -> int: ...
def assign(entries: list[Entry], lease: Lease) -> None: ...
def columns(entries: list[Entry]) -> tuple[list[int], list[int], list[bytes | None],
                                           list[bytes | None] | None]: ...
def runs_of(entries: list[Entry]) -> list[int]: ...
def sort_out(jobs: dict[int, Entry], ids: Sequence[int],
             attempts: Sequence[int]) -> tuple[list[Entry], list[int], list[int]]: ...
def drop(jobs: dict[int, Entry], entries: list[Entry]) -> tuple[
    list[tuple[Any, int, int]], int, int, list[Lease]]: ...

class JobFields:
    id: int
    attempts: int
    body: bytes
    settled: bool
    _queue: Any
    _headers: bytes | None
    _until: float
    def __init__(self, queue: Any, number: int, attempts: int, body: bytes,
                 headers: bytes | None, until: float) -> None: ...

def jobs_of(kind: type[JobFields], queue: Any, held: dict[tuple[int, int], float], until: float,
            ids: Any, attempts: Any, bodies: Any, headers: Any) -> list[Any]: ...
def settle(held: dict[tuple[int, int], float], jobs: Iterable[JobFields]) -> None: ...
def handles(jobs: Iterable[JobFields]) -> tuple[list[int], list[int]]: ...
