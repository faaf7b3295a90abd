"""The serving side: a service that this node offers, and what its handler gets.

A handler is any object with some of the methods `request(req)`, `broadcast(msg)` and
`tunnel(tun)`. Each may be a coroutine function, which runs as a task on the node's loop, or a plain
function, which runs in a thread of a pool.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from mqcore import trace
from mqcore.cluster import frames
from mqcore.cluster.checks import limit_of, said_by, view_of
from mqcore.cluster.errors import Ending
from mqcore.cluster.handling import Handler, in_its_thread, itself, stopping
from mqcore.cluster.limits import Gate
from mqcore.cluster.tunnel import Tunnel
from mqcore.cluster.tunnels import THREADS
from mqcore.errors import StateError, UsageError
from mqcore.trace.flow import received

if TYPE_CHECKING:
    from mqcore.cluster.directory import Member
    from mqcore.cluster.link import Way
    from mqcore.cluster.node import Core

TUNNELS = 4096          # open tunnels of one service
EACH = 200              # bytes of memory that a header takes besides its name and value
METHODS = ("request", "broadcast", "tunnel")


class Refusal(Exception):
    """What a handler of ours raises for an answer with another status. None: no answer at all."""

    def __init__(self, status: int | None, kind: str = "", text: str = "") -> None:
        self.status = status
        self.kind = kind
        self.text = text


class Incoming:
    """A request to a service. `deadline` is in the time of time.monotonic(), None if the requester
    waits for ever. `headers` maps names to bytes, `trace` is the requester's text. `trace_context`:
    the requester's span, or None; the handler's own is `mqcore.trace.current()`. `cancelled`: the
    requester does not wait any longer."""

    __slots__ = ("_frame", "_gate", "_link", "_stop", "cancelled", "deadline", "peer",
                 "trace_context")

    def __init__(self, link: Way, frame: frames.Request, peer: Member) -> None:
        self._stop: Callable[[], Any] | None = None
        self._gate: Gate | None = None      # where it waits, or has waited
        self._link = link
        self._frame = frame
        self.peer = peer
        self.deadline = time.monotonic() + frame.ttl / 1e6 if frame.ttl else None
        self.trace_context = trace.extract(frame.headers) if frame.headers else None
        self.cancelled = False

    def cancel(self) -> None:
        """The requester does not wait any longer, or its link is gone."""
        self.cancelled = True
        if self._gate is not None:
            self._gate.withdrawn(self)
        if self._stop is not None:
            self._stop()

    @property
    def body(self) -> bytes:
        return self._frame.body

    @property
    def headers(self) -> dict[str, bytes]:
        return self._frame.headers

    @property
    def trace(self) -> str:
        return self._frame.trace

    @property
    def size(self) -> int:
        headers = sum(len(name) + len(value) + EACH for name, value in self.headers.items())
        return len(self.body) + headers + len(self.trace)

    def expired(self, now: float) -> bool:
        return self.deadline is not None and now > self.deadline

    def __repr__(self) -> str:
        return f"<request of {len(self.body)} bytes from {self.peer.id[:8]}>"


class Received:
    """A broadcast or a survey that a service gets. What the method returns answers a survey.
    `trace_context`: the sender's span, or None."""

    __slots__ = ("_link", "_survey", "body", "cancelled", "deadline", "peer", "trace_context")

    def __init__(self, link: Way, body: bytes, peer: Member, survey: int | None,
                 deadline: float | None, trace_context: trace.TraceContext | None = None) -> None:
        self._link = link
        self._survey = survey
        self.body = body
        self.peer = peer
        self.trace_context = trace_context
        self.deadline = deadline
        self.cancelled = False

    @property
    def size(self) -> int:
        return len(self.body)

    def expired(self, now: float) -> bool:
        return self.deadline is not None and now > self.deadline


def _checked(body: Any) -> bytes:
    """What request() has returned, as a frame carries it."""
    if type(body) is not bytes:
        if body is None:
            return b""
        if not isinstance(body, bytes | bytearray | memoryview):
            raise UsageError(f"request() returned {type(body).__name__}, not bytes")
        body = bytes(view_of(body))
    if len(body) > frames.BODY:
        raise UsageError(f"an answer of {len(body)} bytes, {frames.BODY} is the limit",
                         hint="use a tunnel")
    found: bytes = body
    return found


