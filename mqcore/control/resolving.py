"""Follower: keeps a socket connected to the members of one resolver's address.

A look-up (on a worker if it may block) returns the URLs that the address currently stands for. The
follower connects to new URLs first and then disconnects from removed ones, so that messages queued
for those find another peer. The next look-up follows after `refresh` seconds, at once when the
resolver's watch reports a change, or after a connector's pause if this look-up failed. After a
failure the last good set stays. At most one look-up runs at a time, however long it takes.

All of it runs on the control thread. `follow()` connects it to a socket.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mqcore import options as table
from mqcore.base.described import described
from mqcore.base.native import socket
from mqcore.control import events
from mqcore.control.endpoint import TRANSITIONS, Endpoint
from mqcore.control.loop import ControlLoop, Timer
from mqcore.errors import AddressError, ConnectTimeout, Error, PeerError, SocketClosed, UsageError
from mqcore.link.backoff import Backoff
from mqcore.spi import registry
from mqcore.spi.resolver import Watch
from mqcore.spi.url import Url, parse, render


class SetEndpoint(Endpoint):
    """The result of connect() for a resolver's URL. Its state is the best state of its members."""

    def __init__(self, follower: Follower, url: str, given: str, lock: Any) -> None:
        super().__init__(url, "connect", given=given, closer=follower.stop, lock=lock)
        self._follower = follower
        self.follows = True

    @property
    def members(self) -> tuple[Endpoint, ...]:
        return tuple(self._follower.members.values())

    def settle(self, state: str, error: Error | None, fatal: bool) -> None:
        """Change to `state` through any intermediate states. `error` is the current error, if
        any."""
        if state != self._state and state not in TRANSITIONS[self._state][1]:
            self.move("connecting")
        self.move(state, error, fatal=fatal)
        with self._changed:
            if self._state != "closed":
                self._error, self._fatal = error, fatal
                self._changed.notify_all()


