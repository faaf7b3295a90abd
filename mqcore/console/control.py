"""Sends a message to a monitored socket, and watches what a publisher publishes.

Only a console that was started with `control` does so, and only for sockets that a monitored
program has bound: a page chooses a socket, never an address.
"""

from __future__ import annotations

import codecs
import time
from collections import deque
from typing import Any

from mqcore.api.context import Context
from mqcore.api.patterns import class_of
from mqcore.api.pubsub import Sub
from mqcore.base.native import threading
from mqcore.base.threads import Thread
from mqcore.base.waits import Event
from mqcore.console import requests
from mqcore.console.looks import Look
from mqcore.console.requests import Refused
from mqcore.console.tables import clean
from mqcore.errors import Error, Timeout
from mqcore.monitor.collect import process_facts
from mqcore.monitor.place import ANYWHERE, LOOPBACK, as_reached
from mqcore.monitor.throttle import Throttle

PATIENCE = 2.0          # seconds to connect, to send, and to wait for a reply
#: what sends to a socket of this pattern
SENDERS = {"pull": "push", "gather": "scatter", "rep": "req", "router": "dealer", "sub": "pub",
           "xsub": "pub", "server": "client", "respondent": "surveyor", "pair": "pair",
           "dealer": "dealer"}
ANSWERED = {"rep", "router", "server", "respondent"}     # patterns that may reply
ONE_PART = {"scatter", "client"}
REMEMBERED = 200        # messages that are not sent twice
WATCHES = 4             # at once
WATCHED = 200           # messages that a watch keeps
WATCH_RATE = 1000.0     # messages a second that a watch receives
UNASKED = 10.0          # seconds after which a watch ends that no page asks for
SHOWN = 2000            # characters of a part that a page gets
LARGEST = 16 << 20      # bytes of a message that a watch receives


