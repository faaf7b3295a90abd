"""Socket: what all patterns share: options, endpoints, peers, iteration and closing. SocketCore, in
Cython, sends and receives; aio.py has the async variants.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import EllipsisType, TracebackType
from typing import Any, ClassVar, NoReturn

from mqcore import options as table
from mqcore.api import debugging
from mqcore.api.aio import AsyncFace, Incoming
from mqcore.api.attributes import LINK_OPTIONS, add_options
from mqcore.api.context import Context
from mqcore.api.histograms import Histogram, histograms_of
from mqcore.api.running import refuse_in_hook
from mqcore.base.native import threading
from mqcore.base.renamed import renamed
from mqcore.base.waits import Released
from mqcore.binding import blocking
from mqcore.binding.core import SocketCore
from mqcore.binding.timing import left_of, limit_of, passed, span
from mqcore.control.closing import AT_REST
from mqcore.control.endpoint import Endpoint
from mqcore.control.links import SocketLinks
from mqcore.control.stats import CloseReport, Peer, Stats
from mqcore.errors import OptionError, SocketClosed, Timeout, UsageError, WaitTimeout
from mqcore.spi import registry
from mqcore.spi.url import text_of

#: options that peers learned in the handshake, or that the queues were created with
FIXED = frozenset({"routing_id", "metadata", "conflate"})
CORE = frozenset({"send_timeout", "recv_timeout", "immediate", "send_hwm", "recv_hwm",
                  "send_hwm_bytes", "recv_hwm_bytes", "max_hops", "max_unfinished",
                  "max_departed"})
ON_FULL = ("pattern", "block", "drop_new", "disconnect")
#: fan-out patterns check for full peers themselves and have their own rule
FANOUT = ("pub", "xpub", "radio", "bus", "surveyor")
_LEVELS = threading.RLock()  # concurrent first calls of fileno() create one descriptor
# another thread may hold it during a fork, and the child opens sockets of its own
os.register_at_fork(after_in_child=_LEVELS._at_fork_reinit)  # type: ignore[attr-defined]


def on_full_number(plugin: Any, value: str) -> int:
    """The core's number for on_full. OptionError for a value that this pattern does not support."""
    pattern = plugin.name
    if value == "pattern":
        return 0
    if not plugin.sends:
        raise OptionError(f"on_full={value!r} has no effect on {pattern}, which does not send")
    if value == "disconnect" and pattern not in FANOUT:
        raise OptionError(f'on_full="disconnect" is not supported by {pattern}',
                          hint=f"it works with {', '.join(FANOUT)}, where a slow peer must not "
                               "matter to the others; what waits here can wait or go to another "
                               "peer")
    if value == "drop_new" and pattern in ("req", "rep"):
        raise OptionError(f'on_full="drop_new" is not supported by {pattern}: '
                          "the requester would wait for ever")
    if value == "drop_new" and plugin.raw:
        raise OptionError(f'on_full="drop_new" is not supported by {pattern}: '
                          "dropping a piece would corrupt the byte stream")
    # a fan-out pattern checks for full peers itself and drops by its own rule
    if pattern in FANOUT:
        return 0
    return ON_FULL.index(value)


def means_something(plugin: Any, name: str, value: Any) -> bool:
    """Whether a context's default applies to this pattern: a context has sockets of all kinds."""
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
        raise UsageError(f"an address must be text or a list of texts, not {type(given).__name__}",
                         hint='write it like "tcp://127.0.0.1:5555"') from None


def _rows(pattern: str, names: Iterable[str]) -> tuple[table.Option, ...]:
    """The rows for these options: the pattern's, and those of transports and filters, which are
    loaded only if one of them is named."""
    rows = registry.pattern_options(pattern)
    known = table.table(rows)
    if all(name in known for name in names):
        return rows
    link = registry.link_options()
    add_options(Socket, (row.name for row in link if not hasattr(Socket, row.name)))
    return rows + link


