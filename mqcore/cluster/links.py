"""The links of a node: one Router socket that listens and connects, and a sealed session each.

Every connection, and every reconnection, has a routing id of its own, so a message can never reach
another session than the one that it was sealed for. Router sockets with `probe` send an empty
message first: this is how the connecting side learns the routing id of the connection that it made.
The connecting side begins the handshake.

Two nodes may end up with two links. Both sides prefer the one that the node with the smaller id
made. The side that made the other one closes it, once both have said `Spare` there and everything
that was begun over it is finished.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from mqcore.api.patterns import Router
from mqcore.api.wakers import Taker
from mqcore.binding.sleep import sleep
from mqcore.cluster import frames
from mqcore.cluster.checks import said_by
from mqcore.cluster.directory import Member
from mqcore.cluster.drain import part
from mqcore.cluster.errors import ClusterError, KeyRejected, MalformedFrame, NoiseError
from mqcore.cluster.key import node_id
from mqcore.cluster.link import Dial, Link
from mqcore.cluster.pings import Pings
from mqcore.cluster.rejections import host_of
from mqcore.errors import Error, RemoteRefused, SocketClosed

HALF_OPEN = 1024        # connections that have not finished their handshake
DIALS = 256             # members' addresses that are tried at a time
MANY = 16               # links of one member, besides a new one
PATIENCE = 5.0          # seconds for the handshake
SPARE = 1.0             # seconds
FAREWELL = 0.5          # seconds that a connection outlives its session, for a refusal to arrive
FORGET = 5.0            # seconds until it is forgotten, whether or not the socket has said so
# what a newer process of the member, or the same one over another link, has said anew since
ANEW = (frames.Interest, frames.Peers, frames.Gossip, frames.Exchange, frames.Open, frames.Resume)
AGAIN = 0.1             # seconds until it waits for messages again, after an error of the system
BACKLOG = 1 << 16       # events of the socket that wait while the loop is busy

_log = logging.getLogger("mqcore.cluster")


class Links(Pings):
    def __init__(self, node: Any, listen: tuple[str, ...]) -> None:
        super().__init__(node)
        self.socket = Router(probe=True, mandatory=True, linger=0.2, heartbeat=1.0,
                             heartbeat_timeout=3.0, reconnect=0.05, reconnect_max=1.0,
                             max_message_size=1 << 17)
        self.by_peer: dict[int, Link] = {}
        # connections that have sent nothing, since when, and to where
        self.silent: dict[int, tuple[float, str]] = {}
        self.dials: dict[str, Dial] = {}
        self.dropped: dict[str, int] = {}
        self._taker: Taker | None = None        # on asyncio
        self.unwritten = 0          # see not_written(), when the socket was closed
        self.broke_off = 0          # links that owed an answer, tunnels that were lost
        self._dialing = 0           # members' addresses that have not answered, about
        try:
            self.urls = tuple(self.socket.bind(url).url for url in listen)
        except BaseException:
            self.socket.close(linger=0)
            raise
        self.events = self.socket.events(backlog=BACKLOG)

    def drop(self, reason: str, count: int = 1) -> None:
        if count:
            self.dropped[reason] = self.dropped.get(reason, 0) + count

    def of(self, member: Member) -> list[Link]:
        """The member's links, those included over which something is still taken."""
        return [link for link in self.by_rid.values() if link.member is member]

    # -- connecting --------------------------------------------------------------------------------

    def dial(self, url: str, seed: bool = False, of_member: bool = False) -> None:
        """Connect to a node, and again whenever that breaks. of_member: as long as a member has
        this address, unless it is a seed's, too. Raises AddressError."""
        if url in self.dials:
            self.dials[url].seed |= seed
            return
        if url in self.urls or self.socket.closed:
            return
        self.dials[url] = Dial(url, self.socket.connect(url), seed, of_member)

    def reach(self, member: Member) -> None:
        """Connect to a member. An event tells once why its address cannot be used: any member may
        pass on a record with any text for an address."""
        if self._dialing >= DIALS:      # later: each takes a descriptor, and may be a lie
            return
        try:
            self.check(member.url)      # a member is at one address, and not in a file of ours
            self._dialing += member.url not in self.dials
            self.dial(member.url, of_member=True)
        except Error as error:
            if member.trouble != (trouble := described(error)):
                member.trouble = trouble
                self.node.directory.event("trouble", member, trouble)

    def check(self, url: str | None) -> None:
        """Raises what reach() meets at other nodes with this address."""
        if url is not None:
            self.socket._links.check_link(url, {})

    def refused(self, url: str) -> bool:
        """Whether nothing listened at that address when it was last tried."""
        dial = self.dials.get(url)
        return dial is not None and isinstance(dial.endpoint.error, RemoteRefused)

    def hang_up(self, dial: Dial) -> None:
        self.dials.pop(dial.url, None)
        dial.done = True
        links = self.socket._links
        links.hub.call_soon(links.leave, dial.endpoint)     # waits for nothing

    # -- two tasks ---------------------------------------------------------------------------------

    def receive(self) -> None:
        """Begin to take messages, as long as the socket is open."""
        loop = self.node.loop
        if loop.loop is None:
            loop.spawn(self._receive)
        else:
            self._taker = Taker(self.socket, self._message)
            self._taker.begin()

    async def _receive(self) -> None:
        while True:
            try:
                self._message(await self.socket.arecv_msg())
            except SocketClosed:
                return
            except OSError:     # no descriptor is left to wait with
                await sleep(AGAIN)

    def _message(self, message: Any) -> None:
        link = self.by_rid.get(message.routing_id)
        if link is None:
            link = self._new(message.routing_id, message.peer)
            if link is None:
                return
        data = bytes(message.parts[-1])
        if not data:
            return
        if not link.alive:
            self.drop("dead_link")
            return
        try:
            frame = link.session.receive(data)
            if link.answers:
                link.answers.go_on()
            if frame is None:
                if not link.shaken and link.session.ready:
                    link.shaken = True
                    self._shaken(link)
            elif not link.greeted:
                self._first(link, frame)
            elif link.member is not None:   # else a link to this node itself, which is being closed
                handler = self.node.handlers.get(type(frame))
                if handler is not None and not self._is_old(link, frame):
                    handler(link, frame)
        except KeyRejected as error:
            self._rejected(link, error)
        except (NoiseError, MalformedFrame) as error:
            self.drop("unreadable")
            self._end(link, str(error.text))
        except Exception as error:      # one link ends, not the receiving of all
            _log.exception("a frame could not be handled; its link is closed")
            self.drop("failed")
            self._end(link, f"a frame could not be handled: {error!r}")
        if link.broken:
            self.ask(link)

    async def watch(self) -> None:
        """Follow broken connections. Runs while the socket is open."""
        async for event in self.events:
            name = event.kind
            if name == "Connected" and event.peer is not None:
                if event.peer.id not in self.by_peer:
                    self.silent[event.peer.id] = time.monotonic(), event.endpoint
            elif name == "Disconnected" and event.peer is not None:
                self.silent.pop(event.peer.id, None)
                link = self.by_peer.get(event.peer.id)
                if link is not None:
                    self.departed(link, event.reason)
            elif name in ("Retrying", "HandshakeFailed"):
                dial = self.dials.get(event.endpoint)
                if dial is not None:
                    dial.error = event.reason

    def _new(self, rid: bytes, peer: Any) -> Link | None:
        self.silent.pop(peer.id, None)
        dial = next((one for one in self.dials.values() if one.endpoint.url == peer.endpoint
                     and one.endpoint.kind == "connect"), None)
        if peer.endpoint not in self.urls and dial is None:
            return None         # a connection that is being closed
        if dial is None and len(self.by_rid) > HALF_OPEN \
                and sum(not link.greeted for link in self.by_rid.values()) > HALF_OPEN:
            self.drop("half_open")
            self.socket._links.end_peer(peer.id)
            return None
        link = self.by_rid[rid] = self.by_peer[peer.id] = Link(self, rid, peer.id, dial)
        link.host = host_of(peer)
        if dial is not None:
            dial.link, dial.error = link, ""
            link.session.start()
        return link

    def _rejected(self, link: Link, error: KeyRejected) -> None:
        self.drop("key_rejected")
        if link.dial is None:
            reason = "a node that connected does not hold this cluster's key"
            self.node.rejections.connected(link.host, reason, time.monotonic())
            self._end(link, reason)
            return
        link.dial.error = reason = f"{link.dial.url} does not hold this cluster's key"
        link.dial.endpoint.close()      # a key does not change by itself
        link.dial.done = True
        self.node.rejections.add(link.dial.url, reason)
        self._end(link, reason)

    def _shaken(self, link: Link) -> None:
        remote = link.session.remote
        assert remote is not None
        if node_id(remote) in self.node.key.banned:
            link.send(frames.Refuse("banned"))
            self.drop("banned")
            self._end(link, "that node is banned")
            return
        link.send(frames.Hello(self.node.directory.me.record, self.node.topics.epoch))

    def _first(self, link: Link, frame: frames.Frame) -> None:
        if isinstance(frame, frames.Refuse):
            self._refused(link, frame)
        elif isinstance(frame, frames.Hello):
            link.epoch = frame.epoch
            self._hello(link, frame.record)
        else:
            raise MalformedFrame("a peer's first frame is no Hello")

    def _refused(self, link: Link, frame: frames.Refuse) -> None:
        where = link.dial.url if link.dial else "a node that connected"
        reason = f"{where} refuses this node: {frame.why!a}"
        self.drop("refused")
        if link.dial is None:
            self.node.rejections.connected(link.host, reason, time.monotonic())
        else:
            link.dial.error, link.dial.done = reason, True
            link.dial.endpoint.close()
            self.node.rejections.add(where, reason, frame.why)
        self._end(link, reason)

    def _hello(self, link: Link, record: frames.Record) -> None:
        remote = link.session.remote
        if remote is None or record.id != node_id(remote):
            raise MalformedFrame("a peer's Hello has another node's id")
        link.greeted = True
        if link.dial is not None:
            self.node.rejections.over(link.dial.url, "")
        directory = self.node.directory
        if record.id == directory.me.record.id:         # an address of our own
            if record.url != directory.me.url:
                directory.event("trouble", None, "another node has this node's identity: give each "
                                "a file of its own", url=record.url)
            if link.dial is not None:
                self.hang_up(link.dial)
            return
        member = directory.heard(record, itself=True)
        if member is None:
            self._end(link, "this node knows too many members")
            return
        others = self.of(member)
        if sum(one.usable for one in others) > MANY:
            self.drop("many_links")
            self._end(link, f"the member has {MANY} other links")
            return
        for one in others:
            one.doubled = link.doubled = True
        link.member, link.incarnation = member, record.incarnation
        other = member.link
        if other is None or not other.usable or self._better(link, other):
            self._use(member, link)
        if record.url in self.node.rejections:
            self._ask_again(record.url)
        self.node.greeted(link)

    def _ask_again(self, url: str) -> None:
        """A member says that it is where a node was rejected. Has that one got the key?"""
        dial = self.dials.get(url)
        if dial is not None and dial.done:
            self.hang_up(dial)
            self.dial(url, dial.seed, dial.of_member)

    def _use(self, member: Member, link: Link) -> None:
        """The member is reached by this link from now on."""
        if member.epoch != link.epoch:      # a process that has said nothing yet
            member.epoch, member.heard = link.epoch, 0
        self.node.directory.up(member, link)

    def _better(self, link: Link, other: Link) -> bool:
        """Whether both sides prefer the new link: it goes to a newer process, or was made by the
        node with the smaller id."""
        assert link.member is not None
        if link.epoch != other.epoch:
            return link.incarnation > other.incarnation
        smaller = self.node.directory.me.record.id < link.member.record.id
        return (link.dial is not None) is smaller and (other.dial is not None) is not smaller

    def _is_old(self, link: Link, frame: frames.Frame) -> bool:
        """Whether the frame says what has been said anew since: a newer process of the member is
        there, or this connection is over and the member has another link. What was published or
        answered over it is still news. A process that leaves does not come back."""
        leaves = isinstance(frame, frames.Leave)
        if not leaves and not isinstance(frame, ANEW):
            return False
        member = link.member
        assert member is not None
        if self.node.directory.members.get(member.record.id) is not member \
                or link.epoch != member.epoch:
            return True
        if leaves or not link.doubled or not self._is_over(link):
            return False
        return any(one.usable and one is not link for one in self.of(member))

    def _is_over(self, link: Link) -> bool:
        """Whether the connection is, though something of it may be unread."""
        links = self.socket._links
        return bool(link.broken) or link.peer not in links.peers or links.is_unread(link.peer)

    def spare(self, link: Link, frame: frames.Spare) -> None:
        if link.dial is not None:       # the answer
            link.spare = True
        elif link.member is not None and link.member.link is not link:
            link.send(frames.Spare())   # else not yet: ask again
            self.ask_news(link)         # before the other side ends it

    # -- ends --------------------------------------------------------------------------------------

    def _end(self, link: Link, reason: str) -> None:
        """The session is over, and its connection soon: the other side must learn of it, else it
        would go on with a link that no node reads. What still comes is dropped."""
        link.alive = False
        if link.dial is not None and not link.dial.done:
            link.dial.error = reason
        self.lost(link, reason, forget=False)

    def ask(self, link: Link) -> None:
        """Look soon whether all that had arrived over a broken link has been taken: once for all
        messages that are taken until then."""
        if not link.asking:
            link.asking = True
            self.node.loop.soon(self.departed, link)

    def departed(self, link: Link, reason: str = "") -> None:
        """The connection is over, or ends. So is the link, once what had arrived has been taken."""
        link.asking = False
        link.broken = link.broken or reason
        links = self.socket._links
        if link.peer in links.peers or links.is_unread(link.peer):
            if not link.parting:
                link.give_up()
            self.unused(link, link.broken)
        else:
            self.lost(link, link.broken)

    def buried(self, member: Member, what: str) -> None:
        """The member has left, and ends its connections itself, or has failed, and may only have
        been busy: it gets what waits for it. What it had sent is still taken."""
        links = self.of(member)
        for link in links:      # all of them first: none is a spare one of another
            if what == "failed" and link.usable:
                link.hurry()
                link.parting = True
            link.broken = link.broken or what
            link.left = link.left or what == "left"
        for link in links:
            if link.parting:
                self.node.loop.spawn(part, self.node, link)
            elif what == "failed":
                self.socket._links.end_peer(link.peer, leave=True)
            elif link.ended is None:
                link.ended = time.monotonic()
            self.departed(link)
            if what == "failed" and link.member is not None:    # it may be hung: it will not answer
                self.node.unlinked(link, member, what)

    def unused(self, link: Link, reason: str) -> None:
        """Nothing can be sent over the link: the member is reached by another one, or not at all.
        That one repeats what this one may have lost."""
        member = link.member
        if member is None or member.link is not link:
            return
        usable = [one for one in self.of(member) if one.usable]
        spare = next((one for one in usable if one.epoch == member.epoch), None)
        if spare is None:
            self.node.directory.down(member, reason)
            for one in usable:      # of what another process has said over it something was dropped
                self._end(one, "another process of the member was there")
            return
        spare.spare = False
        self.node.directory.up(member, spare)
        self.node.retell(spare)

    def lost(self, link: Link, reason: str, forget: bool = True) -> None:
        link.alive = False
        link.give_up()
        self.node.topics.turns.over(link)
        if forget:
            self.by_rid.pop(link.rid, None)
            self.by_peer.pop(link.peer, None)
        elif link.ended is None:
            link.ended = time.monotonic()
        if link.dial is not None and link.dial.link is link:
            link.dial.link = None
        member = link.member
        if member is None:
            return
        self.broke_off += link.owes
        if not link.left:
            self.drop("unconfirmed", link.session.window.forget())
        self.unused(link, reason)
        link.member = None
        self.node.unlinked(link, member, reason)

    def tick(self, now: float) -> None:
        """Each second or so: connections that say nothing, those whose session is over, handshakes
        that take too long, spare links."""
        for peer, (since, endpoint) in list(self.silent.items()):
            if now - since > PATIENCE:
                del self.silent[peer]
                self.drop("silent")
                if endpoint in self.dials:
                    self.dials[endpoint].error = "it says nothing: this is no node of a cluster"
                self.socket._links.end_peer(peer)
        self._tick_dials()
        for link in list(self.by_rid.values()):
            if link.ended is not None and now - link.ended > FAREWELL:
                self.socket._links.end_peer(link.peer, leave=link.alive)
                if now - link.ended > FORGET and not link.broken:
                    self.lost(link, "the connection has ended")
                elif now - link.ended > FORGET and link.member is not None:     # it is hung
                    self.node.unlinked(link, link.member, link.broken)
            if link.broken:
                self.departed(link)
            elif not link.greeted and link.alive and now - link.since > PATIENCE:
                self.drop("handshake_timeout")
                self._end(link, "the handshake took too long")
            elif (link.dial is not None and link.member is not None and now - link.since > SPARE
                    and link.member.link is not link):
                if not link.spare:
                    link.send(frames.Spare())
                elif link.idle:
                    self.hang_up(link.dial)
            if link.usable and link.member is not None:
                self.ask_news(link)

    def _tick_dials(self) -> None:
        """Give up the former addresses of members and seeds."""
        urls = {member.url for member in self.node.directory.members.values()}
        for dial in list(self.dials.values()):
            if dial.of_member and not dial.seed and dial.link is None and dial.url not in urls:
                self.hang_up(dial)
        for url in self.node.rejections.keys() - self.dials.keys():
            self.node.rejections.over(url, "it is tried no more")
        self._dialing = sum(dial.of_member and dial.link is None for dial in self.dials.values())

    async def aclose(self, linger: float = 0.2) -> None:
        if self._taker is not None:
            self._taker.end()
        self.events.close()
        self.unwritten = self.not_written()
        report = await self.socket.aclose(linger)
        self.unwritten = max(self.unwritten, report.undelivered)

    def not_written(self) -> int:
        """Messages that the socket has taken and will not write."""
        return self.unwritten if self.socket.closed else \
            sum(self.socket.stats().total.dropped_out.values())


def described(error: BaseException) -> str:
    return error.text if isinstance(error, (Error, ClusterError)) else said_by(error)
