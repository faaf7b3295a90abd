"""A name server on loopback for tests: it answers questions about service records (RFC 1035, 2782)
from a table, without the library that the resolver uses."""

from __future__ import annotations

import socket
import struct
import threading
from typing import Self

SRV, INTERNET, NXDOMAIN = 33, 1, 3


def labels(name: str) -> bytes:
    """A name as it goes into a packet, without compression."""
    parts = [part.encode() for part in name.rstrip(".").split(".") if part]
    return b"".join(bytes([len(part)]) + part for part in parts) + b"\0"


def question_of(packet: bytes) -> tuple[str, bytes]:
    """The name asked for, and the bytes of the question."""
    parts, at = [], 12
    while length := packet[at]:
        parts.append(packet[at + 1:at + 1 + length].decode())
        at += 1 + length
    return ".".join(parts).lower(), packet[12:at + 5]


class NameServer:
    """`records[name]` is a list of (priority, weight, port, target). A name that is not there does
    not exist. `silent`: it answers nothing."""

    def __init__(self) -> None:
        self.records: dict[str, list[tuple[int, int, int, str]]] = {}
        self.silent = False
        self.asked = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        while True:
            packet, source = self._socket.recvfrom(4096)
            if not packet:      # the end
                return
            self.asked += 1
            if not self.silent:
                self._socket.sendto(self.answer(packet), source)

    def answer(self, packet: bytes) -> bytes:
        name, question = question_of(packet)
        records = self.records.get(name)
        code = NXDOMAIN if records is None else 0
        body = b"".join(
            struct.pack(">HHHIH", 0xc00c, SRV, INTERNET, 0, 6 + len(labels(target)))
            + struct.pack(">HHH", priority, weight, port) + labels(target)
            for priority, weight, port, target in records or ())
        return packet[:2] + struct.pack(">HHHHH", 0x8580 | code, 1, len(records or ()), 0, 0) \
            + question + body

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
            end.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()