def shown(part: Any) -> dict[str, Any]:
    """A part of a message for a page: text if it is printable, else hexadecimal digits. Only what
    is shown is looked at: parts may be large, and come often."""
    with memoryview(part) as view:
        size, data = len(view), bytes(view[:4 * SHOWN])     # a character has at most four bytes
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data, size == len(data))[:SHOWN]
        printable = all(char.isprintable() or char in "\n\t" for char in text)
    except UnicodeDecodeError:
        printable = False
    if printable:
        return {"kind": "text", "text": text, "bytes": size}
    return {"kind": "hex", "text": data[:SHOWN // 2].hex(), "bytes": size}


def address(look: Look, context: str, socket: int) -> tuple[str, str]:
    """(pattern, URL to connect to) of a socket that is bound. Refused says why there is none."""
    found = look.facts(context, socket)
    if found is None:
        raise Refused("this socket is closed, or its program does not answer")
    shot, facts = found
    near = shot.process.host == process_facts().host
    urls = [one.url for one in facts.endpoints if one.kind == "bind" and one.state == "listening"]
    for url in urls:
        if reached := from_here(url, look.urls.get(context, ""), near):
            return facts.pattern, reached
    raise Refused("the console cannot connect to this socket: it listens at "
                  f"{clean(', '.join(urls)) or 'no address'}",
                  hint="it needs a tcp://, ipc://, shm:// or ws:// address" if near else
                  f"that is on the machine {clean(shot.process.host)}, out of reach")


def from_here(url: str, via: str, near: bool) -> str:
    """The URL that connects to what a program listens at; "" if there is none. via: where its
    monitor answers. near: it runs on this machine. On another one the same path, or an address of
    the loopback, is another program's."""
    scheme, _, rest = url.partition("://")
    if scheme in ("ipc", "shm"):
        return url if near or via.startswith(("ipc://", "shm://")) else ""
    if scheme not in ("tcp", "ws"):
        return ""
    host = rest.partition("/")[0].rpartition(":")[0]
    if host in ANYWHERE and near:
        inside = "[::1]" if host == "[::]" else "127.0.0.1"
        return f"{scheme}://{inside}:{rest[len(host) + 1:]}"
    if host in ANYWHERE:
        return "" if via.startswith(("ipc://", "shm://")) else as_reached(url, via)
    return url if near or not LOOPBACK.match(host) else ""


class Control:
    """Sends and watches. close() ends the watches."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: dict[int, Watch] = {}
        self._numbers = 0
        self._sent: deque[str] = deque(maxlen=REMEMBERED)

    def close(self) -> None:
        with self._lock:
            watches = list(self._watches.values())
            self._watches.clear()
        for watch in watches:
            watch.close()

    def do(self, asked: Any, look: Look) -> dict[str, Any]:
        try:
            if isinstance(asked, requests.Send):
                self._once(asked.id)
                return send(*address(look, asked.context, asked.socket), asked)
            if isinstance(asked, requests.Watch):
                return self._watch(*address(look, asked.context, asked.socket), asked.topic)
        except Error as error:
            raise Refused(clean(error.text)) from None
        with self._lock:
            self._sweep()
            watch = self._watches.get(asked.watch)
            if isinstance(asked, requests.Unwatch):
                self._watches.pop(asked.watch, None)
        if isinstance(asked, requests.Unwatch):
            if watch is not None:
                watch.close()
            return {}
        if watch is None:
            raise Refused("this watch has ended", hint="start it again")
        return watch.since(asked.since)

    def _once(self, number: str) -> None:
        """Refuse a message that a page sends again, since it has not had the answer."""
        with self._lock:
            if number and number in self._sent:
                raise Refused("the connection broke while this message was being sent",
                              hint="the first attempt may have delivered it")
            self._sent.append(number)

    def _sweep(self) -> None:
        """Forget watches that have ended. With the lock."""
        for number in [number for number, watch in self._watches.items() if watch.ended]:
            self._watches.pop(number).close()

    def _watch(self, pattern: str, url: str, topic: str) -> dict[str, Any]:
        if pattern not in ("pub", "xpub"):
            raise Refused(f"a {pattern} socket cannot be watched: a watcher would take messages "
                          "from its peers", hint="watch a pub or xpub socket")
        with self._lock:
            self._sweep()
            if len(self._watches) >= WATCHES:
                raise Refused(f"{WATCHES} watches are open", hint="end one first")
            self._numbers += 1
            number = self._numbers
            self._watches[number] = Watch(url, topic)
        return {"watch": number, "url": clean(url)}


def send(pattern: str, url: str, asked: requests.Send) -> dict[str, Any]:
    """Send one message and wait for the reply, if the pattern has replies."""
    if pattern not in SENDERS:
        raise Refused(f"the console cannot send to a {pattern} socket")
    sender = SENDERS[pattern]
    if sender in ONE_PART and len(asked.parts) > 1:
        raise Refused(f"a {pattern} socket receives messages of one part")
    try:
        parts = [bytes.fromhex(part) if asked.hex else part.encode() for part in asked.parts]
    except ValueError as error:
        raise Refused(f"not hexadecimal digits: {error}") from None
    began = time.monotonic()
    with Context(monitor=False) as context:
        sock: Any = class_of(sender)(connect=url, context=context, linger=PATIENCE,
                                     max_message_size=LARGEST)
        try:
            sock.wait_peers(1, timeout=PATIENCE)
        except Timeout:
            raise Refused(f"cannot connect to {clean(url)} within {PATIENCE:g} s",
                          hint="does it demand keys?") from None
        if sender == "pub":
            try:
                sock.wait_subscribers(parts[0], timeout=PATIENCE)
            except Timeout:
                raise Refused("the socket has not subscribed to this topic") from None
        sock.send_parts(parts, timeout=PATIENCE)
        answer: dict[str, Any] = {"url": clean(url), "parts": len(parts)}
        if pattern in ANSWERED:
            try:
                answer["reply"] = [shown(part) for part in sock.recv_parts(timeout=PATIENCE)[:16]]
            except Timeout:
                answer["note"] = f"no reply within {PATIENCE:g} s"
        if sock.close(PATIENCE).undelivered:
            raise Refused("the message could not be delivered: the peer takes none")
    return {**answer, "seconds": round(time.monotonic() - began, 4)}


class Watch:
    """A SUB and the thread that reads it. It ends by itself when no page asks for it."""

    def __init__(self, url: str, topic: str) -> None:
        self._messages: deque[dict[str, Any]] = deque(maxlen=WATCHED)
        self._seen = 0
        self._asked = time.monotonic()
        self._ending = Event()
        self._context = Context(monitor=False)
        self.ended = False
        try:
            self._sub = Sub(topics=[topic], connect=url, context=self._context,
                                   recv_hwm=1000, max_message_size=LARGEST)
            self._thread = Thread(self._run, "mqcore-console-watch")
            self._thread.start()
        except BaseException:
            self._context.close(0)
            raise

    def since(self, number: int) -> dict[str, Any]:
        """The messages after this one. A gap in their numbers is what was not kept."""
        self._asked = time.monotonic()
        return {"messages": [one for one in list(self._messages) if one["number"] > number][-50:],
                "seen": self._seen, "connected": bool(self._sub.peers())}

    def close(self) -> None:
        self._ending.set()
        self._context.close(0)
        self._thread.join()

    def _run(self) -> None:
        throttle = Throttle(WATCH_RATE)
        try:
            while not self._ending.is_set() and time.monotonic() < self._asked + UNASKED:
                if pause := throttle.take():
                    self._ending.wait(pause)
                    continue
                try:
                    parts = self._sub.recv_parts(timeout=0.5)
                except Timeout:
                    continue
                self._seen += 1
                self._messages.append({"number": self._seen, "at": time.time(),
                                       "parts": [shown(part) for part in parts[:16]]})
        except Error:       # closed
            pass
        finally:
            self.ended = True
            self._context.close(0)
