"""ActiveMQ Classic over STOMP 1.2, by stomp.py and its receiver thread."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from systems.system import BATCH, WINDOW, Started, System, Take

HEAP = "1G"
HOME = "usr/share/activemq"
CONF = """<beans xmlns="http://www.springframework.org/schema/beans"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
 xsi:schemaLocation="http://www.springframework.org/schema/beans
  http://www.springframework.org/schema/beans/spring-beans-2.0.xsd
  http://activemq.apache.org/schema/core
  http://activemq.apache.org/schema/core/activemq-core.xsd">
 <broker xmlns="http://activemq.apache.org/schema/core" useJmx="false" brokerName="bench"
   dataDirectory="{folder}/data">
  <persistenceAdapter><kahaDB directory="{folder}/data/kahadb"/></persistenceAdapter>
  <transportConnectors>
   <transportConnector name="stomp" uri="stomp://127.0.0.1:{port}"/>
  </transportConnectors>
 </broker>
</beans>
"""


class ActiveMQ(System):
    name = "activemq"
    group = "broker"
    durability = "none: not persistent, beyond its memory limit it spools to files"
    path = "STOMP by stomp.py, whose thread receives, no receipts, `ack:auto`, prefetch " \
           f"{WINDOW}, a heap of {HEAP}"
    modules = ("stomp",)
    packages = ("activemq",)
    distributions = ("stomp.py",)
    programs = (f"{HOME}/bin/activemq.jar",)
    durable = confirms = False

    @classmethod
    def missing(cls) -> str:
        return super().missing() or ("" if shutil.which("java") else "Java is missing")

    @classmethod
    @contextlib.contextmanager
    def broker(cls, folder: Path) -> Iterator[Started]:
        from systems import started

        class Server(started.Broker):
            scheme = "stomp"

            def command(self) -> tuple[Any, ...]:
                at, home = self.folder, started.ROOT / HOME
                (at / "tmp").mkdir(exist_ok=True)
                (at / "activemq.xml").write_text(CONF.format(folder=at, port=self.port))
                return ("java", "-Xms64M", f"-Xmx{HEAP}", f"-Dactivemq.home={home}",
                        f"-Dactivemq.base={at}", f"-Dactivemq.conf={at}",
                        f"-Dactivemq.data={at}/data", f"-Djava.io.tmpdir={at}/tmp",
                        "-jar", home / "bin/activemq.jar", "start",
                        f"xbean:file:{at}/activemq.xml")

        with started.running(Server, folder) as found:
            yield found

    def opened(self) -> Any:
        import stomp

        parts = urlsplit(self.url)
        connection = stomp.Connection12([(parts.hostname, parts.port)], auto_decode=False)
        connection.set_listener("", Listener(self, stomp.ConnectionListener))
        connection.connect(wait=True)
        return connection

    take: Take | None = None

    def listen(self) -> str:
        self.over, self.got = threading.Event(), 0
        self.connection = self.opened()
        self.connection.subscribe(
            "/queue/bench", id="1", ack="client" if self.durable else "auto",
            headers={"activemq.prefetchSize": str(WINDOW)})
        return self.url

    def come(self, frame: Any) -> None:
        """In the receiver's thread."""
        assert self.take is not None
        over = self.take(frame.body)
        self.got += 1
        if self.durable and (over or self.got % BATCH == 0):
            self.connection.ack(frame.headers["ack"])
        if over:
            self.over.set()

    def consume(self, take: Take) -> None:
        self.take = take
        self.over.wait()
        self.over.clear()

    def connect(self) -> None:
        self.space = threading.Semaphore(WINDOW)
        self.sent = 0
        self.connection = self.opened()

    def send(self, bodies: list[bytes]) -> None:
        send = self.connection.send
        for body in bodies:
            send("/queue/bench", body)

    def close(self) -> None:
        self.connection.disconnect()


class DurableActiveMQ(ActiveMQ):
    name = "activemq-durable"
    group = "stored"
    durability = "persistent, in KahaDB with an fsync before the receipt (its default)"
    path = f"STOMP by stomp.py, whose thread receives, a receipt for each message, {WINDOW} in " \
           f"flight, one ack for {BATCH} messages, a heap of {HEAP}"
    durable = confirms = True

    def send(self, bodies: list[bytes]) -> None:
        send = self.connection.send
        for body in bodies:
            self.space.acquire()
            self.sent += 1
            send("/queue/bench", body, persistent="true", receipt=str(self.sent))

    def finish(self) -> None:
        for _ in range(WINDOW):
            self.space.acquire()
        self.space.release(WINDOW)


def Listener(system: ActiveMQ, base: Any) -> Any:  # noqa: N802  stomp is imported when it is used
    class Listening(base):  # type: ignore[misc]
        def on_message(self, frame: Any) -> None:
            system.come(frame)

        def on_receipt(self, frame: Any) -> None:
            system.space.release()

    return Listening()
