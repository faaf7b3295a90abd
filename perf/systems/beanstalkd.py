"""beanstalkd: through its Python client, a round trip a command, and with commands in bulk."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from systems.system import BATCH, Started, System, Take

ALL = b"reserve-with-timeout 1\r\n" + b"reserve-with-timeout 0\r\n" * (BATCH - 1)


class Beanstalkd(System):
    name = "beanstalkd"
    group = "broker"
    durability = "none"
    path = "greenstalk, each `put`, `reserve` and `delete` is a round trip, it has no others"
    modules = ("greenstalk",)
    packages = ("beanstalkd",)
    distributions: tuple[str, ...] = ("greenstalk",)
    programs = ("usr/bin/beanstalkd",)
    log = False

    @classmethod
    @contextlib.contextmanager
    def broker(cls, folder: Path) -> Iterator[Started]:
        from systems import started

        class Server(started.Broker):
            scheme = "beanstalkd"

            def command(self) -> tuple[Any, ...]:
                (self.folder / "log.d").mkdir(exist_ok=True)
                return (started.ROOT / "usr/bin/beanstalkd", "-l", "127.0.0.1", "-p", self.port,
                        *(("-b", self.folder / "log.d") if cls.log else ()))

        with started.running(Server, folder) as found:
            yield found

    def place(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return str(parts.hostname), int(parts.port or 0)

    def connect(self) -> None:
        import greenstalk

        self.client = greenstalk.Client(self.place(), encoding=None)

    def listen(self) -> str:
        self.connect()
        return self.url

    def send(self, bodies: list[bytes]) -> None:
        for body in bodies:
            self.client.put(body)

    def consume(self, take: Take) -> None:
        over = False
        while not over:
            job = self.client.reserve()
            over = take(job.body)
            self.client.delete(job)


class DurableBeanstalkd(Beanstalkd):
    name = "beanstalkd-log"
    group = "stored"
    durability = "`-b`: written before the answer, fsync each 50 ms (its default)"
    log = True


class PipedBeanstalkd(DurableBeanstalkd):
    """The protocol by hand: many commands in one write, then their answers."""

    name = "beanstalkd-piped"
    path = f"no client does this: {BATCH} commands in one write, then their answers"
    modules = ()
    distributions = ()

    def connect(self) -> None:
        self.socket = socket.create_connection(self.place())
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb", 1 << 18)

    def answers(self, count: int, start: bytes) -> None:
        for _ in range(count):
            line = self.file.readline()
            if not line.startswith(start):
                raise RuntimeError(f"beanstalkd answers {line!r}")

    def send(self, bodies: list[bytes]) -> None:
        self.socket.sendall(
            b"".join(b"put 100 0 600 %d\r\n%b\r\n" % (len(body), body) for body in bodies)
        )
        self.answers(len(bodies), b"INSERTED")

    def consume(self, take: Take) -> None:
        over = False
        while not over:
            self.socket.sendall(ALL)
            ids = []
            for _ in range(BATCH):
                words = self.file.readline().split()
                if words[0] == b"RESERVED":
                    over = take(self.file.read(int(words[2]))) or over
                    self.file.read(2)
                    ids.append(words[1])
            self.socket.sendall(b"".join(b"delete %b\r\n" % number for number in ids))
            self.answers(len(ids), b"DELETED")