class Socket(AsyncFace, SocketCore):
    """Base class of all patterns. Thread-safe: a message is always sent and received as a whole.
    `with` closes it."""

    __slots__ = ("_context", "_links", "_made", "_options", "_wakers", "_where")
    _pattern: ClassVar[str] = ""
    _links: Any
    _options: dict[str, Any]
    send_timeout: float | None      # api/attributes.py makes it, and those of all other options

    def __new__(cls, *args: Any, **kw: Any) -> Any:
        made = super().__new__(cls)
        made._links, made._options, made._made = None, {}, ""  # until __init__() has run
        return made

    def __init__(self, *, bind: Any = (), connect: Any = (), context: Context | None = None,
                 **options: Any) -> None:
        name = self._pattern
        if not name:
            raise UsageError("Socket is the base class of the patterns",
                             hint='socket("push") creates a Push')
        plugin = registry.pattern(name)
        rows = registry.pattern_options(name)
        self._where = f"{type(self).__module__}.{type(self).__name__}"
        if not isinstance(context, Context | None):
            raise UsageError(f"context= must be a mqcore.Context, not {type(context).__name__}")
        self._context = context if context is not None else Context.default()
        self._made = debugging.made_at()
        self._wakers: Any = weakref.WeakValueDictionary()
        known = table.defaults(rows, name)
        shared = self._context._shared(known)
        shared = {k: v for k, v in shared.items() if means_something(plugin, k, v)}
        given = table.validate_all(options, extra=_rows(name, options), pattern=name)
        self._options = {**known, **shared, **given}
        self._check(plugin)
        hub = self._context._hub
        try:
            with AT_REST:
                self._links = SocketLinks(hub, self, plugin, self._options)
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
            if self._links is None:     # a signal handler's exception, when they were just made
                self._links = hub.opened_links(self)
            self.close(0)
            raise

    # -- options -----------------------------------------------------------------------------------

    def _check(self, plugin: Any) -> None:
        """Check for options that conflict or that this pattern does not support."""
        name, options = self._pattern, self._options
        if options["conflate"] and not plugin.conflates:
            raise OptionError(f"conflate is not supported by {name}",
                              hint="it works with push, pull, pub, sub and dealer")
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
            raise OptionError(f"option {name!r} cannot be changed on an open socket",
                              hint=f"pass it to the constructor: {type(self).__name__}({name}=...)")
        if name in CORE:
            self._set(name, value)
            if name in ("max_departed", "recv_hwm_bytes"):
                self._links.accept_again()
        elif name == "on_full":
            self._full(value)
        elif name == "strategy":
            self._strategy(value)
        elif any(row.name == name for row in rows):
            if not self._set_pattern_option(name, value):
                raise OptionError(f"option {name!r} cannot be changed on an open socket")
        self._options[name] = value

    # -- endpoints ---------------------------------------------------------------------------------

    @property
    def pattern(self) -> str:
        """The name of the pattern: "push", "pull", ..."""
        return self._pattern

    @property
    def context(self) -> Context:
        """The Context of this socket."""
        return self._context

    __getattr__ = renamed(ctx="context")

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints that bind() and connect() created, in order."""
        return () if self._links is None else tuple(self._links.endpoints)

    def bind(self, url: Any, **endpoint: Any) -> Endpoint:
        """Listen at url. When it returns, peers can connect, and `.url` of the returned Endpoint is
        the actual address (with a port number instead of 0). BindError, AddressError,
        OptionError."""
        self._usable()
        with AT_REST:
            return self._links.bind(text_of(url), **endpoint)  # type: ignore[no-any-return]

    def connect(self, url: Any, *, prio: int | EllipsisType = ..., wait: Any = 0,
                **endpoint: Any) -> Endpoint:
        """Connect to url and reconnect after each loss. Where every peer gets every message (Pub,
        Sub, XPub, XSub, Radio, Dish, Bus), a second call with the same arguments returns the first
        one's endpoint. With `wait`, block up to that many seconds
        (default 0) until the peer's handshake is complete. If it is not, ConnectTimeout or
        HandshakeFailed is raised and the endpoint is removed."""
        self._usable()
        limit_of(wait, name="wait")
        if prio is not ...:
            endpoint["prio"] = prio
        with AT_REST:
            made: Endpoint = self._links.connect(text_of(url), **endpoint)
            if wait != 0:
                try:
                    blocking.check(self)
                    made.wait_ready(wait)
                except BaseException:
                    made.close()
                    raise
            return made

    def unbind(self, at: Any) -> None:
        """Stop listening at this address. When it returns, its connections are closed."""
        self._usable()
        self._links.unbind(at)

    def disconnect(self, at: Any) -> None:
        """Close a connection. Messages queued for that peer return to the socket or are counted as
        dropped."""
        self._usable()
        self._links.disconnect(at)

    def _usable(self) -> None:
        """Raise the error of an unusable socket: SocketClosed, Forked, a device's UsageError."""
        self._can()

    # -- peers -------------------------------------------------------------------------------------

    def _peer(self, number: int) -> Peer | None:
        return self._links.peer(number)  # type: ignore[no-any-return]

    def peers(self) -> list[Peer]:
        """The connected peers whose handshake succeeded."""
        self._usable()
        return self._links.present()  # type: ignore[no-any-return]

    def wait_peers(self, n: int = 1, timeout: Any = None) -> None:
        """Wait until n peers have completed the handshake. WaitTimeout says how many did, and
        why."""
        self._wait_count(n, timeout, self._attached, "peers")

    def _enough(self, n: int, count: Callable[[], int]) -> bool | None:
        self._usable()
        return True if count() >= n else None

    @staticmethod
    def _check_count(n: Any, what: str) -> None:
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise UsageError(f"n must be a whole number of {what} (0 or more), not {n!r}")

    def _wait_count(self, n: int, timeout: Any, count: Callable[[], int], what: str) -> None:
        self._check_count(n, what)
        limit = limit_of(timeout)
        while True:
            seen = self._change()
            if self._enough(n, count):
                return
            if limit == 0 or passed(limit):
                self._fail_wait(count(), n, what, timeout)
            with Released(self._links.hub.lock):
                self._wait(seen, left_of(limit))

    def _fail_wait(self, have: int, want: int, what: str, timeout: Any) -> NoReturn:
        why = debugging.why_no_peers(self)
        raise WaitTimeout(f"{have} of {want} {what}{span(timeout)}: {why}", have=have, want=want,
                          why=why)

    def _fail_send(self, why: int, timeout: Any, sent: int = 0) -> NoReturn:
        self._explained("send_timeout", timeout, super()._fail_send, why, timeout, sent)

    def _fail_recv(self, timeout: Any) -> NoReturn:
        self._explained("recv_timeout", timeout, super()._fail_recv, timeout)

    def _explained(self, option: str, timeout: Any, fail: Callable[..., Any],
                   *args: Any) -> NoReturn:
        """fail(), plus the socket's own explanation if no peer is connected. A call with timeout=0
        gets no explanation."""
        try:
            fail(*args)
        except Timeout as error:
            if self._attached() or (self._options[option] if timeout is ... else timeout) == 0:
                raise
            error.text += f": {debugging.why_no_peers(self)}"
            if self.endpoints:
                error.hint = debugging.DOCTOR
            raise
        raise AssertionError("it raises")

    # -- looking -----------------------------------------------------------------------------------

    def histograms(self) -> dict[str, Histogram]:
        """How long messages took, if the context was made with histograms=True; else UsageError.

        "sent": from a peer's queue until the connection takes the message to write it. "received":
        from the decoded message (inproc: the sender's send) until a call receives it. "round_trip":
        Req, from the request to its reply. See docs/guides/monitoring.md for what these leave
        out."""
        found = self._latencies()
        if found is None:
            raise UsageError("this socket measures no latencies",
                             hint="make its context with mq.Context(histograms=True)")
        return histograms_of(found)

    def stats(self) -> Stats:
        """Exact counters of the socket and of each peer at this moment."""
        self._usable()
        return self._links.stats()  # type: ignore[no-any-return]

    def events(self, *, backlog: int = 1000) -> Any:
        """The events of the connections from now on, for `for` and `async for`. It queues up to
        `backlog` unread events (default 1000) and counts further ones in `.lost`."""
        from mqcore.api.event_stream import EventStream

        self._usable()
        return EventStream(self, backlog)

    def explain(self) -> str:
        """Describe in plain words what each endpoint and peer is doing and why messages wait."""
        from mqcore.api.explain import explain

        return explain(self)

    def fileno(self) -> int:
        """A descriptor that is readable while recv() would not wait. Do not read, write or close
        it. It is valid until the socket is closed."""
        from mqcore.api.poll import Level

        self._usable()
        level = self._level
        if level is None:
            made = Level(self)  # without the lock, because it waits for the control thread
            with _LEVELS:
                if self._level is None:
                    self._level = made
                level = self._level
            if level is not made:
                made.close()
        fd = int(level.fd)
        if self.closed:  # closed meanwhile: close() may have run before the Level existed
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
        """Iterate over recv_msg() until the socket is closed, for `for` and `async for`."""
        return Incoming(self.recv_msg, self.arecv_msg)

    def batches(self, max: int = 65536) -> Incoming:
        """Iterate over recv_batch() until the socket is closed, for `for` and `async for`."""
        return Incoming(lambda: self.recv_batch(max), lambda: self.arecv_batch(max))

    # -- the end -----------------------------------------------------------------------------------

    def close(self, linger: Any = ...) -> CloseReport:
        """Keep sending queued messages for up to `linger` seconds (default: the option), then close
        everything. The close is complete on return. What the report does not count as undelivered
        or unacked is in the receiver's machine, and a receiver that goes on reading gets it. A
        second call returns the same report. In a finalizer that the garbage collector runs, or that
        interrupts another call of the library, it returns an empty report at once, and a thread
        closes the socket."""
        links = self._links
        if links is None or links.hub.forked:
            return CloseReport()
        if linger is not ...:
            limit_of(linger, name="linger")
        if links.hub.guest:
            return links.close_behind(self, linger)  # type: ignore[no-any-return]
        refuse_in_hook(lambda end: end is self)
        lost = links.core is None  # it is garbage, and a finalizer of other garbage closes it
        if lost:
            links.hold(self)
        try:
            return links.close(linger)  # type: ignore[no-any-return]
        finally:
            if lost:
                links.hold(None)
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
        if links is None or links.hub.forked or links.report is not None or self.closed \
                or links.hub.left_behind:
            return
        links.hold(self)
        debugging.leaked(self, "was dropped without close()")
        try:
            warnings.warn(f"unclosed {self!r}: it keeps sending in the background; use `with`",
                          ResourceWarning, source=self, stacklevel=2)
        finally:  # within its own linger; the interpreter waits for that thread at exit
            links.close_behind(self, daemon=False)

    def __reduce__(self) -> Any:
        raise UsageError("a socket cannot be pickled or copied",
                         hint="pass the URL, and open a socket in the process that uses it")

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


add_options(Socket, (row.name for row in table.TABLE if not row.patterns))
add_options(Socket, LINK_OPTIONS)
