"""All tunnels of a node: how they are opened, and how they go on when a link breaks."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from mqcore import trace
from mqcore.cluster import frames
from mqcore.cluster.checks import said_by
from mqcore.cluster.errors import MemberLost, RequestTimeout
from mqcore.cluster.flow import WINDOW
from mqcore.cluster.tunnel import Tunnel
from mqcore.trace.flow import step

if TYPE_CHECKING:
    from mqcore.cluster.directory import Member
    from mqcore.cluster.link import Way
    from mqcore.cluster.node import Core

    Name = tuple[bytes, int, bool]

RESUME = 10.0           # seconds that a tunnel waits for another link
RESUME_MOST = 300.0
UNFINISHED = 1 << 30    # bytes of messages of one member, of which the end has not come
SHARED = 256 << 20      # bytes that the windows of a node's tunnels have together, while each has
WINDOW_LEAST = 64 << 10     # at least this
LEFT = 8                # the next one has up to an eighth of what is left of SHARED
THREADS = 256           # tunnels whose plain (not async) handlers run at a node
FINISHED = 4096         # tunnels that are over and whose other side may not know it yet


class Tunnels:
    """All tunnels of a node. Links route the frames of those that they carry; here are all of
    them, by member, number, and whether this node opened it."""

    def __init__(self, node: Core) -> None:
        self.node = node
        self.open: dict[Name, Tunnel] = {}
        self.away: dict[bytes, set[Tunnel]] = {}    # by member: those without a link
        self.finished: dict[Name, str] = {}         # why those ended that were over last, in order
        self.held: dict[bytes, int] = {}            # by member: bytes of unfinished messages
        self.number = 0
        self.threads = 0            # that plain handlers of tunnels have
        self.opened = self.accepted = self.refused = self.stray = self.resumed = 0

    def window(self) -> int:
        """Bytes that the next tunnel may hold each way: less where there are many, which may all
        be full."""
        left = SHARED - sum(tunnel._flow.window for tunnel in self.open.values())
        return max(WINDOW_LEAST, min(WINDOW, left // LEFT))

    def forget(self, tunnel: Tunnel) -> None:
        name = _name_of(tunnel)
        if self.open.get(name) is tunnel:
            del self.open[name]
        self._back(tunnel)
        partial, tunnel._flow.partial = tunnel._flow.partial, bytearray()
        self.unfinished(tunnel, -len(partial))
        if tunnel._link is not None:
            tunnel._link.tunnels.pop((tunnel._stream, tunnel._opener), None)
        if tunnel._ended is not None:
            self.finished[name] = said_by(tunnel._ended.reason)[:frames.NAME]
            while len(self.finished) > FINISHED:
                del self.finished[next(iter(self.finished))]

    def unfinished(self, tunnel: Tunnel, size: int) -> None:
        """The unfinished message of this tunnel has become so much longer, or shorter. All of one
        member's have a bound, however many tunnels it opens."""
        if not size:
            return
        member = tunnel.peer.record.id
        held = self.held.get(member, 0) + size
        if held:
            self.held[member] = held
        else:
            del self.held[member]
        if held > UNFINISHED:
            tunnel.reset("overloaded", f"unfinished messages of one member have more than "
                                       f"{UNFINISHED} bytes")

    def _add(self, tunnel: Tunnel) -> None:
        before = self.open.get(_name_of(tunnel))
        if before is not None:
            before._lost("the other node has been restarted")
        self.open[_name_of(tunnel)] = tunnel
        assert tunnel._link is not None
        tunnel._link.tunnels[tunnel._stream, tunnel._opener] = tunnel

    async def aopen(self, service: str, timeout: float | None, key: bytes | None,
                    only: Callable[[Member], bool] | None = None,
                    resume: float = RESUME) -> Tunnel:
        """Raises NoSuchService, Overloaded, MemberLost, RequestTimeout."""
        node = self.node
        limit = None if timeout is None else time.monotonic() + timeout
        tried: list[Member] = []
        lost: MemberLost | None = None
        while True:
            now = time.monotonic()
            members = node.directory.offering(service)
            if only is not None:
                members = tuple(filter(only, members))
            member = node.balancer.choose(members, service, now, tried, key)
            if member is None:
                raise lost or node.requests.nobody(service, bool(members), tried)
            if not member.link.usable:
                node.links.unused(member.link, "the connection broke")
                continue
            tried.append(member)
            self.number += 1
            tunnel = Tunnel(node, member.link, self.number, True, service, resume)
            self._add(tunnel)
            ttl = 0 if limit is None else max(1, int((limit - now) * 1e6))
            tunnel._send(frames.Open(self.number, True, service, ttl, tunnel._flow.window,
                                     int(resume * 1e6), trace.to_text(trace.current())))
            score = member.score(service)
            score.sent(now)
            try:
                while not tunnel._open and not tunnel._ended:
                    await tunnel._wait(tunnel._writers, limit, RequestTimeout(
                        f"no member of {service!r} accepted the tunnel in time", service=service,
                        tried=len(tried)))
            except BaseException:
                tunnel.reset("cancelled", "the opener does not wait any longer")
                raise
            finally:
                score.released()    # how long a tunnel lasts says nothing about the member
            if tunnel._open:
                self.opened += 1
                return tunnel
            self.refused += 1
            if tunnel._ended is not None and tunnel._ended.reason == "lost":
                lost = MemberLost(f"the link to a member of {service!r} broke before it had "
                                  "accepted the tunnel", service=service, member=member.id)

    def accept(self, link: Way, frame: frames.Open) -> None:
        service = self.node.services.get(frame.service)
        why = "no such service here" if service is None else service.may_open()
        if why or (frame.stream, False) in link.tunnels:
            link.control(frames.Reset(frame.stream, False, "refused", why))
            self.refused += 1
            return
        tunnel = Tunnel(self.node, link, frame.stream, False, frame.service,
                        min(frame.resume / 1e6, RESUME_MOST))
        tunnel._flow.granted(frame.window)
        tunnel._open = True
        tunnel.trace_context = trace.from_text(frame.trace)
        self._add(tunnel)
        self.accepted += 1
        link.control(frames.Accept(frame.stream, False, tunnel._flow.window))
        assert service is not None
        self.node.loop.handle(service.serve_tunnel, tunnel)

    def frame(self, link: Way, frame: frames.OfStream) -> None:
        tunnel = link.tunnels.get((frame.stream, not frame.opener))
        if tunnel is None:
            assert link.member is not None
            name = (link.member.record.id, frame.stream, not frame.opener)
            away = self.open.get(name)
            if isinstance(frame, frames.Reset) and away is not None and away._link is None:
                away._took(frame)       # the answer to Resume, see linked()
                return
            self.stray += 1
            if isinstance(frame, frames.End) and self.finished.get(name) == "eof":
                # both ends were here when the link broke, and the other side does not know
                link.control(frames.Seen(frame.stream, not frame.opener))
        else:
            tunnel._took(frame)

    # -- links break -------------------------------------------------------------------------------

    def unlinked(self, link: Way, member: Member, reason: str) -> None:
        """The link is gone. Tunnels wait for another one to the same member, if there is one."""
        known = not self.node.closed and member.record.id in self.node.directory.members
        for tunnel in list(link.tunnels.values()):
            if not (known and tunnel._open and tunnel.resume):
                tunnel._lost(reason, link.left)
                continue
            tunnel._detach()
            self.away.setdefault(member.record.id, set()).add(tunnel)
            if tunnel._disarm is None:
                tunnel._disarm = self.node.loop.later(tunnel.resume, partial(
                    tunnel._lost, f"{reason}, and no other came within {tunnel.resume:g} s"))
        there = self.node.directory.members.get(member.record.id)   # perhaps as another Member
        if there is not None and there.link is not None:
            self.linked(there)

    def linked(self, member: Member) -> None:
        """There is a link to the member: go on with the tunnels that this node has opened. The
        member goes on with the others, if they are not over there: the attempt 0 asks for that."""
        for tunnel in list(self.away.get(member.record.id, ())):
            if tunnel._opener:
                self._back(tunnel)
                tunnel._attempt += 1
                tunnel._attach(member.link)
            else:
                member.link.control(frames.Resume(tunnel._stream, False, 0, 0, 0))

    def _back(self, tunnel: Tunnel) -> None:
        away = self.away.get(tunnel.peer.record.id)
        if away is not None:
            away.discard(tunnel)
            if not away:
                del self.away[tunnel.peer.record.id]

    def resume(self, link: Way, frame: frames.Resume) -> None:
        """The other side goes on with a tunnel over this link."""
        assert link.member is not None
        name = (link.member.record.id, frame.stream, not frame.opener)
        tunnel = self.open.get(name)
        if tunnel is None or not tunnel.resume:
            link.control(frames.Reset(frame.stream, not frame.opener,
                                      self.finished.get(name, "lost"),
                                      "the other side does not know the tunnel any more"))
        elif not frame.attempt and tunnel._opener and (tunnel._attempt or tunnel._link is None):
            pass        # it goes on, or soon will
        elif not tunnel._opener and frame.attempt > tunnel._attempt and tunnel._link is not link:
            tunnel._attempt = tunnel._replayed = frame.attempt
            tunnel._flow.resumed(frame.pieces, frame.returned)
            self._back(tunnel)
            tunnel._attach(link)
            tunnel._replay()
        elif tunnel._opener and tunnel._link is link and \
                tunnel._replayed < frame.attempt == tunnel._attempt:
            tunnel._replayed = frame.attempt
            tunnel._flow.resumed(frame.pieces, frame.returned)
            tunnel._replay()
        else:
            self.stray += 1     # it came late, or once more: one answer to each attempt

    def gone(self, member: Member, left: bool) -> None:
        """The member has left, or failed."""
        for tunnel in list(self.away.get(member.record.id, ())):
            tunnel._lost("the member is gone", left)

    @property
    def sending(self) -> list[Tunnel]:
        """Those that were opened here and have something to send, or have not heard that their end
        has arrived."""
        return [tunnel for tunnel in self.open.values() if tunnel._opener and not tunnel._arrived]

    def close(self) -> None:
        for tunnel in list(self.open.values()):
            tunnel._lost("this node has left")


