"""The processes of the demonstration, each with a role and a library. Only demo.py starts them.

    demo_peers.py LIBRARY ROLE ARGUMENT ...

Each prints one line of JSON at its end: its results, and its process id. The roles are written
once, over the few calls in which the two libraries differ (`Mqcore`, `Pyzmq`).
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from demo_input import DELAY, DISTANCE, Totals, count_words

END = b"end"
TIMEOUT = 60.0  # seconds without a message: something is wrong, and a process must not stay
Result = dict[str, Any]


class Library(Protocol):
    """What the roles need."""

    name: str

    def open(self, pattern: str, url: str, topics: Sequence[bytes] = ()) -> Any: ...
    def recv(self, socket: Any) -> list[bytes]: ...
    def send(self, socket: Any, parts: list[bytes]) -> None: ...
    def drops(self, socket: Any) -> int | None: ...
    def close(self, socket: Any) -> None: ...


class Mqcore:
    name = "mqcore"

    def open(self, pattern: str, url: str, topics: Sequence[bytes] = ()) -> Any:
        import mqcore as mq

        more: dict[str, Any] = {"topics": topics} if topics else {}
        return mq.socket(pattern, connect=url, recv_timeout=TIMEOUT, **more)

    def recv(self, socket: Any) -> list[bytes]:
        parts: list[bytes] = socket.recv_parts()
        return parts

    def send(self, socket: Any, parts: list[bytes]) -> None:
        socket.send_parts(parts)

    def drops(self, socket: Any) -> int | None:
        return int(sum(socket.stats().dropped.values()))

    def close(self, socket: Any) -> None:
        socket.close(linger=5.0)


class Pyzmq:
    name = "pyzmq"

    def open(self, pattern: str, url: str, topics: Sequence[bytes] = ()) -> Any:
        import zmq

        socket: Any = zmq.Context.instance().socket(getattr(zmq, pattern.upper()))
        socket.rcvtimeo = int(TIMEOUT * 1000)
        socket.linger = 5000
        for topic in topics:
            socket.subscribe(topic)
        socket.connect(url)
        return socket

    def recv(self, socket: Any) -> list[bytes]:
        parts: list[bytes] = socket.recv_multipart()
        return parts

    def send(self, socket: Any, parts: list[bytes]) -> None:
        socket.send_multipart(parts)

    def drops(self, socket: Any) -> int | None:
        return None  # libzmq does not count them

    def close(self, socket: Any) -> None:
        socket.close()


# -- roles ---------------------------------------------------------------------------------------


def subscriber(library: Library, url: str, *carriers: str) -> Result:
    """Totals per carrier of a feed, until its end."""
    topics = [carrier.encode() for carrier in carriers] or [b""]
    socket = library.open("sub", url, [*topics, END])
    totals: dict[bytes, Totals] = {}
    recv, nothing = library.recv, Totals()
    first = 0.0
    while True:
        topic, row = recv(socket)
        if not first:
            first = time.monotonic()
        if topic == END:
            break
        columns = row.split(b",")
        totals[topic] = totals.get(topic, nothing).plus(row, columns[DELAY], columns[DISTANCE])
    result = {
        "seconds": time.monotonic() - first,
        "drops": library.drops(socket),
        "totals": {carrier.decode(): list(t) for carrier, t in totals.items()},
    }
    library.close(socket)
    return result


def adder(library: Library, url: str) -> Result:
    """The addition service, until SIGTERM."""
    socket = library.open("rep", url)
    answered = 0
    try:
        while True:
            a, b = library.recv(socket)[0].split()
            library.send(socket, [b"%d" % (int(a) + int(b))])
            answered += 1
    except SystemExit:
        return {"messages": answered, "drops": library.drops(socket)}
    finally:
        library.close(socket)


def counter(library: Library, url: str, sink_url: str) -> Result:
    """A step of the pipeline: words of a paragraph, until an empty one."""
    source, sink = library.open("pull", url), library.open("push", sink_url)
    done = 0
    while True:
        name, text = library.recv(source)
        if not name:
            break
        words = count_words(text.decode())
        library.send(sink, [str(os.getpid()).encode(), json.dumps(words).encode()])
        done += 1
    result = {"messages": done, "drops": library.drops(source)}
    library.close(source)
    library.close(sink)
    return result


ROLES: dict[str, Callable[..., Result]] = {
    "subscriber": subscriber,
    "adder": adder,
    "counter": counter,
}


def die_with_parent() -> None:
    """Standard input ends when demo.py does, however it does."""
    sys.stdin.buffer.read()
    os._exit(1)


def main(library: str, role: str, *args: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for demo.py, which ends us
    threading.Thread(target=die_with_parent, daemon=True).start()
    chosen: Library = Mqcore() if library == "mqcore" else Pyzmq()
    result = ROLES[role](chosen, *args)
    print(
        json.dumps({"library": chosen.name, "role": role, "pid": os.getpid(), **result}), flush=True
    )
    os._exit(0)  # the thread above still reads


if __name__ == "__main__":
    main(*sys.argv[1:])
