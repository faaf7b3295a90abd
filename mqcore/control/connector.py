"""Connector: keeps a socket connected to one address.

An attempt resolves the name (each time anew, because hosts move), tries every address in turn, and
ends with a descriptor for the owner, or with an error and a pause (link/backoff.py). The owner
reports what becomes of the descriptor with `handshaken()` and finally `lost(...)`. Everything runs
on the control thread. Attempts are numbered, and results of an older attempt are discarded.

    connecting -> handshaking -> connected -> (lost) waiting -> connecting ...
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Mapping
from typing import Any

from mqcore.base.described import described
from mqcore.base.native import socket
from mqcore.control.endpoint import Endpoint
from mqcore.control.loop import ControlLoop, Timer
from mqcore.control.route import Route
from mqcore.control.shortcut import Shortcut
from mqcore.errors import AddressError, ConnectTimeout, Error, PeerError, RemoteRefused
from mqcore.link.backoff import Backoff
from mqcore.spi.url import Url

REFUSED = {errno.ECONNREFUSED, errno.ENOENT}  # no listener; ENOENT: the ipc file does not exist
LINKED = ("handshaking", "connected")


class Connector:
    """`on_connected(sock, remote)` runs on the control thread. sock is non-blocking and belongs to
    the callee. If the callee raises, the connector closes the socket and the attempt has failed.
    The callee reports back with handshaken() and, once, lost(). `on_state(state, error)` runs at
    each change of state. While "waiting", `pause` is the length of the wait in seconds. The wait is
    repeated while `full()`."""

    def __init__(self, loop: ControlLoop, transport: Any, where: Route | Url | str,
                 options: Mapping[str, Any],
                 on_connected: Callable[[socket.socket, str], Any],
                 on_state: Callable[[str, Error | None], Any] | None = None, *,
                 full: Callable[[], bool] = lambda: False,
                 rng: Callable[[], float] = random.random) -> None:
        route = Route.of(transport, where, "connect")
        route.check(options)
        try:
            adopted = transport.adopt(route.address, options)
        except AddressError as error:
            raise route.url.locate(error) from None
        self.loop = loop
        self.transport = transport
        self.options = options
        self.address = route.address
        self.attempts = 0
        self.peer = 0  # the number of the last peer; set by the owner
        self.pause = 0.0
        self.endpoint = Endpoint(route.show(route.address), "connect", given=route.url.text,
                                 closer=self.stop, lock=loop.lock)
        self._on_connected = on_connected
        self._on_state = on_state
        self._full = full
        if on_state is not None:
            self.endpoint.observe(lambda _e, _old, new, error: on_state(new, error))
        again = options.get("reconnect", 0.1)
        self._backoff = None if again is None else Backoff(
            again, options.get("reconnect_max", 10.0), rng)
        self._number = 0  # of the attempt; results with another number are stale
        self._looking = self._awaited = False  # a look-up runs; this attempt waits for it
        self._late: list[Any] | None = None  # the result of a look-up that outlived its attempt
        self._targets: list[Any] = []
        self._behind: list[Any] = []  # the targets after a shortcut, in case its handshake fails
        self._sock: socket.socket | None = None
        self._timer: Timer | None = None
        self._tried: Any = None     # the address of the last link
        self._doubtful: Any = None  # the same, of a link that did nothing but connect
        self._since = 0.0           # the time of its handshake
        self._failure: Error | None = None
        self._at_once = False
        self._adopted: socket.socket | None = adopted
        self._once = adopted is not None
        if self._once:
            self._backoff = None

    @property
    def detour(self) -> bool:
        """Whether the connection that was handed over came through a shortcut, and there are
        targets left if its handshake fails."""
        return bool(self._behind)

    # -- from any thread ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start the first attempt. Call once."""
        self.loop.call(self._start)

    def handshaken(self) -> None:
        """The handshake succeeded."""
        self.loop.call(self._handshaken)

    def lost(self, error: Error | None, fatal: bool = False, last: bool = False,
             carried: bool = False) -> None:
        """The link has ended, before or after the handshake. `fatal`: the error would recur (the
        peer does not fit), so the attempts end if reconnect_stop has "handshake". `last`: never
        connect again. `carried`: it brought a message."""
        self.loop.call(self._lost, error, fatal, last, carried)

    def reset(self) -> None:
        """Connect without a pause: now, or as soon as the current link is lost. Restarts a stopped
        connector."""
        self.loop.call(self._reset)

    def stop(self) -> None:
        """Stop; callable from any thread. When it returns, none of the connector's code runs any
        more. Idempotent. The owner ends a link that was handed over."""
        self.loop.call_wait(self._stop)

    # -- an attempt --------------------------------------------------------------------------------

    def _start(self) -> None:
        if self.attempts == 0 and self.endpoint.state == "connecting":
            if self._on_state is not None:
                self._on_state("connecting", None)  # the initial state, which no move() reports
            self._attempt()

    def _attempt(self) -> None:
        if self.endpoint.state == "closed":
            return
        self._cancel()
        self._at_once = False
        self._failure = None
        self.attempts += 1
        number = self._number
        self.endpoint.move("connecting")
        if self._once:
            self._use()
            return
        self._limit("its name could not be resolved")
        try:
            blocks = self.transport.may_block(self.address)
        except AddressError as error:
            self._give_up(error)
            return
        if blocks:
            self._look_up()
            return
        try:
            found, failure = self._resolve(), None
        except Exception as error:
            found, failure = None, error
        self._resolved(number, found, failure)

    def _use(self) -> None:
        """The single attempt with an existing connection."""
        self._sock, self._adopted = self._adopted, None
        if self._sock is None:
            self._give_up(PeerError(f"{self.endpoint.url} was one connection, which has ended",
                                    hint="connect a new one"))
            return
        self._limit("it does not answer")
        self.loop.add_writer(self._sock.fileno(), self._writable)

    def _look_up(self) -> None:
        """Resolve the name. This attempt also uses a look-up that an earlier attempt started, or
        its late result."""
        found, self._late = self._late, None
        if found is not None:
            self._resolved(self._number, found, None)
            return
        self._awaited = True
        if not self._looking:
            self._looking = True
            self.loop.resolve((self.transport, self.address), self._resolve, self._looked_up,
                              lambda: self._awaited)

    def _looked_up(self, found: list[Any] | None, error: BaseException | None) -> None:
        self._looking = False
        if self._awaited:
            self._awaited = False
            self._resolved(self._number, found, error)
        elif error is None:
            self._late = found

    def _resolve(self) -> list[Any]:
        found: list[Any] = self.transport.resolve(self.address, self.options)
        return found

    def _resolved(self, number: int, found: list[Any] | None, error: BaseException | None) -> None:
        if number != self._number:
            return
        if error is not None:
            self._failure = self._explain(error)
        ways = getattr(self.transport, "ways", None)
        self._targets = list(found or () if ways is None else ways(found or (), self.options))
        if self._doubtful in self._targets:
            at = self._targets.index(self._doubtful) + 1
            self._targets = self._targets[at:] + self._targets[:at]
        self._next()

    def _next(self) -> None:
        """Try the next address. With none left, the attempt has failed."""
        while self._targets:
            target = self._tried = self._targets.pop(0)
            try:
                self._sock = self.transport.connect(target, self.options)
                self.loop.add_writer(self._sock.fileno(), self._writable)
            except Exception as error:
                self._unreached(error)
                continue
            self._limit("it does not answer")
            return
        self._cancel()
        self._failed(self._failure or PeerError(f"{self.endpoint.url} has no address"))

    def _writable(self) -> None:
        sock = self._sock
        if sock is None:
            return
        failure: Exception | None
        try:
            number = self.transport.finish(sock)
            failure = OSError(number, os.strerror(number)) if number else None
        except Exception as error:  # a plug-in failed
            failure = error
        if failure is not None:
            self._unreached(failure)
            self._next()
            return
        self.loop.remove(sock.fileno())
        self._sock = None  # belongs to the callee from here on
        behind = self._targets if isinstance(self._tried, Shortcut) else []
        self._cancel()
        self._behind = behind
        try:
            remote = self.transport.names(sock)[1]
            self.endpoint.move("handshaking")
            self._on_connected(sock, remote)
        except BaseException as error:
            sock.close()
            if not self._pass_by(self._explain(error)):
                self._failed(self._explain(error))
            if not isinstance(error, (Error, OSError)):
                raise

    def _unreached(self, error: BaseException) -> None:
        """The target that was tried is not there. Of a shortcut that is no failure."""
        if not isinstance(self._tried, Shortcut):
            self._failure = self._explain(error)
        self._drop()

    def _limit(self, what: str) -> None:
        """Start the connect_timeout of the look-up or of one address."""
        if self._timer is not None:
            self._timer.cancel()
        seconds = self.options.get("connect_timeout", 10.0)
        self._timer = None if seconds is None else self.loop.call_at(
            self.loop.clock() + seconds, self._too_late, seconds, what)

    def _too_late(self, seconds: float, what: str) -> None:
        self._failure = ConnectTimeout(
            f"no connection to {self.endpoint.url} within {seconds:g} s: {what}",
            last=self._failure)
        self._drop()
        self._next()

    # -- results -----------------------------------------------------------------------------------

    def _handshaken(self) -> None:
        if self.endpoint.state == "handshaking":
            self._behind = []
            self._since = self.loop.clock()
            self.endpoint.move("connected")

    def _lost(self, error: Error | None, fatal: bool, last: bool, carried: bool) -> None:
        if self.endpoint.state not in LINKED:
            return
        if not last and not fatal and self._pass_by(error):
            return
        # A peer that completes handshakes and does nothing else is retried with growing pauses, and
        # is not the first one to be tried again where the name has several addresses.
        good = self.endpoint.state == "connected" and (
            carried or self.loop.clock() - self._since > self.pause)
        tried = self._tried
        self._doubtful = None if good else tried.before if isinstance(tried, Shortcut) else tried
        if good and self._backoff is not None:
            self._backoff.reset()
        if last or fatal and "handshake" in self.options.get("reconnect_stop", ()):
            self._give_up(error)
        elif self._at_once:
            self._attempt()
        else:
            self._wait(error, fatal)

    def _pass_by(self, error: Error | None) -> bool:
        """A shortcut that failed says nothing of its peer: go on to the targets after it, in the
        same attempt. False: it was no shortcut, or its handshake was complete."""
        if self.endpoint.state != "handshaking" or not self._behind or self._at_once:
            return False
        targets, self._behind = self._behind, []
        self.endpoint.move("connecting", error)
        if self.endpoint.state == "connecting":     # else an observer has stopped or restarted it
            self._targets = targets
            self._next()
        return True

    def _failed(self, error: Error) -> None:
        refused = isinstance(error, RemoteRefused)
        if isinstance(error, AddressError) or (
                refused and "refused" in self.options.get("reconnect_stop", ())):
            self._give_up(error)
        else:
            self._wait(error, False)

    def _wait(self, error: Error | None, fatal: bool) -> None:
        if self._backoff is None:
            self._give_up(error)
            return
        self._cancel()
        self.pause = self._backoff.next()
        # Set the timer first: an observer of the state may call reset() or stop().
        self._timer = self.loop.call_at(self.loop.clock() + self.pause, self._again)
        self.endpoint.move("waiting", error, fatal=fatal)

    def _again(self) -> None:
        if self._full():
            self._timer = self.loop.call_at(self.loop.clock() + self.pause, self._again)
        else:
            self._attempt()

    def _give_up(self, error: Error | None) -> None:
        self._cancel()
        self.endpoint.move("stopped", error, fatal=True)

    def _reset(self) -> None:
        state = self.endpoint.state
        if state in LINKED:
            self._at_once = True
        elif state in ("waiting", "stopped"):
            if self._backoff is not None:
                self._backoff.reset()
            self._attempt()

    def _stop(self) -> None:
        self._cancel()
        if self._adopted is not None:
            self._adopted.close()
            self._adopted = None
        self.endpoint.move("closed")

    def _cancel(self) -> None:
        """Cancel everything that runs; later results are stale."""
        self._number += 1
        self._awaited = False
        self._targets = []
        self._behind = []
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._drop()

    def _drop(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            self.loop.remove(sock.fileno())
            sock.close()

    def _explain(self, error: BaseException) -> Error:
        """Convert any exception to an mqcore error that names the address."""
        url = self.endpoint.url
        if isinstance(error, Error):
            return error
        if isinstance(error, socket.gaierror):
            return PeerError(f"cannot resolve {url}: {error.strerror}",
                             hint="is the name right, and does the name server answer?")
        if isinstance(error, OSError) and error.errno in REFUSED:
            return RemoteRefused(f"nobody listens at {url} ({error.strerror})")
        if isinstance(error, OSError):
            return PeerError(f"cannot connect to {url}: {error.strerror or error}")
        return PeerError(f"connecting to {url} failed: {described(error)}")
