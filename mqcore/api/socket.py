"""Socket: what all patterns share. Sending and receiving are SocketCore's, in Cython; here are the
options, endpoints, peers, iteration, closing; the async twins are in aio.py.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, ClassVar, NoReturn

from mqcore import options as table
from mqcore.api.aio import AsyncFace, Incoming
from mqcore.api.attributes import LINK_OPTIONS, add_options
from mqcore.api.context import Context
from mqcore.api.timing import left_of, limit_of, passed, span
from mqcore.base.native import threading
from mqcore.control.endpoint import Endpoint
from mqcore.control.links import SocketLinks
from mqcore.control.records import CloseReport, Peer, Stats
from mqcore.errors import OptionError, SocketClosed, Timeout, UsageError, WaitTimeout
from mqcore.sock import blocking
from mqcore.sock.core import SocketCore
from mqcore.spi import registry
from mqcore.spi.url import text_of

#: what peers were told in the handshake, or what the queues were made with
FIXED = frozenset({"routing_id", "metadata", "conflate"})
CORE = frozenset({"send_timeout", "recv_timeout", "immediate", "send_hwm", "recv_hwm",
                  "send_hwm_bytes", "recv_hwm_bytes", "max_hops"})
ON_FULL = ("pattern", "block", "drop_new", "disconnect")
#: these see their full peers themselves, and have a rule for them
FANOUT = ("pub", "xpub", "radio", "bus", "surveyor")
_LEVELS = threading.Lock()  # two first calls of fileno() make one descriptor
# another thread may hold it at a fork, and the child opens sockets of its own
os.register_at_fork(after_in_child=_LEVELS._at_fork_reinit)  # type: ignore[attr-defined]


def on_full_number(plugin: Any, value: str) -> int:
    """What the core does at a full peer. OptionError for what means nothing for this pattern."""
    pattern = plugin.name
    if value == "pattern":
        return 0
    if not plugin.sends:
        raise OptionError(f"on_full={value!r} means nothing for {pattern}, which does not send")
    if value == "disconnect" and pattern not in FANOUT:
        raise OptionError(f'on_full="disconnect" is not possible for {pattern}',
                          hint=f"it is for {', '.join(FANOUT)}, where one slow peer must not "
                               "matter to the others; what waits here can wait or go to another "
                               "peer")
    if value == "drop_new" and pattern in ("req", "rep"):
        raise OptionError(f'on_full="drop_new" means nothing for {pattern}: '
                          "who asked would wait for ever")
    if value == "drop_new" and plugin.raw:
        raise OptionError(f'on_full="drop_new" is not possible for {pattern}: '
                          "a piece that is left out would spoil all that follow")
    if pattern in FANOUT:  # a fan-out pattern sees its full peers itself; it drops by its own rule
        return 0
    return ON_FULL.index(value)


def means_something(plugin: Any, name: str, value: Any) -> bool:
    """Whether a context's default is for this pattern: a context has sockets of all kinds."""
    if name == "conflate":
        return not value or bool(plugin.conflates)
    if name == "on_full":
        try:
            on_full_number(plugin, value)
        except OptionError:
            return False
    return True


def _addresses(given: Any) -> tuple[Any, ...]:
    if given is None or isinstance(given, (str, Endpoint, bytes, bytearray, memoryview)):
        return (text_of(given),)
    try:
        return tuple(given)
    except TypeError:
        raise UsageError(f"an address is text or several in a list, not {type(given).__name__}",
                         hint='write it like "tcp://127.0.0.1:5555"') from None


def _rows(pattern: str, names: Iterable[str]) -> tuple[table.Option, ...]:
    """The rows that these options may be of: the pattern's, and those of transports and filters,
    which are loaded only if one of them is named."""
    rows = registry.pattern_options(pattern)
    known = table.table(rows)
    if all(name in known for name in names):
        return rows
    link = registry.link_options()
    add_options(Socket, (row.name for row in link if not hasattr(Socket, row.name)))
    return rows + link