class Follower:
    """`check(url)` raises for a URL that cannot be connected to. `join(url)` connects and returns
    the Endpoint. `leave(endpoint)` disconnects. `tell(record, reason, **facts)` emits an event. All
    of them run on the control thread and must not block."""

    def __init__(self, loop: ControlLoop, resolver: Any, url: Url, options: Mapping[str, Any], *,
                 check: Callable[[str], Any], join: Callable[[str], Endpoint],
                 leave: Callable[[Endpoint], Any], tell: Callable[..., Any],
                 rng: Callable[[], float] = random.random) -> None:
        try:
            resolver.check(url.address)
        except AddressError as error:
            raise url.locate(error) from None
        self.loop = loop
        self.resolver = resolver
        self.options = options
        self.address = url.address
        # replaced as a whole, so that any thread may read it
        self.members: dict[str, Endpoint] = {}
        self.endpoint = SetEndpoint(self, render(resolver.scheme, url.address, url.filters),
                                    url.text, loop.lock)
        self._check, self._join, self._leave, self._tell = check, join, leave, tell
        again = options["reconnect"]
        self._backoff = None if again is None else Backoff(again, options["reconnect_max"], rng)
        self._failure: Error | None = None
        self._answers = 0
        self._looking = False
        self._wanted = False  # a look-up was requested while one was running
        self._timer: Timer | None = None
        self._watch: Watch | None = None
        self._unsettled = False  # a member has changed since the last update of the whole
        self._stopped = False

    # -- from any thread ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start the first look-up. Call once."""
        self.loop.call(self._look)

    def stop(self) -> None:
        """Stop; callable from any thread. When it returns, none of the follower's code runs any
        more. Idempotent. The owner ends the members."""
        self.loop.call_wait(self._stop)

    def abandon(self) -> None:
        """In a forked child."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    # -- a look-up ---------------------------------------------------------------------------------

    def _look(self) -> None:
        if self._stopped:
            return
        if self._looking:
            self._wanted = True
            return
        self._looking, self._wanted = True, False
        self._begin_watch()  # before the look-up, so that the watch reports every later change
        self._after(self.options["connect_timeout"], self._slow)
        try:
            blocks = self.resolver.may_block(self.address)
        except Exception as error:
            self._answered(None, error)
            return
        if blocks:
            self.loop.resolve(self, self._ask, self._answered, lambda: not self._stopped)
            return
        try:
            found, failure = self._ask(), None
        except Exception as error:
            found, failure = None, error
        self._answered(found, failure)

    def _ask(self) -> tuple[str, ...]:
        found = self.resolver.look_up(self.address, self.options)
        if isinstance(found, str) or not isinstance(found, Iterable):
            raise UsageError(f"look_up() returned {found!r}, not a list of URLs")
        return tuple(dict.fromkeys(found))

    def _slow(self) -> None:
        """connect_timeout has expired. The look-up continues, because its result is still
        useful."""
        self._report(ConnectTimeout(f"no result for {self.endpoint.url} within "
                                    f"{self.options['connect_timeout']:g} s"))

    def _answered(self, urls: tuple[str, ...] | None, error: BaseException | None) -> None:
        self._looking = False
        if self._stopped:
            return
        self._cancel_timer()
        try:
            for url in urls or ():
                self._check(url)
        except SocketClosed:
            return  # a close() is running and stops the follower next
        except Exception as wrong:
            error = wrong
        if error is None:
            self._take(urls or ())
        else:
            pause = self._backoff.next() if self._backoff else self.options["refresh"]
            self._after(pause, self._look)
            self._report(self._explain(error))
        if self._wanted:
            self._look()

    def _take(self, urls: tuple[str, ...]) -> None:
        self._failure = None
        if self._backoff is not None:
            self._backoff.reset()
        before = self.members
        kept, added = {}, []
        for url in urls:
            try:
                if url not in before:
                    member = self._join(url)
                    member.observe(self._moved)
                    added.append(url)
                kept[url] = before[url] if url in before else member
            except SocketClosed:
                return
            except Exception as error:
                self._report(self._explain(error))
        removed = tuple(url for url in before if url not in kept)
        self.members = kept
        for url in removed:
            self._leave(before[url])
        self._answers += 1
        if added or removed or self._answers == 1:
            count = f"{len(kept)} address{'es' * (len(kept) != 1)}" if kept else "no address"
            self._tell(events.Resolved, count, added=tuple(added), removed=removed)
        self._after(self.options["refresh"], self._look)
        self._settle()

    # -- results -----------------------------------------------------------------------------------

    def _report(self, error: Error) -> None:
        self._failure = error
        self._tell(events.ResolveFailed, str(error))
        self._settle()

    def _moved(self, *_: Any) -> None:
        """A member has changed, on any thread. Many changes are settled at once."""
        if not self._unsettled:
            self._unsettled = True
            self.loop.call(self._settle)

    def _settle(self) -> None:
        """Update the state and error of the whole."""
        self._unsettled = False
        if self._stopped:
            return
        members = self.members.values()
        states = {member.state for member in members}
        state, error, fatal = "connecting", self._failure, False
        if "connected" in states:
            state = "connected"
        elif states & {"connecting", "handshaking"}:
            pass
        elif states & {"waiting", "stopped"}:
            state = "waiting" if "waiting" in states else "stopped"
            worst = next(member for member in members if member.state == state)
            error = error or worst.error
            fatal = all(member._fatal for member in members if member.state != "closed")
        elif error is not None or self._answers:  # no members, or the program has closed them
            again = self._looking or self._timer is not None or self._watch is not None
            state = "waiting" if again else "stopped"
            error = error or PeerError(f"{self.endpoint.url} currently stands for no address")
        self.endpoint.settle(state, error, fatal)

    def _stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._cancel_timer()
            self._end_watch()

    # -- the watch and the timer -------------------------------------------------------------------

    def _begin_watch(self) -> None:
        if self._watch is None:
            try:
                self._watch = self.resolver.watch(self.address, self.options)
                if self._watch is not None:
                    self.loop.add_reader(self._watch.fileno(), self._watched)
            except (OSError, Error):
                self._watch = None  # fall back to `refresh`

    def _watched(self) -> None:
        try:
            changed = self._watch is not None and self._watch.read()
        except OSError:
            self._end_watch()
            changed = True
        if changed:
            self._look()

    def _end_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            self.loop.remove(watch.fileno())
            watch.close()

    def _after(self, seconds: float | None, call: Callable[[], Any]) -> None:
        self._cancel_timer()
        if seconds is not None:
            self._timer = self.loop.call_at(self.loop.clock() + seconds, call)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _explain(self, error: BaseException) -> Error:
        url = self.endpoint.url
        if isinstance(error, Error):
            return PeerError(f"cannot resolve {url}: {error.text}", hint=error.hint)
        if isinstance(error, socket.gaierror):
            return PeerError(f"cannot resolve {url}: {error.strerror}",
                             hint="is the name right, and does the name server answer?")
        if isinstance(error, OSError):
            return PeerError(f"cannot resolve {url}: {error.strerror or error}")
        return PeerError(f"resolving {url} failed: {described(error)}")


# -- at a socket -----------------------------------------------------------------------------------


def follow(links: Any, resolver: Any, url: Url, given: Mapping[str, Any]) -> Follower:
    """connect() for a resolver's URL. Options of the call and of the query apply to every member,
    unless its own URL overrides them. The resolver's own options stay with the resolver."""
    rows = registry.resolver_options(resolver.scheme)
    for name in url.filters:
        registry.filter(name)  # applied to each member; refuse a missing one now
    own = {row.name for row in rows}
    named = {name for name, _ in url.query} | set(given)
    known = rows if named <= own | set(table.CORE) else (*rows, *registry.all_options())
    options = table.for_link(links.options, url.query, given, extra=known)
    shared = {name: value for name, value in
              {**table.parse_query(url.query, extra=known), **given}.items() if name not in own}

    def member(text: str) -> tuple[str, dict[str, Any]]:
        text = "+".join((*url.filters, text))
        said = {name for name, _ in parse(text).query}
        return text, {name: value for name, value in shared.items() if name not in said}

    def check(text: str) -> None:
        if not isinstance(text, str):
            raise UsageError(f"look_up() returned {text!r} among the URLs")
        if registry.resolver(parse(text).transport) is not None:
            raise AddressError(f"{text!r} is itself a resolver's URL",
                               hint="a resolver must return URLs of transports")
        links.check_link(*member(text))

    def join(text: str) -> Endpoint:
        text, keywords = member(text)
        made: Endpoint = links.link(text, keywords, follower.endpoint)
        return made

    def tell(record: Any, reason: str, **facts: Any) -> None:
        links.emit(record, follower.endpoint, None, reason, **facts)

    follower = Follower(links.hub.loop, resolver, url, options, check=check, join=join,
                        leave=links.leave, tell=tell)
    return follower
