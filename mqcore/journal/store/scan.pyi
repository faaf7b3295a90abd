from typing import NamedTuple

from mqcore.journal.store.producers import ProducerTable

FAULTS: dict[int, str]
HEADER_SIZE: int
BLOCK_HEADER_SIZE: int
ALIGNMENT: int
UNREADABLE: int
NEWER: int
PLAIN_VERSION: int
COMPRESSED_VERSION: int
FOUND: int
LIMIT: int
WINDOW: int
LOST: int

class Header(NamedTuple):
    first: int
    created: int
    journal: bytes
    salt: int
    partition: int
    topic: bytes
    begin: int
    version: int = 1

class Walk(NamedTuple):
    pos: int
    next: int
    why: int
    blocks: int
    low: int
    high: int
    marked: bool
    durable: int

class Block:
    window: Window
    pos: int
    first: int
    size: int
    low: int
    high: int
    durable: int
    count: int
    flags: int
    n_headers: int
    unpacked: int
    columns: memoryview | None
    def column(self, i: int) -> tuple[int, int]: ...
    @property
    def packed(self) -> bool: ...
    @property
    def modern(self) -> bool: ...
    @property
    def compacted(self) -> bool: ...
    @property
    def end(self) -> int: ...
    @property
    def place(self) -> memoryview: ...

class Window:
    start: int
    length: int
    def __init__(self, fd: int, start: int, length: int) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    @property
    def address(self) -> int: ...
    def block(self, pos: int, size: int, salt: int, verify: bool) -> Block | int: ...
    def joined(self, pos: int, size: int, salt: int, room: int) -> Block | None: ...
    def reach(self, pos: int, size: int, salt: int) -> int: ...
    def walk(
        self, pos: int, next: int, size: int, salt: int, *, offset: int = -1, time: int = ...,
        limit: int = ..., verify: bool = False, into: ProducerTable | None = None,
    ) -> Walk: ...
    def fetch_block(self, block: Block, size: int) -> int: ...
    def seek_block(self, pos: int, size: int, salt: int) -> int: ...

def parse_segment(raw: bytes) -> Header | str: ...
