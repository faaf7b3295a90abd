"""A node: this process's membership in a cluster, with all calls on services.

A node lives in the event loop that it joined in, asyncio or trio, and every piece of its state is
touched on that loop's thread only. Calls that begin with `a` are awaited there. The call of the
same name without it blocks, and is for other threads: with `cluster.join`, which runs a node in a
thread of its own, and in plain (not async) handlers.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable
from typing import Any, Self
from weakref import WeakSet

from mqcore.base.components import COMPONENTS, State
from mqcore.binding.sleep import Nap
from mqcore.cluster import frames, report
from mqcore.cluster.adopt import Adopted
from mqcore.cluster.balance import Balancer, Budget
from mqcore.cluster.calling import forked
from mqcore.cluster.checks import encodes, exact, flag_of, limit_of, path_of, texts_of
from mqcore.cluster.crypto import X25519PrivateKey
from mqcore.cluster.directory import Directory, Event, Events, Member
from mqcore.cluster.drain import abandon, drain, leave
from mqcore.cluster.errors import Ending, NodeClosed, without_files
from mqcore.cluster.identity import Identity
from mqcore.cluster.key import Key, node_id
from mqcore.cluster.link import Home, Link
from mqcore.cluster.links import Links, described
from mqcore.cluster.loops import Loop, NoLoop, loop_here
from mqcore.cluster.pulse import Pulse, reachable, wildcard
from mqcore.cluster.rejections import Rejections
from mqcore.cluster.requests import Requests
from mqcore.cluster.seeds import Seeds
from mqcore.cluster.services import Service
from mqcore.cluster.surveys import Surveys
from mqcore.cluster.topics import Topics
from mqcore.cluster.tunnels import Tunnels
from mqcore.errors import StateError, UsageError

TICK = 0.5              # seconds
DIAL_LATER = 1.0        # seconds before the node with the larger id connects to another member
LOST = 6.0              # seconds without a link until a member is gone that gossip does not know
TOLD = 1.0              # seconds that news may take to reach all members
SETTLE = 2.0            # seconds that ajoin() waits for its seeds
PROTOCOL = "1"
LOG = logging.getLogger("mqcore.cluster")


class Core:
    """All of a node but its calls on services, see calls.py."""

    def __init__(self, key: Key, *, listen: str | Iterable[str] = "tcp://127.0.0.1:0",
                 seeds: Iterable[str] = (), zone: str = "", version: str = "",
                 url: str | None = None, udp: bool = True,
                 identity: str | os.PathLike[str] | None = None) -> None:
        if not isinstance(key, Key):
            raise UsageError(f"a cluster is joined with a Key, not {type(key).__name__}",
                             hint='key = cluster.Key.load("prod.key")')
        self.key = key
        self.seeds = texts_of(seeds, "seeds")
        self._listen = texts_of(listen, "listen")
        if not self._listen:
            raise UsageError("a node must listen somewhere", hint='listen="tcp://127.0.0.1:0"')
        for what, text, most in (("zone", zone, 128), ("version", version, frames.NAME),
                                 ("url", url or "", 128)):
            if not isinstance(text, str) or len(text) > most or not encodes(text):
                raise UsageError(f"{what}= is a text of up to {most} characters")
        self._identity_path = path_of(identity, "identity")
        self._identity: Identity | None = None
        self.static: X25519PrivateKey
        self.zone, self.version, self._udp = exact(zone), exact(version), flag_of(udp, "udp")
        self._url = url and exact(url)
        self.services: dict[str, Service] = {}
        self.stopped: set[Service] = set()      # of those, what has not ended its requests
        self.counts: dict[str, int] = {}
        self.rejections = Rejections(lambda *event, **at: self.directory.event(*event, **at))
        self.draining = self.begun = self.closed = self.ended = False
        self.ready = False          # it has all that calls need
        self.drained = False        # adrain() has closed it, and all was finished
        self.pid = os.getpid()
        self.loop: Loop = NoLoop()
        self.links: Links
        self._streams: WeakSet[Events] = WeakSet()      # a reader may forget one
        self.adopted: set[Adopted] = set()
        self.gateways: set[Any] = set()
        self._naps: list[Nap] = []

    # -- joining and leaving -----------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self.begun:
            raise StateError("this node has joined already", hint="make another one")
        self.loop = loop_here(self._trouble, self.aclose)
        self.begun = True
        await self.loop.whole(self._join)
        return self

    async def _join(self) -> None:
        await self.loop.start()
        try:
            self._check_closed()
            await self._begin()
            self._check_closed()
        except BaseException as error:
            if not self.closed:         # else another task ends it
                await leave(self)
            if (said := without_files(error)) is not error:
                raise said from error
            raise
        COMPONENTS.add(self)

    async def _begin(self) -> None:
        incarnation = 0
        if self._identity_path is None:
            self.static = X25519PrivateKey.generate()
        else:
            self._identity = Identity.take(self._identity_path)
            self.static = self._identity.static
            # newer than what others remember of this node; if this clock went back, they tell it
            # what they believe, and it goes beyond that
            incarnation = time.time_ns() // 1_000_000
        self.sources = Seeds(self, self.seeds)
        self.links = Links(self, self._listen)
        url = self._url or self.links.urls[0]
        if wildcard(url):       # the name of a seed may have to be looked up
            url = await self.loop.in_thread(lambda: reachable(url, self.sources.targets()))
            self._check_closed()
        self.links.check(url)
        public = self.static.public_key().public_bytes_raw()
        record = frames.Record(node_id(public), url, incarnation, self.zone, {}, self.version)
        self.pulse = Pulse(self, record, self._udp)
        self.directory = Directory(record, self._tell, lambda member: self.requests.offered(member))
        self.directory.me.link = Home(self)
        self.balancer = Balancer(self.zone)
        self.budget = Budget()
        self.requests, self.surveys = Requests(self), Surveys(self)
        self.topics, self.tunnels = Topics(self), Tunnels(self)
        self.handlers = self._handlers()
        self.ready = True
        self.links.receive()
        self.loop.spawn(self.links.watch)
        self.loop.spawn(self._ticks)
        self.pulse.start()
        self.sources.start()
        await self.until(lambda: self.closed or self._settled(), SETTLE)
        rejected = next((error for error in self.rejections.values()), None)
        if rejected is not None and not self.directory.members:
            raise rejected

    def _settled(self) -> bool:
        """Whether each seed has answered, or cannot at present, and all members are linked."""
        return self.sources.settled() and all(
            member.link is not None and member.heard
            for member in self.directory.members.values())

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Notify the other nodes and leave at once. adrain() finishes what runs first. If this is
        cancelled, the node has left all the same. Idempotent: when it returns, the node has left,
        whichever call has begun that."""
        if self.ended or not self.begun or self.loop.over:
            abandon(self)
            return
        self.loop.check()
        await self.loop.whole(self._leave)

    async def _leave(self) -> None:
        try:
            for gateway in list(self.gateways):
                await gateway.aclose()
        finally:
            if not self.closed:         # by another task
                await leave(self)
        await self.until(lambda: self.ended, None)      # asyncio.run() would cancel that task

    async def adrain(self, timeout: float | None = 5.0) -> bool:
        """Take no new requests, broadcasts and tunnels, wait for those that run, and for requests
        and tunnels of this node itself that are under way, then leave.

        Returns True if everything was finished, and has arrived, within `timeout` seconds. False
        also if a link broke before the answers and publications over it have certainly arrived, or
        a tunnel before what this node sent over it, unless its member has left, or if a member that
        is linked has not learnt of it: its requests may be lost. If another call closes the node
        first: its result, False for aclose().

        Raises StateError in a handler of this node, which would wait for itself: begin it in a task
        of its own there, and return.

        None: as long as that takes, also if a handler, a request or a tunnel has no end. A member
        that sends nothing for 2 s, or answers nothing for 60 s, is not waited for: False."""
        self.check_here()
        limit_of(timeout)
        return await drain(self, timeout)

    def check(self) -> None:
        if self.pid != os.getpid():
            raise forked()
        self._check_closed()
        if not self.ready:
            raise StateError("this node has not joined yet", hint="async with cluster.ajoin(...)")

    def check_ready(self) -> None:
        """Raises what check() does, except after the node has left: what it knew can be read."""
        if not self.ready:
            self.check()

    def check_here(self) -> None:
        """check(), in a call that is awaited: it must be in the node's own event loop."""
        self.check()
        self.loop.check()

    def _check_closed(self) -> None:
        if self.closed:
            raise NodeClosed("this node has left the cluster")

    async def until(self, condition: Callable[[], Any], timeout: float | None) -> bool:
        """Wait until something that changes with members or jobs is true."""
        limit = None if timeout is None else time.monotonic() + timeout
        while not condition():
            if limit is not None and time.monotonic() >= limit:
                return False
            nap = Nap()
            self._naps.append(nap)
            try:
                # jobs that end do not wake: look now and then
                await nap.wait(min(limit or 1e18, time.monotonic() + 0.02))
            finally:
                self._naps.remove(nap)
        return True

    # -- what changes ------------------------------------------------------------------------------

    def retire(self, service: Service) -> None:
        """It is offered no longer. What it runs goes on."""
        self.stopped = {one for one in {*self.stopped, service} if one.busy}

    def announce(self) -> None:
        """This node's services have changed: tell everybody."""
        offers = {}
        for name, service in self.services.items():
            drains = self.draining or service.draining
            offers[name] = frames.replace(service.offer, weight=0.0) if drains else service.offer
        me = self.directory.me
        record = frames.replace(me.record, services=offers)
        self.pulse.announce(record)
        me.record = frames.replace(record, incarnation=self.pulse.incarnation)
        self.directory.changed()
        for member in self.directory.members.values():
            if member.link is not None:
                member.link.control(frames.Peers([me.record]))      # even if it is full
        self._wake()

    async def barrier(self, most: float | None = None) -> bool:
        """Wait until all linked members know what this node offers and subscribes to, even if a
        link is full. False: one does not within TOLD seconds, or `most` if that is less. A link
        that breaks is not waited for: the next one to its member repeats what this node offers and
        subscribes to."""
        return await self.links.taken(
            [member.link for member in self.directory.members.values() if member.link],
            TOLD if most is None else min(TOLD, most))

    def _ping(self, link: Link, frame: frames.Ping) -> None:
        link.control(frames.Pong(frame.id))     # even if it is full: the peer asks once

    def _pong(self, link: Link, frame: frames.Pong) -> None:
        assert link.member is not None
        self.pulse.answered(link.member.record.id)
        if self.links.answered(link, frame.id):
            self._wake()

    def _wake(self) -> None:
        for nap in self._naps:
            nap.wake()

    def _tell(self, event: Event) -> None:
        for stream in list(self._streams):
            stream.put(event)
        self._wake()

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    def _trouble(self, error: BaseException) -> None:
        if isinstance(error, Ending):
            return
        self.count("trouble")
        LOG.error("a handler raised %s", type(error).__name__, exc_info=error)
        if hasattr(self, "directory"):
            self.directory.event("trouble", None, f"{type(error).__name__}: {described(error)}")

    # -- frames and links --------------------------------------------------------------------------

    def _handlers(self) -> dict[type[frames.Frame], Callable[[Any, Any], None]]:
        tunnels: Any = dict.fromkeys((frames.Accept, frames.Data, frames.Credit, frames.End,
                                      frames.Reset, frames.Seen), self.tunnels.frame)
        return {
            frames.Hello: lambda link, frame: None,
            frames.Peers: self._peers,
            frames.Leave: self._left,
            frames.Gossip: self.pulse.gossip,
            frames.Exchange: self.pulse.exchange,
            frames.Ping: self._ping,
            frames.Pong: self._pong,
            frames.Spare: self.links.spare,
            frames.Request: self._request,
            frames.Cancel: self._cancel,
            frames.Reply: self.requests.reply,
            frames.Broadcast: self._broadcast,
            frames.Survey: self._broadcast,
            frames.Answer: self.surveys.answer,
            frames.Interest: self.topics.interest,
            frames.Publish: self.topics.turns.received,
            frames.Open: self.tunnels.accept,
            frames.Resume: self.tunnels.resume,
            **tunnels,
        }

    def greeted(self, link: Link) -> None:
        """A link to another member is ready: each side tells whom it knows."""
        records = [member.record for member in self.directory if member is not link.member]
        for at in range(0, len(records), frames.BATCH):
            link.send(frames.Peers(records[at:at + frames.BATCH]))
        self.pulse.greeted(link)
        if link.member is not None and link.member.link is link:
            self.topics.linked(link)
            self.tunnels.linked(link.member)
        for member in self.directory.members.values():
            if member.link not in (None, link):
                assert link.member is not None
                member.link.send(frames.Peers([link.member.record]))
        self._wake()

    def retell(self, link: Link) -> None:
        """A link that was a spare one is used from now on."""
        member = link.member
        assert member is not None
        if self.directory.members.get(member.record.id) is member and not self.closed:
            link.send(frames.Peers([self.directory.me.record]))
            self.topics.linked(link)

    def _peers(self, link: Link, frame: frames.Peers) -> None:
        for record in frame.records:
            self.heard(record)

    def heard(self, record: frames.Record) -> None:
        """The record of another member came, over a link or by gossip."""
        if record.id in self.key.banned:    # others may not know of the ban
            return
        member = self.directory.heard(record)
        if member is not None and member.link is None:
            self._reach(member)
        self._wake()

    def buried(self, member: bytes, what: str) -> None:
        """The membership protocol has found that a member "left" or "failed"."""
        known = self.directory.members.get(member)
        if known is not None and what == "left" and self.links.of(known):
            # gossip was quicker than what the member has sent over its link before; it may be
            # back by then, with the same identity
            incarnation = known.record.incarnation
            self.loop.later(TOLD, lambda: self._bury(
                known if known.record.incarnation == incarnation else None, what))
        else:
            self._bury(known, what, "no answer to probes" if what == "failed" else "")

    def suspected(self, member: bytes, suspect: bool) -> None:
        known = self.directory.members.get(member)
        if known is not None and suspect:
            self.directory.suspect(known, "no answer to probes")
        elif known is not None:
            self.directory.recovered(known)

    def _reach(self, member: Member) -> None:
        """Connect to a member: at once if our id is the smaller one, so that one of two nodes
        does; the other does if that has not worked after a while."""
        smaller = self.directory.me.record.id < member.record.id
        waited = time.monotonic() - member.unlinked
        if smaller or waited > DIAL_LATER:
            self.links.reach(member)

    def _left(self, link: Link, frame: frames.Leave) -> None:
        self._bury(link.member, "left")

    def _bury(self, member: Member | None, what: str, reason: str = "") -> None:
        if member is None or self.directory.members.get(member.record.id) is not member:
            return
        self.requests.gone(member)
        self.directory.gone(member, what, reason)
        self.topics.gone(member)
        self.tunnels.gone(member, what == "left")
        dial = self.links.dials.get(member.url)
        if dial is not None and not dial.seed:
            self.links.hang_up(dial)
        self.links.buried(member, what)

    def unlinked(self, link: Link, member: Member, reason: str) -> None:
        self.requests.unlinked(link, member, reason)
        serving, link.serving = link.serving, {}
        for job in serving.values():    # the requester is not there: what waits need not run
            job.cancel()
        self.surveys.unlinked(link)
        self.tunnels.unlinked(link, member, reason)
        for ping in [ping for ping in self.links.pings if ping[0] is link]:
            del self.links.pings[ping]
        self.pulse.unlinked(member.record.id)
        there = self.directory.members.get(member.record.id)    # it may be back, as another Member
        if there is not None and there.link is None:
            self._reach(there)
        self._wake()

    async def _ticks(self) -> None:
        from mqcore.binding.sleep import sleep

        while True:
            await sleep(TICK)
            try:
                self._tick(time.monotonic())
            except Exception as error:      # the next one may go better
                self._trouble(error)

    def _tick(self, now: float) -> None:
        self.requests.tick(now)
        self.links.tick(now)
        self.rejections.tick(now)
        self.sources.tick(now)
        for member in list(self.directory.members.values()):
            if member.link is not None:
                continue
            self._reach(member)
            if self.links.of(member):       # what it sent last is being read: that it left, perhaps
                continue
            # once for each link: where something turns connections away, gossip has the say
            if not member.refused and self.links.refused(member.url):
                member.refused = True
                self.pulse.refused(member.record.id)
            if now - member.unlinked > LOST and not self.pulse.believes(member.record.id):
                self._bury(member, "failed", f"no link for {LOST:g} s, and no gossip")

    # -- services ----------------------------------------------------------------------------------

    def _request(self, link: Link, frame: frames.Request) -> None:
        service = self.services.get(frame.service)
        if service is None:
            link.control(frames.Reply(frame.id, frames.NO_SERVICE, 0))
        elif not link.is_cancelled(frame.id):
            service.request(link, frame)

    def _cancel(self, link: Link, frame: frames.Cancel) -> None:
        job = link.serving.pop(frame.id, None)
        if job is not None:
            job.cancel()
        else:
            link.cancel(frame.id)

    def _broadcast(self, link: Link, frame: frames.Broadcast | frames.Survey) -> None:
        survey, ttl = (frame.id, frame.ttl) if isinstance(frame, frames.Survey) else (None, 0)
        service = self.services.get(frame.service)
        if service is not None:
            service.broadcast(link, frame.body, survey, ttl, frame.trace)
        elif survey is not None:
            link.control(frames.Answer(survey, None))

    # -- what it is --------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The address that other nodes can use as a seed."""
        self.check_ready()
        return self.directory.me.url

    @property
    def id(self) -> str:
        """This node's id, 32 hex digits."""
        self.check_ready()
        return self.directory.me.id

    def _mq_components(self) -> list[State]:
        return report.states(self)