def _name_of(tunnel: Tunnel) -> Name:
    return tunnel.peer.record.id, tunnel._stream, tunnel._opener


class Opening:
    """`async with net.atunnel(...) as tunnel`, `await net.atunnel(...)`, or with the blocking twin
    `with net.tunnel(...) as tunnel`."""

    def __init__(self, node: Core, service: str, timeout: float | None, key: bytes | None,
                 resume: float) -> None:
        self._node = node
        self._arguments = (service, timeout, key, None, resume)
        self._tunnel: Tunnel | None = None

    async def _open(self) -> Tunnel:
        self._node.check_here()
        with step(f"open tunnel {self._arguments[0]}", "client"):
            self._tunnel = await self._node.tunnels.aopen(*self._arguments)
        return self._tunnel

    def __await__(self) -> Any:
        return self._open().__await__()

    async def __aenter__(self) -> Tunnel:
        return await self._open()

    async def __aexit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._tunnel is not None:
            await self._tunnel.__aexit__(kind, error, trace)

    def __enter__(self) -> Tunnel:
        tunnel: Tunnel = self._node.loop.call(
            self._open, undo=lambda made: self._node.loop.spawn(made.aclose))
        return tunnel

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._tunnel is not None:
            self._tunnel.__exit__(kind, error, trace)
