"""The agent of a context: it publishes what the context is, read-only, at a local address.

An agent has a context of its own, so its sockets and threads are none of the program's. A
RESPONDENT answers requests on the thread "mqcore-monitor", which sleeps until one comes. An XPUB
publishes events, and the program's sockets are observed only while a client subscribes.

No client can make the program slow or large:

- At most CLIENTS connections to each of the two sockets; further ones are ended.
- ipc: the kernel's word that the peer is of this user, or of root (and no other user may enter the
  folder).
- At most RATE requests a second are answered. The others wait in the kernel.
- Snapshots and explanations take a bounded share of the time, whatever clients ask (shots.py).
- An answer that a client does not read is dropped and counted, as are events for a slow one.

Ends: close() from the context's close, leave() from its finalizer, a fork (the child has none of
this), and the interpreter's exit, which closes the agent's sockets like any others.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mqcore import events
from mqcore.api.context import Context
from mqcore.api.poller import Poller
from mqcore.api.pubsub import XPub
from mqcore.api.survey import Respondent
from mqcore.base.described import report
from mqcore.base.living import Living
from mqcore.base.threads import Thread
from mqcore.base.waits import Event, start_behind
from mqcore.errors import ContextClosed, Error, OptionError, SocketClosed, Timeout, UsageError
from mqcore.monitor import collect, place, protocol
from mqcore.monitor.components import components
from mqcore.monitor.shots import Budget, Shots, explanation
from mqcore.monitor.throttle import Throttle
from mqcore.security import Null
from mqcore.spi.url import parse
from mqcore.trace.recent import RING

CLIENTS = 16        # connections to each socket
RATE = 200.0        # requests a second that are answered
EVENT_RATE = 1000.0     # events a second that are published
ENVELOPE = 64           # bytes that may surround a request
TURN = 16               # subscriptions read in one turn
SUBSCRIPTIONS = 64 << 10    # bytes of one client's subscriptions
# what a client may have waiting here, and what may wait for a client
BOUNDS = {"max_message_size": protocol.LARGEST_REQUEST + ENVELOPE, "recv_hwm": 8, "linger": 0,
          "max_handshakes": CLIENTS, "handshake_timeout": 2.0, "max_unfinished": 1 << 20}
KINDS = tuple(name.encode() for name in events.__all__ if name not in ("Event", "Kind"))
_log = logging.getLogger("mqcore.monitor")


@dataclass(frozen=True)
class Publish:
    """How a context is published: `Context(monitor=Publish(...))`.

    url: where requests are answered; "" (default) is a new address in the folder of this user's
    monitors. Events have an address beside it, which clients learn from the answers. name: shown
    for the context; default "". insecure: allow an address that other users or machines can reach
    without a certificate; default False. options: of the two sockets, such as `tls_cert`."""

    url: str = ""
    name: str = ""
    insecure: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what in ("url", "name"):
            if not isinstance(getattr(self, what), str):
                raise OptionError(f"Publish({what}=) is a text")
        if self.url in ("ipc://*", "shm://*"):
            raise OptionError("a monitor needs an address that clients can know",
                              hint='leave it out, or write it like "ipc:///run/shop.sock"')


def attach(context: Context, wanted: Any) -> Agent:
    """The entry point that `Context(monitor=)` calls."""
    if wanted is True:
        wanted = Publish()
    elif isinstance(wanted, str):
        wanted = Publish(wanted)
    if not isinstance(wanted, Publish):
        raise UsageError("monitor= is True, False, a URL or a mqcore.monitor.Publish, not "
                         f"{type(wanted).__name__}")
    return Agent(context, wanted)


class Agent:
    """Made with its context, and closed with it. `url`: where it answers. `counts`: what it did."""

    def __init__(self, context: Context, settings: Publish) -> None:
        self.id = secrets.token_hex(8)
        self.name = collect.clean(settings.name)
        self.counts = dict.fromkeys(
            ("requests", "refused", "malformed", "busy", "unsent", "snapshots", "events",
             "events_lost", "failed"), 0)
        self._hub = context._hub        # not the context, which must not live as long as this
        self._pid = os.getpid()
        self._ending = Event()
        self._closed = self._observing = False
        self._throttle = Throttle(RATE)
        self._event_throttle = Throttle(EVENT_RATE)
        self._subscription_throttle = Throttle(RATE)
        self._events_lost = self._events_seen = 0
        self._shots = Shots(self._shoot)
        self._explaining = Budget(time.monotonic)
        self._tracing = Budget(time.monotonic)
        self._listing = Budget(time.monotonic)
        self._components: tuple[float, bytes] = 0.0, b""
        url = settings.url or place.new_url(self.id)
        place.check_exposure(url, settings.insecure, dict(settings.options))
        if not settings.url:
            place.sweep(place.folder())
        self._own = Context(monitor=False)
        self._own._hub.internal = True
        try:
            self._answers, self._events = self._open(url, settings)
            self.url = str(self._answers.endpoints[0].url)
            self.events = str(self._events.endpoints[0].url)
            self._poller = Poller()
            self._poller.register(self._answers)
            self._poller.register(self._events)
            RING.begin(self.id)
            self._start()
        except BaseException:
            RING.end(self.id)
            self._own.close(0)
            raise

    def _open(self, url: str, settings: Publish) -> tuple[Respondent, XPub]:
        options = {**BOUNDS, **settings.options, "context": self._own}
        local = place.scheme_of(url) in ("ipc", "shm")
        answers = Respondent(send_hwm=1, send_hwm_bytes=1 << 20, **options)
        if local and "security" not in options:
            options["security"] = Null(allow={os.getuid(), 0})
        published = XPub(send_hwm=1000, send_hwm_bytes=1 << 20,
                         max_subscription_bytes=SUBSCRIPTIONS, **options)
        for sock, local_only in ((answers, local), (published, False)):
            door = _Door(sock, local_only, self._refused)
            if sock is answers:
                self._door = door
            sock._links.watchers.append(door)
        for sock, where in ((answers, url), (published, place.events_url(url))):
            bound = sock.bind(where)
            if local and not bound.url.startswith(("ipc://@", "shm://@")):
                os.chmod(parse(bound.url).address, 0o600)
        return answers, published

    def _start(self) -> None:
        thread = Thread(self._run, "mqcore-monitor")
        self._own._hub.loop.spawn(thread)
        self._thread = thread
        _agents.add(self)

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Complete on return, with the socket files removed. Idempotent. Does nothing in a forked
        child, which has neither the thread nor the files."""
        if self._pid != os.getpid():
            return
        self._ending.set()
        RING.end(self.id)
        # No lock: two calls at once are fine, since each step can be repeated.
        self._hub.unobserve(self._observed)
        self._own.close(0)
        if not self._thread.is_current():
            self._thread.join()
            self._poller.close()
            self._hub.unobserve(self._observed)     # the thread may have observed meanwhile
        self._closed = True

    def leave(self) -> None:
        """The context is garbage: close() on another thread, since this may be any."""
        if self._closed or self._pid != os.getpid() or sys.is_finalizing():
            return      # a thread that starts while the interpreter ends never runs
        try:
            start_behind(self.close, "mqcore-monitor-close")
        except RuntimeError:    # no more threads: at the exit
            pass

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                for sock, _ in self._poller.poll():
                    if sock is self._events:
                        self._subscriptions()
                    else:
                        self._answer_some()
            except (SocketClosed, ContextClosed):
                return
            except Exception as error:  # of our own code: the program must not end with it
                self._failed(error)
                self._ending.wait(1.0)

    def _failed(self, error: BaseException) -> None:
        self.counts["failed"] += 1
        if self.counts["failed"] <= 10:
            _say(logging.ERROR, "the monitor failed: %s",
                 "".join(traceback.format_exception(error)))

    def _refused(self, why: str, peer: Any) -> None:
        self.counts["refused"] += 1
        if self.counts["refused"] <= 10:
            _say(logging.WARNING, "the monitor at %s refused %s: %s", self.url, peer, why)

    def _subscriptions(self) -> None:
        """Observe the program's sockets while there is a subscriber. A client that subscribes and
        unsubscribes without end gets as many turns as one that asks without end."""
        if pause := self._subscription_throttle.take():
            self._ending.wait(pause)
            return
        for _ in range(TURN):
            try:
                self._events.recv(timeout=0)
            except Timeout:
                break
        wanted = any(self._events._subscribers(protocol.EVENTS + kind) for kind in KINDS)
        if wanted != self._observing:
            self._observing = wanted
            (self._hub.observe if wanted else self._hub.unobserve)(self._observed)

    # -- requests ----------------------------------------------------------------------------------

    def _answer_some(self) -> None:
        while not self._ending.is_set():
            pause = self._throttle.take()
            if pause:
                self._ending.wait(pause)
                continue
            try:
                message = self._answers.recv_msg(timeout=0)
            except Timeout:
                self._throttle.give_back()
                return
            self.counts["requests"] += 1
            if message.peer is None or not self._door.knows(message.peer.id):
                self.counts["unsent"] += 1
                continue
            try:
                message.reply(self._answer(message), timeout=0)
            except (Timeout, Error) as error:
                if isinstance(error, SocketClosed):
                    raise
                self.counts["unsent"] += 1

    def _answer(self, message: Any) -> bytes:
        try:
            request = protocol.decode_request(b"".join(bytes(part) for part in message.parts))
            if request.v != protocol.VERSION:
                return _failure("version", f"this is version {protocol.VERSION}")
            if isinstance(request, protocol.Look):
                data = self._shots.get(request)
                self.counts["snapshots"] = self._shots.taken
                return data
            if isinstance(request, protocol.Explain):
                said = explanation(self._explaining, self._hub, request.socket)
                if said is None:
                    self.counts["busy"] += 1
                    return _failure("busy", "explanations take too much time; ask again later")
                return protocol.encode(said)
            if isinstance(request, protocol.Trace):
                return self._traced(request.trace)
            if isinstance(request, protocol.ListComponents):
                return self._listed()
            return protocol.encode(protocol.Welcome(
                v=protocol.VERSION, process=collect.process_facts(), events=self.events,
                context=collect.context_facts(self.id, self.name, self._hub)))
        except protocol.Malformed as error:
            self.counts["malformed"] += 1
            return _failure("malformed", error.text)
        except (SocketClosed, ContextClosed):
            raise
        except Exception as error:
            self._failed(error)
            return _failure("failed", type(error).__name__)

    def _traced(self, trace_id: str) -> bytes:
        """A look at the ring costs time in proportion to what it holds."""
        if not self._tracing.free:
            self.counts["busy"] += 1
            return _failure("busy", "spans are asked for too often; ask again later")
        began = time.monotonic()
        data = protocol.encode(collect.spans(trace_id))
        self._tracing.spent(began)
        return data

    def _listed(self) -> bytes:
        """The components, or those of the latest look while that is good."""
        began = time.monotonic()
        until, data = self._components
        if began >= until:
            data = protocol.encode(components())
            self._components = self._listing.spent(began), data
        return data

    def _shoot(self, **how: Any) -> Any:
        return collect.snapshot(self._hub, self.id, self.name, self.events, **how)

    # -- events ------------------------------------------------------------------------------------

    def _observed(self, event: Any) -> None:
        """Any thread of the observed context, perhaps with its lock: publishes, never waits."""
        if self._pid != os.getpid():
            return
        self._events_seen += 1
        # None: it is garbage, and its finalizer has not run yet
        if event.socket is None or self._event_throttle.take():
            self._events_lost += 1
            self.counts["events_lost"] += 1
            return
        try:
            links = event.socket._links
            facts = protocol.EventFacts(
                v=protocol.VERSION, at=event.at, context=self.id, socket=links.number,
                pattern=links.plugin.name, kind=event.kind, endpoint=collect.clean(event.endpoint),
                peer=event.peer.id if event.peer is not None else None,
                address=collect.clean(event.peer.address) if event.peer is not None else "",
                reason=collect.clean(event.reason), lost=self._events_lost,
                number=self._events_seen)
            self._events.send_parts([protocol.EVENTS + event.kind.encode(), protocol.encode(facts)],
                                    timeout=0)
            self._events_lost = 0
            self.counts["events"] += 1
        except Exception as error:      # the control plane must go on, whatever this does
            if isinstance(error, (Timeout, SocketClosed, ContextClosed)):
                self._events_lost += 1
                self.counts["events_lost"] += 1
            else:
                self._failed(error)


