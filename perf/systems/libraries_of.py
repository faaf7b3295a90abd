"""Libraries without a broker, as libraries.py opens them: PUSH and PULL, or what is like them."""

from __future__ import annotations

from typing import Any

import libraries

from systems.system import BATCH, TCP, System, Take


class Library(System):
    """The consumer listens, the producer connects; default options."""

    group = "no broker"
    durability = "none"
    confirms = False
    path = "one `send` and one `recv` a message"
    library: type[Any]

    def __init__(self, url: str = "") -> None:
        super().__init__(url)
        self.lib = self.library()
        self.socket: Any = None

    def listen(self) -> str:
        self.socket, url = self.lib.bind("pull", TCP)
        return str(url)

    def consume(self, take: Take) -> None:
        recv = self.socket.recv
        while not take(recv()):
            pass

    def connect(self) -> None:
        self.socket = self.lib.connect("push", self.url)

    def send(self, bodies: list[bytes]) -> None:
        send = self.socket.send
        for body in bodies:
            send(body)

    def close(self) -> None:
        self.lib.close(self.socket)


class Mqcore(Library):
    name = "mqcore"
    modules = ("mqcore",)
    distributions = ("mqcore",)
    library = libraries.Mqcore


class MqcoreMany(Mqcore):
    name = "mqcore-many"
    path = f"`send_many` and `recv_many` of up to {BATCH} messages, which the other libraries lack"

    def consume(self, take: Take) -> None:
        recv_many = self.socket.recv_many
        while True:
            for body in recv_many(BATCH):
                if take(body):
                    return

    def send(self, bodies: list[bytes]) -> None:
        self.socket.send_many(bodies)


class Pyzmq(Library):
    name = "pyzmq"
    modules = ("zmq",)
    distributions = ("pyzmq",)
    library = libraries.Pyzmq


class Pyomq(Library):
    name = "pyomq"
    modules = ("pyomq",)
    distributions = ("pyomq",)
    library = libraries.Pyomq
    loads = False       # libraries.py says why


class Pynng(Library):
    name = "pynng"
    modules = ("pynng",)
    distributions = ("pynng",)
    library = libraries.Pynng


class Zenoh(Library):
    name = "zenoh"
    modules = ("zenoh",)
    distributions = ("eclipse-zenoh",)
    path = "one `put` a message on a publisher that blocks when it is full, `recv`"
    library = libraries.Zenoh
