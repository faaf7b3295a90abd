"""zstd+tcp://, zstd+tls+tcp://: each direction is one Zstandard frame (RFC 8878).

No handshake is needed: the first bytes of a frame identify it. Each write flushes a block, so a
message never waits for the next one. A peer that ends its frame has ended its stream in order.
"""

from __future__ import annotations

from typing import Any

import zstandard

from mqcore import OptionError
from mqcore.spi.filter import Buffer, FilterSession, Options, Refused, StreamFilter

MAGIC = zstandard.MAGIC_NUMBER.to_bytes(4, "little")
WINDOW = 8 << 20  # bytes that a peer may make us look back on: what level 19 needs
LEVELS = range(1, 20)
SLICE = 256  # input bytes between two looks at the limit; a block of four can unpack to 128 KiB


class Session(FilterSession):
    """One connection."""

    def __init__(self, level: int, limit: int) -> None:
        super().__init__()
        self._packer = zstandard.ZstdCompressor(level=level).compressobj()
        self._unpacker = zstandard.ZstdDecompressor(max_window_size=WINDOW).decompressobj()
        self._limit = limit
        self._begin = b""  # of the peer's frame
        self._packed = bytearray()
        self._open_block = False

    def receive(self, data: bytes) -> bytes:
        if len(self._begin) < len(MAGIC):
            self._begin += data[: len(MAGIC) - len(self._begin)]
            if not MAGIC.startswith(self._begin):
                raise Refused("what the peer sends is no Zstandard frame: does its address begin "
                              "with zstd+ too?")
        made = bytearray()
        try:
            for at in range(0, len(data), SLICE):
                made += self._unpacker.decompress(data[at : at + SLICE])
                if len(made) > self._limit:
                    raise Refused(f"{at + SLICE} bytes unpack to more than zstd_limit="
                                  f"{self._limit}: raise it if you trust the peer")
        except zstandard.ZstdError as error:
            raise Refused(f"the Zstandard frame is damaged ({error})") from None
        self.ended = self._unpacker.eof
        return bytes(made)

    def send(self, data: Buffer) -> None:
        self._packed += self._packer.compress(data)
        self._open_block = True

    def outgoing(self) -> bytes:
        if self._open_block:
            self._packed += self._packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
            self._open_block = False
        out, self._packed = bytes(self._packed), bytearray()
        return out

    def finish(self) -> None:
        self._packed += self._packer.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH)
        self._open_block = False


class Zstd(StreamFilter):
    name = "zstd"
    doc = "compresses the stream with Zstandard"
    options = (
        ("zstd_level", "int", 3, "1 (fast) to 19 (small)"),
        ("zstd_limit", "size", 256 << 20, "what the bytes of one read may unpack to, at most"),
    )

    def check(self, own: Any, role: str, options: Options) -> None:
        if options["zstd_level"] not in LEVELS:
            raise OptionError(f"option 'zstd_level' must be 1 to 19, not {options['zstd_level']}")

    def open(self, own: Any, role: str, options: Options) -> Session:
        return Session(options["zstd_level"], options["zstd_limit"])


filter = Zstd()
