"""One link of a node: a connection to another node, its session, and what is under way over it."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

from mqcore.cluster import frames
from mqcore.cluster.replies import Replies
from mqcore.cluster.session import Session
from mqcore.errors import NoSuchPeer, SendTimeout, SocketClosed

if TYPE_CHECKING:
    from mqcore.cluster.directory import Member
    from mqcore.cluster.links import Links
    from mqcore.cluster.sources import Source

UNSENT = 16 << 20       # bytes that one link may keep while the socket is full
CANCELLED = 1 << 14     # requests to remember that may still come, though they are not wanted


class Link:
    """A connection to another node. `member` is known once it has said Hello."""

    def __init__(self, links: Links, rid: bytes, peer: int, dial: Dial | None) -> None:
        self.links = links
        self.rid = rid
        self.peer = peer            # the socket's number of the connection
        self.dial = dial
        self.host = ""              # where the other side is, as far as is known
        self.since = time.monotonic()
        self.member: Member | None = None
        self.shaken = False         # its handshake is over
        self.greeted = False        # it has said Hello
        self.epoch = 0              # of the process on the other side,
        self.incarnation = 0        # and of the record that it greeted with
        self.alive = True
        self.broken = ""            # why: nothing can be sent, what has arrived is still taken
        self.parting = False        # broken, and what waits for the socket is still given to it
        self.asking = False         # departed() will be called soon
        self.doubled = False        # its member has another link, or has had one
        self.ended: float | None = None     # when its session was over, the connection was not
        self.unsent: deque[bytes] = deque()
        self.unsent_bytes = 0
        self.session = Session(dial is not None, links.node.key, links.node.static, self._raw,
                               self._feed_later, lambda: self.full or bool(self.broken))
        self._feeding = False       # _feed() will be called soon
        self._flushing = False      # _flush() runs, or is about to
        self.attempts: dict[int, Any] = {}      # requests sent here that wait for their answer
        self.serving: dict[int, Any] = {}       # requests from there that wait or run here
        self.tunnels: dict[tuple[int, bool], Any] = {}  # by number, and whether opened here
        self.surveyed = 0           # surveys from there that are being answered here
        self.answers = Replies(self._send_encoded)
        self.answered = 0           # requests and surveys from there,
        self.asked = 0              # those of them whose arrival has been asked for,
        self.confirmed = 0          # and those whose answer has certainly arrived
        self.left = False           # its member has said that it leaves
        self._cancelled: dict[int, None] = {}   # requests that may still come
        self.spare = False          # the other side uses a better one
        self.published = 0          # the number of the last publication over it
        self.stalled = -1           # bytes that had been taken when it was found to be stuck
        self.asked_news = 0         # the number of the Ping that asks what of its news has arrived

    @property
    def ready(self) -> bool:
        return self.alive and self.session.ready

    @property
    def usable(self) -> bool:
        """Whether it can still send something."""
        return self.alive and not self.broken

    def send(self, frame: frames.Frame) -> bool:
        """False: the frame has not been sent, because the link is broken or full."""
        if not self.alive or self.broken or self.unsent_bytes > UNSENT:
            return False        # not usable, or full: this is called for each message
        return self.session.send(frame) and not self.broken

    def reserve(self, frame: frames.Data) -> Any:
        """Its tunnel has the turn, and sends it by send_reserved(), or does not: release()."""
        return self.session.reserve(frame)

    def send_reserved(self, data: Any) -> bool:
        """False: the link is broken."""
        if self.usable:
            self.session.send_reserved(data)
        return self.usable

    def release(self, data: Any) -> None:
        self.session.release(data)

    def enter(self, source: Source) -> None:
        """Have the source send when its turn comes, see sources.py."""
        self.session.sources.enter(source)

    def _feed_later(self) -> None:
        if not self._feeding:
            self._feeding = True
            self.links.node.loop.soon(self._feed)

    def _feed(self) -> None:
        self._feeding = False
        self.session.sources.feed()

    def withdraw(self, source: Source) -> None:
        self.session.sources.withdraw(source)

    def _send_encoded(self, data: bytes) -> bool:
        return self.usable and not self.full and self.session.send_encoded(data) \
            and not self.broken

    @property
    def full(self) -> bool:
        """So much waits for the socket that only small frames go."""
        return self.unsent_bytes > UNSENT

    @property
    def holds(self) -> bool:
        """Whether something waits to be sent."""
        return self.usable and bool(self.unsent or self.session.waiting or self.answers)

    def hurry(self) -> None:
        """Give the socket all that is not cut, whether or not the other side takes it."""
        if self.usable:
            self.session.hurry()
            self.answers.go_on()

    @property
    def idle(self) -> bool:
        """Nothing that was begun over it still needs it."""
        return not (self.attempts or self.serving or self.tunnels or self.surveyed or self.holds
                    or self.session.window.news or self.links.node.surveys.waits_for(self))

    def answer(self, frame: frames.Reply | frames.Answer) -> bool:
        """Send what the other side waits for: now, or when the link has room. False: the link is
        broken."""
        if not self.usable:
            self.links.broke_off += not self.left
            return False
        self.answers.add(frames.encode(frame))
        self.answered += 1
        return True

    @property
    def carried(self) -> int:
        """The number of `answered` when a Ping that is sent now arrives: small frames overtake the
        answers that wait."""
        return self.confirmed if self.answers or self.session.waiting else self.answered

    @property
    def owes(self) -> bool:
        """Whether an answer has not arrived yet, as far as is known, and its asker is there. The
        other side closes a spare link when it waits for nothing any more."""
        if self.left or self.spare and not (self.serving or self.surveyed or self.holds):
            return False
        return bool(self.answered > self.confirmed or self.serving or self.surveyed)

    @property
    def clogged(self) -> bool:
        """So many answers wait that no request from there is to run."""
        return self.answers.many

    def withdraw_request(self, number: int) -> None:
        """A request that was sent here is not wanted any more."""
        if not self.take_back(number):
            self.control(frames.Cancel(number))

    def take_back(self, number: int) -> bool:
        """Whether a request that was sent here has not been sent whole, and will not be."""
        return self.session.withdraw(number)

    def has_sent(self, mark: tuple[int, ...]) -> bool:
        """What the session has had until it was marked, and all answers. Or it never will."""
        return not self.usable or not self.answers and self.session.has_sent(mark)

    def cancel(self, number: int) -> None:
        """A request that is not known here is not wanted: a large one may still be on its way."""
        self._cancelled[number] = None
        if len(self._cancelled) > CANCELLED:
            del self._cancelled[next(iter(self._cancelled))]

    def is_cancelled(self, number: int) -> bool:
        return bool(self._cancelled) and self._cancelled.pop(number, 0) is None

    def control(self, frame: frames.Frame) -> None:
        """Send a small frame that makes no traffic of its own, even if the link is full. The link
        ends if it cannot take that either."""
        if not self.usable:
            return
        if self.unsent_bytes > 2 * UNSENT:
            self.links.drop("stuck")
            self.alive = False
            self.links.node.loop.soon(self.links.lost, self, "the other side takes nothing", False)
            return
        self.session.send(frame, at_once=True)

    def _raw(self, data: bytes) -> bool:
        """False: the connection is over."""
        if self.broken:
            return False
        full = False
        if not self.unsent:
            try:
                self.links.socket.send_parts((self.rid, data), timeout=0)
                return True
            except SendTimeout:
                full = True
            except (NoSuchPeer, SocketClosed):
                self.broken = "the connection broke"
                self.links.ask(self)
                return False
        self.unsent.append(data)
        self.unsent_bytes += len(data)
        if full and not self._flushing:
            self._flushing = True       # a task may begin at once, and would find nothing before
            self.links.node.loop.spawn(self._flush)
        return not self.broken          # as _flush() may have found

    def give_up(self) -> None:
        """What waits will not be sent any more: count it."""
        self.links.broke_off += not self.left and self.session.holds_news
        self.links.drop("unsent", len(self.unsent) + self.session.give_up())
        self.unsent.clear()
        self.unsent_bytes = 0
        if self.answers:
            self.links.node.count("replies_lost", self.answers.give_up())

    async def _flush(self) -> None:
        try:
            while self.unsent:
                await self.links.socket.asend_parts((self.rid, self.unsent[0]))
                if self.unsent:         # give_up() may have emptied it meanwhile
                    full = self.full
                    self.unsent_bytes -= len(self.unsent.popleft())
                    if full and not self.full:
                        self._feed_later()
                if self.answers:
                    self.answers.go_on()
        except (NoSuchPeer, SocketClosed):
            self.links.departed(self, "the connection broke")
        finally:
            self._flushing = False

    def __repr__(self) -> str:
        made = "out" if self.dial else "in"
        return f"<Link {made} {self.member.id[:8] if self.member else '?'}>"


class Home:
    """The link of a node to itself. It has what requests, tunnels, broadcasts and surveys use of
    a link, which mypy checks: see Way."""

    alive = usable = True
    full = clogged = left = False
    surveyed = answered = 0

    def __init__(self, node: Any) -> None:
        self.node = node
        self.member = node.directory.me
        self.attempts: dict[int, Any] = {}      # these three: see Link
        self.serving: dict[int, Any] = {}
        self.tunnels: dict[tuple[int, bool], Any] = {}

    def send(self, frame: frames.Frame) -> bool:
        self.node.loop.soon(self._take, frame)
        return True

    control = answer = send_reserved = send

    def reserve(self, frame: frames.Data) -> Any:
        return frame

    def release(self, data: Any) -> None:
        """Nothing is counted here."""

    def enter(self, source: Source) -> None:
        while source():
            pass

    def withdraw(self, source: Source) -> None:
        """No source waits for a turn here."""

    def withdraw_request(self, number: int) -> None:
        self.send(frames.Cancel(number))

    def cancel(self, number: int) -> None:
        """It is over: nothing comes in pieces here."""

    def is_cancelled(self, number: int) -> bool:
        return False

    def _take(self, frame: frames.Frame) -> None:
        self.node.handlers[type(frame)](self, frame)


Way: TypeAlias = Link | Home    # by which frames of requests, tunnels and surveys go to a member


class Dial:
    """An address that this node connects to."""

    def __init__(self, url: str, endpoint: Any, seed: bool, of_member: bool) -> None:
        self.url = url
        self.endpoint = endpoint
        self.seed = seed
        self.of_member = of_member      # whose record has the address
        self.since = time.monotonic()
        self.link: Link | None = None
        self.error = ""
        self.done = False           # nothing more to expect of it
