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
LISTENS = ("connected", "handshaking")     # states of an endpoint whose other end is there


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
        self._answered: dict[str, str] = {}     # where, by context
        self._events: Sub | None = None
        self._publishers: dict[str, tuple[Any, str]] = {}   # (endpoint, context), by URL
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
        if self._fixed is not None:
            return sorted(self._fixed)
        listening = {url for url, one in list(self._endpoints.items()) if one.state in LISTENS}
        return sorted(place.find(self._folder, listening))

    def url_of(self, context: str) -> str:
        """The address at which the context with this id has answered; "" if it has not."""
        return self._answered.get(context, "")

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
        """The answers, until all have answered or the time is over. A context that answers at two
        addresses is one."""
        left = self._connect(timeout * REACH)
        answered = set()
        known: dict[str, str] = {}
        survey = self._socket.survey_msg(protocol.encode(request), deadline=timeout)
        for message in survey if left else ():
            if message.peer in answered:        # a second answer is not another context's
                self.malformed += 1
                continue
            answered.add(message.peer)
            answer = self._read(bytes(message))
            if isinstance(answer, (Snapshot, protocol.Welcome)):
                if answer.context.id in known:
                    answer = None
                else:
                    known[answer.context.id] = message.peer.endpoint
            if answer is not None:
                yield answer
            left -= 1
            if not left:
                break
        self._remember(known)

    def _remember(self, answered: dict[str, str]) -> None:
        """Where contexts have answered, for as long as they may be asked again."""
        here = {one.url: one.url for each in self._endpoints.values() for one in each.members}
        here |= {one.url: url for url, one in self._endpoints.items()}
        places = set(here.values())
        self._answered = {context: url for context, url in self._answered.items() if url in places}
        self._answered |= {context: here[url] for context, url in answered.items() if url in here}

    def _read(self, data: bytes) -> Any:
        """An answer; None for one that says nothing. No answer hides those of other contexts."""
        try:
            answer = protocol.decode_answer(data)
            protocol.check_version(answer.v)
        except protocol.Malformed:
            self.malformed += 1
        except UsageError as error:     # of a later version
            self.failure = error.text
        else:
            if not isinstance(answer, protocol.Failure):
                return answer
            self.failure = answer.text
        return None

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
        self._follow(self._events, self.welcomes())
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

    def _follow(self, subscriber: Sub, welcomes: list[protocol.Welcome]) -> None:
        """Subscribe to these contexts, and forget those that have ended."""
        here = {place.as_reached(one.events, self.url_of(one.context.id)): one.context.id
                for one in welcomes}
        for url in self._publishers.keys() - here.keys():
            if self._publishers[url][0].state != "connected":       # else it may only be slow
                self._publishers.pop(url)[0].close()
        for url in here.keys() - self._publishers.keys():
            try:
                self._publishers[url] = subscriber.connect(url), here[url]
            except Error as error:      # an address that no context has given itself
                self.malformed += 1
                self.failure = error.text
        known = {context for _, context in self._publishers.values()}
        self._numbers = {one: last for one, last in self._numbers.items() if one in known}


def look(urls: str | Iterable[str] | None = None, *, peers: bool = True,
         timeout: float = PATIENCE) -> list[Snapshot]:
    """One look at all contexts that publish: their Snapshots. See Client."""
    with Client(urls) as client:
        return client.snapshots(peers=peers, timeout=timeout)
