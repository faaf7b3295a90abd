"""Client: reads what contexts publish. One survey asks all of them at once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mqcore.api.context import Context
from mqcore.api.pubsub import Sub
from mqcore.api.survey import Surveyor
from mqcore.errors import Error, Timeout, UsageError
from mqcore.monitor import place, protocol
from mqcore.monitor.protocol import EventFacts, Snapshot

PATIENCE = 1.0      # seconds that look() waits for all contexts
REACH = 0.5         # part of it that new connections may take


class Client:
    """Reads the contexts at `urls`, or all that publish in this user's folder. `with` closes it.

    urls: one address or several; None (default) looks into the folder before each survey, so that
    contexts may come and go. folder: another folder. options: of its sockets, such as `tls_ca`."""

    def __init__(self, urls: str | Iterable[str] | None = None, *,
                 folder: str | Path | None = None, **options: Any) -> None:
        self._fixed = None if urls is None else {urls} if isinstance(urls, str) else set(urls)
        self._folder = None if folder is None else Path(folder)
        self._options = options
        self._context = Context(monitor=False)
        #: answers that could not be read, since the start
        self.malformed = 0
        #: the text of the latest Failure, or of another version's answer, or ""
        self.failure = ""
        #: events that this reader or the contexts dropped, since the start of events()
        self.events_lost = 0
        self._numbers: dict[str, int] = {}      # of the latest event, by context
        self._endpoints: dict[str, Any] = {}
        self._events: Sub | None = None
        self._event_urls: set[str] = set()
        self._socket = Surveyor(context=self._context, linger=0, recv_hwm=4,
                                max_message_size=protocol.LARGEST_ANSWER, **options)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. Idempotent."""
        self._context.close(0)

    @property
    def urls(self) -> list[str]:
        """The addresses that the next survey asks."""
        return sorted(place.discover(self._folder) if self._fixed is None else self._fixed)

    def _connect(self, patience: float) -> int:
        """Follow the folder; the number of contexts that can answer now. New connections may take
        `patience` seconds together."""
        urls = set(self.urls)
        fresh = []
        for url in urls - self._endpoints.keys():
            self._endpoints[url] = self._socket.connect(url)
            fresh.append(self._endpoints[url])
        for url in self._endpoints.keys() - urls:
            self._endpoints.pop(url).close()
        until = time.monotonic() + patience
        for endpoint in fresh:
            try:
                endpoint.wait_ready(max(0.0, until - time.monotonic()))
            except Error:       # it is still starting, or ending
                continue
        connected: int = sum(e.state == "connected" for e in self._endpoints.values())
        return connected

    def _ask(self, request: Any, timeout: float) -> Iterator[Any]:
        """The answers, until all have answered or the time is over."""
        left = self._connect(timeout * REACH)
        if not left:
            return
        answered = set()
        for message in self._socket.survey_msg(protocol.encode(request), deadline=timeout):
            if message.peer in answered:        # a second answer is not another context's
                self.malformed += 1
                continue
            answered.add(message.peer)
            try:
                answer = protocol.decode_answer(bytes(message))
                protocol.check_version(answer.v)
            except protocol.Malformed:
                self.malformed += 1
            except UsageError as error:     # of a later version, which hides no other context
                self.failure = error.text
            else:
                if isinstance(answer, protocol.Failure):
                    self.failure = answer.text
                else:
                    yield answer
            left -= 1
            if not left:
                return

    def snapshots(self, *, peers: bool = True, most: int = protocol.MOST_PEERS, socket: int = 0,
                  timeout: float = PATIENCE) -> list[Snapshot]:
        """The state of all contexts that answer within `timeout` seconds (default 1.0), by program
        and process id. peers: with their peers. most: peers of each context at most (default and
        limit: 20,000). socket: only the socket with this number; 0 (default): all."""
        request = protocol.Look(peers=peers, most=most, socket=socket)
        found = [answer for answer in self._ask(request, timeout) if isinstance(answer, Snapshot)]
        return sorted(found, key=lambda shot: (shot.process.program, shot.process.pid,
                                               shot.context.id))

    def welcomes(self, *, timeout: float = PATIENCE) -> list[protocol.Welcome]:
        """Who publishes: the process and the context at each address."""
        return [answer for answer in self._ask(protocol.Hello(), timeout)
                if isinstance(answer, protocol.Welcome)]

    def spans(self, trace_id: str, *, timeout: float = PATIENCE) -> list[protocol.Spans]:
        """The spans of a trace, by process. Each process keeps its latest 4096 of all traces."""
        found = {}
        for answer in self._ask(protocol.Trace(trace=trace_id), timeout):
            if isinstance(answer, protocol.Spans):      # the contexts of a process share its spans
                found[answer.process.host, answer.process.pid, answer.process.started] = answer
        return sorted(found.values(), key=lambda spans: (spans.process.program, spans.process.pid))

    def components(self, *, timeout: float = PATIENCE) -> list[protocol.Components]:
        """What each process runs beside its sockets: devices, journals, servers, queues, cluster
        nodes, bridges."""
        found = {}
        for answer in self._ask(protocol.ListComponents(), timeout):
            if isinstance(answer, protocol.Components):     # the contexts of a process share them
                found[answer.process.host, answer.process.pid, answer.process.started] = answer
        return sorted(found.values(), key=lambda one: (one.process.program, one.process.pid))

    def explain(self, socket: int, *, timeout: float = PATIENCE) -> list[str]:
        """What Socket.explain() says of the socket with this number, of each context that has one.
        For one context, give the client its URL."""
        return [answer.text for answer in self._ask(protocol.Explain(socket=socket), timeout)
                if isinstance(answer, protocol.Explanation) and answer.text]

    def events(self, *, timeout: float | None = None) -> Iterator[EventFacts]:
        """The events of all contexts that publish now, as they come; ends after `timeout` seconds
        without one (None, the default: never). A slow reader loses events, which `events_lost`
        counts once a later one arrives."""
        if self._events is None:
            self._events = Sub(topics=protocol.EVENTS, context=self._context, linger=0,
                               max_message_size=protocol.LARGEST_REQUEST * 4, **self._options)
        for welcome in self.welcomes():
            if welcome.events not in self._event_urls:
                self._event_urls.add(welcome.events)
                self._events.connect(welcome.events)
        while True:
            try:
                parts = self._events.recv_parts(timeout=timeout)
            except Timeout:
                return
            try:
                event = protocol.decode_event(bytes(parts[-1]))
            except protocol.Malformed:
                self.malformed += 1
                continue
            last = self._numbers.get(event.context, event.number - 1)
            self._numbers[event.context] = max(last, event.number)
            self.events_lost += max(0, event.number - last - 1)
            yield event


def look(urls: str | Iterable[str] | None = None, *, peers: bool = True,
         timeout: float = PATIENCE) -> list[Snapshot]:
    """One look at all contexts that publish: their Snapshots. See Client."""
    with Client(urls) as client:
        return client.snapshots(peers=peers, timeout=timeout)