_agents: Living[Agent] = Living()   # those of this process


def _at_exit() -> None:
    """Contexts that the program has not closed. Their finalizers come too late for a thread."""
    for agent in _agents:
        agent.close()


atexit.register(_at_exit)


class _Door:
    """Ends connections of strangers and those beyond the limit, as soon as their peer is known. It
    is called on the control thread of the agent's context."""

    def __init__(self, sock: Any, local: bool, refused: Callable[[str, Any], None]) -> None:
        self._sock = sock
        self._local = local
        self._refused = refused
        self._allowed = {os.getuid(), 0}

    def __call__(self, event: Any) -> None:
        if not isinstance(event, events.Connected) or event.peer is None:
            return
        links = self._sock._links
        why = ""
        if len(links.peers) > CLIENTS:
            why = f"{CLIENTS} clients are connected"
        elif self._local:
            uid = self._uid(event.peer.id)
            if uid not in self._allowed:
                why = f"its user is {uid}"
        if why:
            self._refused(why, event.peer)
            links.end_peer(event.peer.id)   # its pipe may not be there yet

    def knows(self, number: int) -> bool:
        """Whether this peer's requests are answered: one may come before its connection ends."""
        return not self._local or self._uid(number) in self._allowed

    def _uid(self, number: int) -> int | None:
        """The user of a connected peer, by the kernel."""
        links = self._sock._links
        links.hub.pump()
        with links.hub.lock:
            return next((conn.owner_ids[0] for conn in list(links.connections.values())
                         if conn.peer is not None and conn.peer.id == number), None)


def _say(level: int, text: str, *facts: object) -> None:
    """Threads that must go on write to the log, and its handlers may raise anything."""
    try:
        _log.log(level, text, *facts)
    except BaseException:
        report()


def _failure(code: str, text: str) -> bytes:
    return protocol.encode(protocol.Failure(v=protocol.VERSION, code=code, text=text))