def _answered(result: Any) -> bytes | None:
    """What broadcast() has returned, as a survey's answer carries it. None: it is no answer."""
    if not isinstance(result, bytes | bytearray | memoryview):
        return None
    return bytes(result) if memoryview(result).nbytes <= frames.BODY else None


class Service:
    """One service at this node. It begins with `async with` (or `with`), and ends there: from then
    on it takes nothing new, and requests that run are finished."""

    def __init__(self, node: Core, name: str, handler: Any, *, concurrency: int, queue_bytes: int,
                 weight: float, urls: tuple[str, ...] = (), hops: int = 0) -> None:
        if not any(callable(getattr(handler, method, None)) for method in METHODS):
            raise UsageError(f"{handler!r} serves nothing",
                             hint="give it a method request, broadcast or tunnel")
        if concurrency < 1 or queue_bytes < 0 or weight < 0:
            raise UsageError("concurrency must be 1 or more; queue_bytes and weight 0 or more")
        self.node = node
        self.name = name
        self._named = f"serve {name}"       # of its spans
        self.handler = handler
        self.offer = frames.checked_offer(float(weight), concurrency, queue_bytes, urls,
                                          hops)
        self.requests = Gate(concurrency, queue_bytes)
        self.broadcasts = Gate(concurrency, queue_bytes)
        self.tunnels: set[Tunnel] = set()
        self.refused_tunnels = 0
        self.draining = False
        self._turn = 0          # how often it has begun
        self._handing_on = False
        self._plain = {method: not inspect.iscoroutinefunction(getattr(handler, method))
                       for method in METHODS if callable(getattr(handler, method, None))}
        # what requests without a trace call, if it is a coroutine function
        self._quick = None if self._plain.get("request", True) else handler.request

    async def _do(self, method: str, argument: Any) -> Any:
        function = getattr(self.handler, method)
        if self._plain[method]:
            # a tunnel may last for days: it takes no thread from requests
            loop = self.node.loop
            call = loop.in_pool if method != "tunnel" else loop.in_thread
            result = await call(in_its_thread, function, argument)
            return await result if inspect.isawaitable(result) else result
        return await function(argument)

    # -- requests ----------------------------------------------------------------------------------

    def request(self, link: Way, frame: frames.Request) -> None:
        if self.draining or "request" not in self._plain:
            status = frames.DRAINING if self.draining else frames.NO_SERVICE
            link.control(frames.Reply(frame.id, status, self.requests.load))
            return
        assert link.member is not None
        job = Incoming(link, frame, link.member)
        verdict = self.requests.offer(job, link.clogged)
        if verdict == "refuse":
            link.control(frames.Reply(frame.id, frames.OVERLOADED, self.requests.load))
            return
        link.serving[frame.id] = job
        if verdict == "run":
            self.node.loop.handle(self._run, job)
        else:
            job._gate = self.requests

    async def _run(self, job: Incoming) -> None:
        number = job._frame.id
        reply = None
        over = job.cancelled or job.expired(time.monotonic())
        if over or job._link.clogged:       # before its turn came
            self.requests.skipped(job, refused=not over)
            if not job.cancelled:
                self._refuse(job, frames.EXPIRED if over else frames.OVERLOADED)
            self._next()
            return
        try:
            if self._quick is not None and job.trace_context is None and trace.current() is None:
                body = await self._quick(job)
            else:
                with received(job.trace_context, self._named, "server"):
                    body = await self._do("request", job)
            reply = frames.Reply(number, frames.OK, 0, _checked(body))
        except Ending:
            reply = frames.Reply(number, frames.DRAINING, 0)
        except Refusal as refusal:
            if refusal.status is not None:
                reply = frames.Reply(number, refusal.status, 0, b"", refusal.kind[:255],
                                     said_by(refusal.text))
        except BaseException as error:
            reply = frames.Reply(number, frames.FAULT, 0, b"", type(error).__name__[:255],
                                 said_by(error))
            if not isinstance(error, Exception):    # cancelled, by itself or with the loop
                raise
        finally:
            job._link.serving.pop(number, None)
            self.requests.finished()
            if self.requests.queue:
                self._next()
            if reply is not None:
                reply.load = self.requests.load
                if not job._link.answer(reply):
                    self.node.count("replies_lost")

    def _refuse(self, job: Incoming, status: int) -> None:
        """It is not run: the requester should know."""
        job._link.serving.pop(job._frame.id, None)
        job._link.control(frames.Reply(job._frame.id, status, self.requests.load))

    def _next(self) -> None:
        """What waits gets the places that are free. A task may begin and end within spawn(): then
        it is the outermost call that goes on, not one within another."""
        if self.node.closed:
            self.drop()
        if self._handing_on or self.node.closed:
            return
        self._handing_on = True
        try:
            while (found := self.requests.next(time.monotonic())) is not None:
                job, run = found
                if run:
                    self.node.loop.handle(self._run, job)
                else:
                    self._refuse(job, frames.EXPIRED)
            while (heard := self.broadcasts.next(time.monotonic())) is not None:
                if heard[1]:
                    self.node.loop.handle(self._hear, heard[0])
                else:
                    self._answer(heard[0], None)
        finally:
            self._handing_on = False

    # -- broadcasts and surveys --------------------------------------------------------------------

    def broadcast(self, link: Way, body: bytes, survey: int | None = None, ttl: int = 0,
                  text: str = "") -> None:
        deadline = time.monotonic() + ttl / 1e6 if ttl else None
        assert link.member is not None
        job = Received(link, body, link.member, survey, deadline, trace.from_text(text))
        if "broadcast" in self._plain:
            verdict = self.broadcasts.offer(job, self.draining or survey is not None
                                            and link.clogged)
            if verdict != "refuse":
                link.surveyed += survey is not None
            if verdict == "run":
                self.node.loop.handle(self._hear, job)
            if verdict != "refuse":
                return
        if survey is not None:
            link.control(frames.Answer(survey, None))

    async def _hear(self, job: Received) -> None:
        answer = None
        try:
            if job._survey is None or not job._link.clogged:
                with received(job.trace_context, self._named, "consumer"):
                    result = await self._do("broadcast", job)
                if job._survey is not None:
                    answer = _answered(result)
        except Ending:
            if job._survey is None:
                self.node.links.drop("unheard")
        finally:
            self.broadcasts.finished()
            try:
                self._answer(job, answer)
            finally:        # whatever that raises, the next one's turn has come
                self._next()

    def drop(self) -> None:
        """The node leaves: no broadcast or survey that waits is run. (A request that waits is
        cancelled with its link.)"""
        for job in list(self.broadcasts.queue):
            job.cancelled = True
            self.broadcasts.withdrawn(job)
            if job._survey is None:
                self.node.links.drop("unheard")
            else:       # its link is over: the other side knows
                job._link.surveyed -= 1

    def _answer(self, job: Received, answer: bytes | None) -> None:
        """Only a survey wants one."""
        if job._survey is None:
            return
        job._link.surveyed -= 1
        if not job._link.answer(frames.Answer(job._survey, answer)):
            self.node.count("replies_lost")

    # -- tunnels -----------------------------------------------------------------------------------

    def may_open(self) -> str:
        """"" if a tunnel may be opened, else why not."""
        if self.draining:
            return "the member drains"
        if "tunnel" not in self._plain:
            return "the service has no tunnels"
        if len(self.tunnels) >= TUNNELS:
            self.refused_tunnels += 1
            return f"the service has {TUNNELS} open tunnels"
        if self._plain["tunnel"] and self.node.tunnels.threads >= THREADS:
            self.refused_tunnels += 1
            return f"the member has {THREADS} open tunnels in threads"
        return ""

    async def serve_tunnel(self, tunnel: Tunnel) -> None:
        self.tunnels.add(tunnel)
        plain = self._plain["tunnel"]
        self.node.tunnels.threads += plain
        try:
            with received(tunnel.trace_context, self._named, "server"):
                await self._do("tunnel", tunnel)
                await tunnel.aclose()
        except Ending:
            tunnel.reset("refused", "the process ends")
        except BaseException as error:
            tunnel.reset("fault", f"{type(error).__name__}: {said_by(error)}")
            if not isinstance(error, Exception):
                raise
        finally:
            self.tunnels.discard(tunnel)
            self.node.tunnels.threads -= plain

    # -- begin and end -----------------------------------------------------------------------------

    @property
    def busy(self) -> int:
        """Requests, broadcasts and tunnels that are not over."""
        return self.requests.load + self.broadcasts.load + len(self.tunnels)

    async def astart(self) -> Self:
        """Offer the service. When it returns, all linked members know. Raises StateError if this
        node serves the name already, or another call is about to begin this service."""
        await self._begin()
        return self

    async def _begin(self) -> int:
        """What _withdraw() takes."""
        self.node.check_here()
        other = self.node.services.get(self.name)
        if other is not None and not other.offer.hops:      # an import gives way
            raise StateError(f"this node serves {self.name!r} already",
                             hint="one handler serves a name at a node; join a second node for "
                                  "another one")
        self.draining = self.node.draining
        if other is not None:
            self.node.retire(other)
        self.node.services[self.name] = self
        try:
            self.node.announce()
        except ValueError as error:
            del self.node.services[self.name]
            raise UsageError(f"this node cannot tell of the service {self.name!r} as well: {error}",
                             hint="serve fewer names, or shorter ones") from None
        self._turn += 1
        turn = self._turn
        try:
            await self.node.barrier()
        except BaseException:       # cancelled: the caller cannot end it
            self._withdraw(turn)
            raise
        return turn

    def _withdraw(self, turn: int) -> None:
        """End what has begun in this turn. Another call may have begun the next since then."""
        if turn != self._turn:
            return
        self.draining = True
        if self.node.services.get(self.name) is self:
            del self.node.services[self.name]
            self.node.announce()
        self.node.retire(self)

    async def astop(self, timeout: float | None = 5.0) -> bool:
        """Take nothing new, wait up to `timeout` seconds for what runs. A handler that makes this
        call does not wait for itself, nor for other handlers that make it; if only such handlers
        run, requests that wait behind them are refused, and go to other members. True: nothing else
        was left. If another call starts the service again meanwhile, it goes on, and a handler
        waits no longer: what comes next might wait for its end."""
        return await self._stop(timeout, itself(self.node.loop.this_task()))

    async def _stop(self, timeout: float | None, caller: Handler | None) -> bool:
        limit_of(timeout)
        if self.node.loop.inherited:
            return True
        turn = self._turn
        self.draining = True
        if self.node.services.get(self.name) is self:
            self.node.announce()
        with stopping(caller):
            try:
                await self.node.until(lambda: (self.node.closed or self._idle(caller)
                                               or caller is not None and turn != self._turn),
                                      timeout)
                return self._idle(caller)
            finally:
                self._withdraw(turn)

    def _idle(self, caller: Handler | None) -> bool:
        """Whether nothing runs but handlers that make such a call themselves, if the caller is a
        handler: two of them would wait for each other, and what waits behind them for all."""
        if caller is None:
            return not self.busy
        those = sum(one.stops > 0 and one.service is self for one in self.node.loop.handlers)
        running = self.requests.running + self.broadcasts.running + len(self.tunnels)
        if self.draining and self.busy > running == those:
            self._hand_back()
        return self.busy <= those

    def _hand_back(self) -> None:
        """Run nothing of what waits."""
        for job in self.requests.dismiss():
            self._refuse(job, frames.DRAINING)
        for heard in self.broadcasts.dismiss():
            if heard._survey is None:
                self.node.links.drop("unheard")
            self._answer(heard, None)

    async def __aenter__(self) -> Self:
        return await self.astart()

    async def __aexit__(self, *exc: object) -> None:
        await self.astop()

    def start(self) -> Self:
        """astart(), blocking."""
        self.node.loop.call(self._begin, undo=self._withdraw)
        return self

    def stop(self, timeout: float | None = 5.0) -> bool:
        """astop(), blocking."""
        done: bool = self.node.loop.end(self._stop, timeout, itself(), otherwise=True)
        return done

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()