class Socket(AsyncFace, SocketCore):
    """Base of the pattern classes. Any thread may use it: a message is sent and received whole.
    `with` closes it."""

    __slots__ = ("_context", "_links", "_options", "_wakers", "_where")
    _pattern: ClassVar[str] = ""

    def __init__(self, *, bind: Any = (), connect: Any = (), context: Context | None = None,
                 **options: Any) -> None:
        self._links: Any = None
        name = self._pattern
        if not name:
            raise UsageError("Socket is the base of the patterns",
                             hint='socket("push") makes a Push')
        plugin = registry.pattern(name)
        rows = registry.pattern_options(name)
        self._where = f"{type(self).__module__}.{type(self).__name__}"
        self._context = context if context is not None else Context.default()
        self._wakers: Any = weakref.WeakValueDictionary()
        known = table.defaults(rows, name)
        shared = self._context._shared(known)
        shared = {k: v for k, v in shared.items() if means_something(plugin, k, v)}
        given = table.validate_all(options, extra=_rows(name, options), pattern=name)
        self._options: dict[str, Any] = {**known, **shared, **given}
        self._check(plugin)
        self._links = SocketLinks(self._context._hub, self, plugin, self._options)
        try:
            for option in CORE:
                self._set(option, self._options[option])
            self._full(self._options["on_full"])
            if self._options.get("strategy", "priority") != "priority":
                self._strategy(self._options["strategy"])
            for row in rows:
                value = self._options[row.name]
                if value is not None and value != row.default:
                    self._set_pattern_option(row.name, value)
            for url in _addresses(bind):
                self.bind(url)
            for url in _addresses(connect):
                self.connect(url)
        except BaseException:
            self.close(0)
            raise

    # -- options -----------------------------------------------------------------------------------

    def _check(self, plugin: Any) -> None:
        """Options that mean nothing together or for this pattern."""
        name, options = self._pattern, self._options
        if options["conflate"] and not plugin.conflates:
            raise OptionError(f"conflate means nothing for {name}",
                              hint="it is for push, pull, pub, sub and dealer")
        on_full_number(plugin, options["on_full"])

    def _full(self, value: str) -> None:
        self._set("on_full", on_full_number(self.plugin, value))
        if self._pattern in FANOUT:
            self._set_pattern_option("nodrop",
                                     value == "block" or bool(self._options.get("nodrop")))
            self._set_pattern_option("disconnect", value == "disconnect")

    def _strategy(self, name: str) -> None:
        if not self._set_pattern_option("strategy", registry.strategy(name).address):
            raise MemoryError

    def _set_option(self, name: str, value: Any) -> None:
        if self.closed:
            raise SocketClosed("the socket is closed")
        rows = registry.pattern_options(self._pattern)
        value = table.validate(name, value, extra=_rows(self._pattern, (name,)),
                               pattern=self._pattern)
        if name in FIXED:
            raise OptionError(f"option {name!r} cannot change any more, the socket is open",
                              hint=f"give it to {type(self).__name__}({name}=...)")
        if name in CORE:
            self._set(name, value)
        elif name == "on_full":
            self._full(value)
        elif name == "strategy":
            self._strategy(value)
        elif any(row.name == name for row in rows):
            if not self._set_pattern_option(name, value):
                raise OptionError(f"option {name!r} cannot change any more, the socket is open")
        self._options[name] = value

    # -- endpoints ---------------------------------------------------------------------------------

    @property
    def pattern(self) -> str:
        """"push", "pull", ..."""
        return self._pattern

    @property
    def ctx(self) -> Context:
        """The Context that it belongs to."""
        return self._context

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """What bind() and connect() made, in order."""
        return tuple(self._links.endpoints)

    def bind(self, url: Any, **endpoint: Any) -> Endpoint:
        """Listen at url; peers can connect when it returns. `.url` of what it returns is the real
        address (a port 0 has become a number)."""
        self._usable()
        return self._links.bind(text_of(url), **endpoint)  # type: ignore[no-any-return]

    def connect(self, url: Any, *, prio: int = ..., wait: Any = 0,  # type: ignore[assignment]
                **endpoint: Any) -> Endpoint:
        """Keep a connection to url, now and again after each loss. wait: so many seconds until the
        peer is there and fits, else ConnectTimeout or HandshakeFailed, and nothing stays behind."""
        self._usable()
        limit_of(wait)
        if prio is not ...:
            endpoint["prio"] = prio
        made: Endpoint = self._links.connect(text_of(url), **endpoint)
        if wait != 0:
            try:
                blocking.check(self)
                made.wait(wait)
                self._links.settle(made)
            except BaseException:
                made.close()
                raise
        return made

    def unbind(self, at: Any) -> None:
        """Stop listening there; peers that came that way are gone when it returns."""
        self._usable()
        self._links.unbind(at)

    def disconnect(self, at: Any) -> None:
        """End a connection. What waits for that peer goes back to the socket, or is counted."""
        self._usable()
        self._links.disconnect(at)

    def _usable(self) -> None:
        """Raise what a call on this socket would: SocketClosed, Forked, a device's UsageError."""
        self._can()

    # -- peers -------------------------------------------------------------------------------------

    def _peer(self, number: int) -> Peer | None:
        return self._links.peer(number)  # type: ignore[no-any-return]

    def peers(self) -> list[Peer]:
        """Those that are connected now and fit."""
        self._usable()
        return self._links.present()  # type: ignore[no-any-return]

    def wait_peers(self, n: int = 1, timeout: Any = None) -> None:
        """Until n peers are connected and have shaken hands. WaitTimeout says how many and why."""
        self._wait_count(n, timeout, self._attached, "peers")

    def _enough(self, n: int, count: Callable[[], int]) -> bool | None:
        self._usable()
        return True if count() >= n else None

    def _wait_count(self, n: int, timeout: Any, count: Callable[[], int], what: str) -> None:
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise UsageError(f"n must be a whole number of {what}, not {n!r}")
        limit = limit_of(timeout)
        while True:
            seen = self._change()
            if self._enough(n, count):
                return
            if limit == 0 or passed(limit):
                self._fail_wait(count(), n, what, timeout)
            self._wait(seen, left_of(limit))

    def _fail_wait(self, have: int, want: int, what: str, timeout: Any) -> NoReturn:
        from mqcore.api.explain import why_no_peers

        why = why_no_peers(self)
        raise WaitTimeout(f"{have} of {want} {what}{span(timeout)}: {why}", have=have, want=want,
                          why=why)

    def _fail_send(self, why: int, timeout: Any, sent: int = 0) -> NoReturn:
        self._explained("send_timeout", timeout, super()._fail_send, why, timeout, sent)

    def _fail_recv(self, timeout: Any) -> NoReturn:
        self._explained("recv_timeout", timeout, super()._fail_recv, timeout)

    def _explained(self, option: str, timeout: Any, fail: Callable[..., Any],
                   *args: Any) -> NoReturn:
        """fail(), and with no peer in sight what the socket knows about the reason. A call that
        was not to wait asked for no explanation."""
        from mqcore.api.explain import DOCTOR, why_no_peers

        try:
            fail(*args)
        except Timeout as error:
            if self._attached() or (self._options[option] if timeout is ... else timeout) == 0:
                raise
            error.text += f": {why_no_peers(self)}"
            if self.endpoints:
                error.hint = DOCTOR
            raise
        raise AssertionError("it raises")

    # -- looking -----------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Exact accounts of the socket and of each peer, at this moment."""
        self._usable()
        return self._links.stats()  # type: ignore[no-any-return]

    def events(self, *, backlog: int = 1000) -> Any:
        """What happens to the connections from now on: iterable, `for` and `async for`. Keeps up to
        `backlog` events that nobody has read; more are counted in .lost."""
        from mqcore.api.events import EventStream

        self._usable()
        return EventStream(self, backlog)

    def explain(self) -> str:
        """Plain words: what each endpoint and peer is doing, and why messages do not flow."""
        from mqcore.api.explain import explain

        return explain(self)

    def fileno(self) -> int:
        """A descriptor that is readable as long as recv() would not wait. Never read, write or
        close it. It lives until the socket is closed."""
        from mqcore.api.poll import Level

        self._usable()
        level = self._level
        if level is None:
            made = Level(self)  # not under the lock: it waits for the control thread
            with _LEVELS:
                if self._level is None:
                    self._level = made
                level = self._level
            if level is not made:
                made.close()
        fd = int(level.fd)
        if self.closed:  # meanwhile; its close() may have looked before there was a Level
            self._drop_level()
            raise SocketClosed("the socket is closed")
        return fd

    def _drop_level(self) -> None:
        with _LEVELS:
            level, self._level = self._level, None
        if level is not None:
            level.close()

    # -- iterating ---------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        return Incoming(self.recv, self.arecv)

    def __aiter__(self) -> Any:
        return Incoming(self.recv, self.arecv)

    def messages(self) -> Incoming:
        """recv_msg() until we close the socket; `for` and `async for`."""
        return Incoming(self.recv_msg, self.arecv_msg)

    def batches(self, max: int = 65536) -> Incoming:
        """recv_batch() until we close the socket; `for` and `async for`."""
        return Incoming(lambda: self.recv_batch(max), lambda: self.arecv_batch(max))

    # -- the end -----------------------------------------------------------------------------------

    def close(self, linger: Any = ...) -> CloseReport:
        """Go on delivering what was sent for up to `linger` seconds, then end everything. Complete
        on return; a second call gives the same report."""
        links = self._links
        if links is None or links.hub.forked:
            return CloseReport()
        if linger is not ...:
            limit_of(linger)
        try:
            return links.close(linger)  # type: ignore[no-any-return]
        finally:
            if links.report is not None:
                self._drop_level()

    def __enter__(self) -> Any:
        self._usable()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        links = getattr(self, "_links", None)
        if links is None or links.hub.forked or links.report is not None or self.closed:
            return
        links.hold(self)
        try:
            warnings.warn(f"unclosed {self!r}: it goes on delivering in the background; use `with`",
                          ResourceWarning, source=self, stacklevel=2)
        finally:
            _close_behind(links)

    def __reduce__(self) -> Any:
        raise UsageError("a socket cannot be pickled or copied",
                         hint="pass the URL, and open a socket where it is used")

    def __repr__(self) -> str:
        links = self._links
        if links is None:
            return f"<mqcore.{type(self).__name__} never opened>"
        if links.hub.forked:
            return f"<mqcore.{type(self).__name__} of the parent process>"
        if self.closed:
            return f"<mqcore.{type(self).__name__} closed>"
        where = ", ".join(f"{e.kind} {e.url}" for e in links.endpoints) or "no endpoints"
        n = self._attached()
        return f"<mqcore.{type(self).__name__} {where}; {n} peer{'' if n == 1 else 's'}>"


def _close_behind(links: Any, level: Any = None) -> None:
    """Close a forgotten socket within its own linger, on a thread that the program's end waits
    for. `level`: a Level that belongs to it as well."""

    def body() -> None:
        try:
            if level is not None:
                level.close()
            links.core.close()
        finally:
            links.hold(None)

    try:
        threading.Thread(target=body, name="mqcore-close").start()
    except RuntimeError:  # the interpreter ends: there are no new threads
        body()


add_options(Socket, (row.name for row in table.TABLE if not row.patterns))
add_options(Socket, LINK_OPTIONS)
