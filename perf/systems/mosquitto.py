"""mosquitto over MQTT 3.1.1, by paho-mqtt and its network thread."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from systems.system import WINDOW, Started, System, Take

PATIENCE = 20.0


class Mosquitto(System):
    group = "broker"
    modules = ("paho",)
    packages = ("mosquitto",)
    distributions = ("paho-mqtt",)
    programs = ("usr/sbin/mosquitto",)
    qos = 0

    @classmethod
    @contextlib.contextmanager
    def broker(cls, folder: Path) -> Iterator[Started]:
        from systems import started

        class Server(started.Mosquitto):
            def command(self) -> tuple[Any, ...]:
                found: tuple[Any, ...] = super().command()
                with open(self.folder / "conf", "a") as conf:
                    conf.write(f"max_inflight_messages {WINDOW}\n")
                return found

        with started.running(Server, folder) as found:
            yield found

    def opened(self) -> Any:
        from paho.mqtt.client import Client
        from paho.mqtt.enums import CallbackAPIVersion

        client = Client(CallbackAPIVersion.VERSION2)
        client.max_inflight_messages_set(WINDOW)
        client.max_queued_messages_set(0)
        client.on_socket_open = quick
        self.ready = threading.Event()
        client.on_connect = lambda *_: self.ready.set()
        parts = urlsplit(self.url)
        client.connect(str(parts.hostname), int(parts.port or 0))
        client.loop_start()
        self.wait()
        return client

    def wait(self) -> None:
        if not self.ready.wait(PATIENCE):
            raise RuntimeError(f"mosquitto does not answer within {PATIENCE:g} s")
        self.ready.clear()

    def listen(self) -> str:
        self.client = self.opened()
        self.bodies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.client.on_subscribe = lambda *_: self.ready.set()
        self.client.on_message = lambda _, __, message: self.come(message.payload)
        self.client.subscribe("bench", self.qos)
        self.wait()
        return self.url

    take: Take | None = None

    def come(self, body: bytes) -> None:
        """In paho's thread."""
        if self.take is not None and self.take(body):
            self.ready.set()

    def consume(self, take: Take) -> None:
        self.take = take
        self.ready.wait()
        self.ready.clear()

    def connect(self) -> None:
        self.space = threading.Semaphore(WINDOW)
        self.client = self.opened()
        self.client.on_publish = lambda *_: self.space.release()

    def send(self, bodies: list[bytes]) -> None:
        for body in bodies:
            self.space.acquire()
            self.client.publish("bench", body, self.qos)

    def finish(self) -> None:
        for _ in range(WINDOW):
            self.space.acquire()
        self.space.release(WINDOW)

    def close(self) -> None:
        self.client.loop_stop()


def quick(client: Any, _: Any, sock: socket.socket) -> None:
    """paho leaves Nagle's algorithm on, which costs QoS 1 40 ms a round trip."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class MosquittoQos0(Mosquitto):
    name = "mosquitto-qos0"
    durability = "none: absent subscribers miss messages"
    path = f"paho-mqtt, its thread, QoS 0, {WINDOW} that its socket has not taken, TCP_NODELAY"
    qos = 0
    confirms = False


class MosquittoQos1(Mosquitto):
    name = "mosquitto-qos1"
    durability = "none: saved each 30 minutes and at the broker's end (its default)"
    path = f"paho-mqtt, its thread, QoS 1 both ways, {WINDOW} in flight, TCP_NODELAY"
    qos = 1
