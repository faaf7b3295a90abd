"""PatternSuite: what a pattern must do, as pytest tests. Subclass it in a test module:

    from mqcore.testing import PatternSuite

    class TestGossip(PatternSuite):
        pattern = "gossip"
        partner = "gossip"      # one that it talks to

What the pattern promises is read from its flags, under the names of `PATTERN_FLAGS` in
mqcore/spi/capability.py: nothing here depends on its name. Everything runs over inproc, where no
kernel stands between, and over tcp.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, note, settings

import mqcore as mq
from mqcore.spi import registry
from mqcore.spi.capability import PATTERN_FLAGS, pattern_capabilities
from mqcore.testing.churn import PROGRAMS, Churn
from mqcore.testing.suite import EXAMPLES, LIMIT, Suite, needs
from mqcore.testing.traffic import heard, laws
from mqcore.testing.watch import until

BODY = 16384
BUFFER = 32768  # of the kernel, so that a stalled reader is soon felt

#: derived from the flags: (name, what excludes it, reason)
DERIVED = (
    ("queues", "exchanges", "sends and receives take turns"),
    ("several", "exclusive", "it has one peer at most"),
    ("free", "addresses", "each message names its peer"),
)


class PatternSuite(Suite):
    """Tests of a pattern. Set `pattern`, and `partner` to the one that it talks to."""

    pattern: ClassVar[str] = ""
    partner: ClassVar[str] = ""
    #: given to every socket of the pattern, and of the partner
    options: ClassVar[Mapping[str, Any]] = {}
    partner_options: ClassVar[Mapping[str, Any]] = {}
    #: what send_to() takes for a peer that is not there, where each message names its peer
    nobody: ClassVar[Any] = b"mq nobody"

    def prepare(self, sock: Any) -> None:
        """What a new socket, the pattern's or the partner's, needs before messages reach it: one
        with topics subscribes to all of them, one with groups joins the empty one."""
        if hasattr(type(sock), "topics"):
            sock.subscribe(b"")
        elif hasattr(type(sock), "groups"):
            sock.join(b"")

    def ready(self, sock: Any, n: int) -> None:
        """Until what `sock` sends reaches n peers."""
        sock.wait_peers(n, LIMIT)
        if hasattr(sock, "wait_subscribers"):
            sock.wait_subscribers(b"", n, LIMIT)

    # -- what it is --------------------------------------------------------------------------------

    @property
    def plugin(self) -> Any:
        return registry.pattern(self.pattern)

    def has(self, name: str = "") -> frozenset[str]:
        return pattern_capabilities(registry.pattern(name or self.pattern))

    def gaps(self) -> Mapping[str, str]:
        has, far = self.has(), self.has(self.partner)
        gaps = {name: f"without: {doc}" for _, name, doc in PATTERN_FLAGS if name not in has}
        gaps |= {name: why for name, excluded_by, why in DERIVED if excluded_by in has}
        if not self.answers:
            gaps["answers"] = "it does not answer what others ask"
        if "receives" not in far:
            gaps["heard"] = f"{self.partner} does not receive"
        if "sends" not in far:
            gaps["told"] = f"{self.partner} does not send"
        return gaps

    @property
    def asks(self) -> bool:
        """It takes turns, and the first one is its own."""
        return "exchanges" in self.has() and not self.has().isdisjoint({"waits", "fans-out"})

    @property
    def answers(self) -> bool:
        """It takes turns, and the first one is the other's."""
        return "exchanges" in self.has() and not self.asks

    @pytest.fixture(params=["inproc", "tcp"])
    def where(self, request: pytest.FixtureRequest) -> Callable[[], str]:
        """A new URL to bind at each call."""
        count = itertools.count()
        return lambda: ("tcp://127.0.0.1:0" if request.param == "tcp"
                        else f"inproc://mq-{next(count)}")

    @pytest.fixture
    def make(self, mq_context: Any) -> Callable[..., Any]:
        """make(pattern, **options): a socket, closed after the test."""
        def make(name: str, **options: Any) -> Any:
            own = {**(self.options if name == self.pattern else {}),
                   **(self.partner_options if name == self.partner else {})}
            sock = mq_context.socket(name, **{**own, **options})
            self.prepare(sock)
            return sock
        return make

    @property
    def alone(self) -> bool:
        """A message arrives as one part: some have one only, and a wire but ZMTP joins them."""
        return not self.has().isdisjoint({"groups", "single"}) or not self.plugin.zmtp

    def messages(self) -> list[list[bytes]]:
        """Of every size and number of parts that the pattern has."""
        return [parts for parts in MESSAGES if len(parts) == 1 or not self.alone]

    def send(self, sock: Any, parts: list[bytes], timeout: float | None = LIMIT,
             peer: Any = None) -> None:
        """To the peer, where the pattern wants one named (left out: the first there is)."""
        if "addresses" in self.has(sock.pattern):
            sock.send_to(peer or sock.peers()[0], *parts, timeout=timeout)
        else:
            sock.send_parts(parts, timeout=timeout)

    def recv(self, sock: Any, timeout: float | None = LIMIT) -> list[bytes]:
        """The next message of the tests', without envelope or address."""
        return heard(sock, timeout)

    def ask(self, near: Any, far: Any) -> None:
        """Where sends and receives take turns: makes it near's turn to send."""
        if self.answers:
            self.send(far, [b"mq ask"])
            assert self.recv(near) == [b"mq ask"]

    def answer(self, near: Any, far: Any, parts: list[bytes]) -> None:
        """far has received; where turns are taken, it answers."""
        if self.asks:
            self.send(far, parts)
            assert self.recv(near) == parts

    # -- facts -------------------------------------------------------------------------------------

    def test_facts(self) -> None:
        plugin = self.plugin
        known = sum(bit for bit, _, _ in PATTERN_FLAGS)
        assert plugin.name == self.pattern and plugin.flags & ~known == 0
        assert self.has() & {"sends", "receives"}, "it neither sends nor receives"
        assert plugin.doc and "\n" not in plugin.doc, "doc is one line for `mq info`"
        assert isinstance(plugin.peers, tuple) and self.partner in plugin.peers
        assert plugin.kind in kinds(registry.pattern(self.partner)), \
            f"{self.partner} would refuse what it announces: {plugin.kind}"
        [info] = [i for i in registry.patterns() if i.name == self.pattern]
        assert info.refused == ""

    def test_its_options_are_taken(self, make: Any) -> None:
        """A socket with each of them at its default, and attributes that say so."""
        rows = registry.pattern_options(self.pattern)
        sock = make(self.pattern, **{row.name: row.default for row in rows
                                     if row.default is not None})
        for row in rows:
            assert getattr(sock, row.name, row.default) == row.default or self.options

    # -- messages ----------------------------------------------------------------------------------

    @needs("sends", "heard")
    def test_a_message_arrives_as_it_was_sent(self, make: Any, where: Any) -> None:
        near, far = self.linked(make, where)
        for parts in self.messages():
            self.ask(near, far)
            self.send(near, parts)
            assert self.recv(far) == parts
            self.answer(near, far, parts)
        laws(near)
        laws(far)

    @needs("receives", "told")
    def test_a_message_of_the_partner_arrives(self, make: Any, where: Any) -> None:
        near, far = self.linked(make, where)
        for parts in self.messages():
            if self.asks:
                self.send(near, [b"mq ask"])
                self.recv(far)
            self.send(far, parts)
            assert self.recv(near) == parts
            if self.answers:
                self.send(near, parts)
                assert self.recv(far) == parts
        laws(near)
        laws(far)

    # -- peers -------------------------------------------------------------------------------------

    def test_a_peer_that_does_not_fit(self, make: Any, where: Any) -> None:
        """Both sides refuse it with a reason, and no peer is attached."""
        names = [i.name for i in registry.patterns() if not i.refused]
        strangers = [n for n in names if registry.kind_of(n) not in kinds(self.plugin)
                     and self.plugin.kind not in kinds(registry.pattern(n))
                     and bool(registry.pattern(n).zmtp) == bool(self.plugin.zmtp)
                     and (self.plugin.zmtp or registry.pattern(n).sp >= 0)]
        assert strangers, "every pattern fits: then which one would not?"
        sock = make(self.pattern)
        at = sock.bind(where())
        stranger = make(strangers[0])
        with pytest.raises(mq.HandshakeFailed) as caught:
            stranger.connect(at.url, wait=LIMIT)
        assert caught.value.reason and sock.peers() == []
        assert stranger.endpoints == ()

    @needs("exclusive")
    def test_a_second_peer_is_refused(self, make: Any, where: Any) -> None:
        """The first one stays; when it leaves, the other may come."""
        near, far = self.linked(make, where)
        [first] = near.peers()
        events = near.events()
        second = make(self.partner, reconnect=0.01, reconnect_max=0.02)
        second.connect(near.endpoints[0].url)
        while events.get(LIMIT).kind != "Refused":
            pass
        # the other may still be in its handshake for a moment
        until(lambda: near.peers() == [first])
        far.close()
        second.wait_peers(1, LIMIT)

    @needs("several", "sends", "heard", "free")
    def test_peers_get_their_share(self, make: Any, where: Any) -> None:
        """Each message to all of them, or to one of them in turn."""
        near, fars = self.star(make, where, 3)
        n = 12
        shares = {id(far): 0 for far in fars}
        if self.answers:
            for far in fars * (n // 3):     # reply to the requester
                self.ask(near, far)
                self.send(near, [b"mq"])
                assert self.recv(far) == [b"mq"]
            return
        for _ in range(n):
            self.send(near, [b"mq"])
            takers = fars if "fans-out" in self.has() else [ready_one(fars)]
            for far in takers:
                assert self.recv(far) == [b"mq"]
                shares[id(far)] += 1
            self.answer(near, takers[0], [b"mq"])
        share = n if "fans-out" in self.has() else n // 3
        assert set(shares.values()) == {share}

    @needs("several", "receives", "told", "queues")
    def test_peers_are_heard_in_turn(self, make: Any, where: Any) -> None:
        """Each of three has twenty messages waiting: none gets ahead of the others."""
        near, fars = self.star(make, where, 3)
        n = 20
        for k in range(n):
            for me, far in enumerate(fars):
                self.send(far, [b"mq %d %d" % (me, k)])
        until(lambda: sum(p.queued_in for p in near.stats().peers.values()) >= 3 * n)
        counts = [0, 0, 0]
        for _ in range(3 * n):
            me, k = map(int, self.recv(near)[0].split()[1:])
            assert counts[me] == k, "a peer's messages keep their order"
            counts[me] += 1
            assert max(counts) - min(counts) <= 1, counts
        assert counts == [n, n, n]

    @needs("several", "receives", "told", "answers")
    def test_everybody_who_asks_is_heard(self, make: Any, where: Any) -> None:
        near, fars = self.star(make, where, 3)
        for n in range(4):
            for me, far in enumerate(fars):
                self.send(far, [b"mq %d" % me])
            self.heard(near, n + 1)
            seen = []
            for _ in fars:
                seen.append(self.recv(near)[0])
                self.send(near, [seen[-1]])
            assert sorted(seen) == [b"mq %d" % me for me in range(3)]
            for me, far in enumerate(fars):
                assert self.recv(far) == [b"mq %d" % me]

    # -- back-pressure -----------------------------------------------------------------------------

    @needs("sends", "heard", "queues")
    def test_what_happens_at_the_mark(self, make: Any, where: Any) -> None:
        """A peer reads nothing. Fan-out drops for it, counted, and never waits; others make the
        sender wait. Whatever was taken and not counted as dropped arrives, in order."""
        near, far = self.linked(make, where, send_hwm=4, recv_hwm=4, send_buffer=BUFFER,
                                recv_buffer=BUFFER)
        drops = "fans-out" in self.has()
        sent = 0
        try:
            while not (drops and sum(laws_of_first(near).dropped_out.values()) >= 5):
                self.send(near, [b"mq %d " % sent + bytes(BODY)], 0 if drops else 0.1)
                sent += 1
                assert sent < 2000, "32 MB are on their way, and the mark was 4 messages"
        except mq.SendTimeout as error:
            assert not drops and error.why == "full"
        lost = sum(laws_of_first(near).dropped_out.values())
        assert (lost > 0) == drops and sent > lost
        got = [int(self.recv(far)[0].split(b" ")[1]) for _ in range(sent - lost)]
        assert got == sorted(set(got)) and got[0] == 0
        with pytest.raises(mq.RecvTimeout):
            self.recv(far, 0)
        self.send(near, [b"mq there is room again"])
        assert self.recv(far) == [b"mq there is room again"]

    # -- without peers -----------------------------------------------------------------------------

    @needs("sends", "waits", "free")
    def test_messages_wait_for_the_first_peer(self, make: Any, where: Any) -> None:
        far = make(self.partner)
        url = far.bind(where()).url
        far.close()
        near = make(self.pattern, reconnect=0.01, reconnect_max=0.02)
        near.connect(url)
        self.send(near, [b"mq early"], 0)
        assert laws(near).waiting == 1
        far = make(self.partner)
        far.bind(url)
        assert self.recv(far) == [b"mq early"] and laws(near).waiting == 0

    @needs("sends", "queues")
    def test_with_nobody_there(self, make: Any, where: Any) -> None:
        """Bound, and no peer: fan-out counts it as unmatched, others do not take it."""
        near = make(self.pattern)
        near.bind(where())
        if "fans-out" in self.has():
            near.send_parts([b"mq"], timeout=0)
            assert laws(near).unmatched == 1
        elif "addresses" in self.has():
            with pytest.raises(mq.NoSuchPeer):
                near.send_to(self.nobody, b"mq", timeout=0)
            assert laws(near).sent == 0
        else:
            with pytest.raises(mq.SendTimeout) as caught:
                near.send_parts([b"mq"], timeout=0)
            assert caught.value.why == "no_peer" and laws(near).sent == 0

    @needs("sends", "heard", "reroutes", "free", "queues")
    def test_what_a_lost_peer_had_not_been_sent(self, make: Any, where: Any) -> None:
        """goes to the next one, in order and whole; the rest is written or a counted loss."""
        near, far = self.linked(make, where, send_hwm=1000, recv_hwm=4, send_buffer=BUFFER,
                                recv_buffer=BUFFER)
        n = 60
        for k in range(n):
            self.send(near, [b"mq %d " % k + bytes(BODY)])
        far.close(0)
        until(lambda: not near.peers())
        first = laws(near)
        after = make(self.partner)
        after.connect(near.endpoints[0].url)
        kept = n - sum(p.offered for p in first.peers.values())
        assert kept == first.waiting
        assert kept > 0 or first.peers and next(iter(first.peers)).wire == "inproc", \
            "between sockets of one context what is sent is there: nothing is left to go elsewhere"
        got = [self.recv(after) for _ in range(kept)]
        assert got == [[b"mq %d " % k + bytes(BODY)] for k in range(n - kept, n)]

    # -- any moment --------------------------------------------------------------------------------

    @settings(max_examples=EXAMPLES or 10, deadline=None, suppress_health_check=list(HealthCheck))
    @given(program=PROGRAMS)
    def test_peers_come_and_go_at_any_moment(self, make: Any, where: Any, mq_context: Any,
                                             program: Any) -> None:
        """Random programs of peers that attach, leave and send. After each step the counters of all
        peers are consistent. What arrives was sent, is complete, arrives once and, unless it may
        have been on its way to another peer, in order. At the end, everything written at one end
        has been read at the other."""
        note(f"{program}")
        churn = Churn(self, make, where())
        try:
            for step in program:
                churn.run(*step)
            churn.finish()
        finally:
            churn.close()
            mq_context.kept.clear()

    @pytest.mark.parametrize("what", ["send", "recv"])
    def test_close_ends_a_call_that_waits(self, make: Any, where: Any, what: str) -> None:
        """SocketClosed, in the thread that waits and for every later call."""
        near = make(self.pattern)
        near.bind(where())
        call = {"send": lambda: near.send_parts([b"mq"]), "recv": near.recv_msg}[what]
        ended: list[BaseException] = []

        def run() -> None:
            try:
                while True:
                    call()
            except mq.SocketClosed as error:
                ended.append(error)
            except mq.Error:  # the pattern does not wait here, or does not have it
                until(lambda: near.closed)
        thread = threading.Thread(target=run)
        thread.start()
        near.close()
        thread.join(LIMIT)
        assert not thread.is_alive()
        with pytest.raises((mq.SocketClosed, mq.UsageError)):
            call()

    # -- tools -------------------------------------------------------------------------------------

    def heard(self, near: Any, n: int) -> None:
        """Wait until n messages of each peer have arrived."""
        until(lambda: all(peer.read == n for peer in near.stats().peers.values()))

    def linked(self, make: Any, where: Any, **options: Any) -> tuple[Any, Any]:
        """(ours, bound; the partner, connected)."""
        near, [far] = self.star(make, where, 1, **options)
        return near, far

    def star(self, make: Any, where: Any, n: int, **options: Any) -> tuple[Any, list[Any]]:
        """One of ours, bound, and n partners connected to it, all ready."""
        near = make(self.pattern, **options)
        url = near.bind(where()).url
        fars = []
        for _ in range(n):
            fars.append(make(self.partner, **options))
            fars[-1].connect(url)
            self.ready(fars[-1], 1)
        self.ready(near, n)
        return near, fars


MESSAGES: tuple[list[bytes], ...] = (
    [b"mq"], [b"mq" + bytes(55)], [b"mq" + bytes(300)], [b"mq" + bytes(100_000)],
    [b"mq", b"", b"c"], [b"mq", b"x" * 57, bytes(70_000), b""], [b"mq"] * 40)


def kinds(plugin: Any) -> list[str]:
    """What a pattern accepts, as peers announce themselves."""
    return [registry.kind_of(name) for name in plugin.peers]


def laws_of_first(sock: Any) -> Any:
    """The account of the socket's one peer, and the laws."""
    [account] = laws(sock).peers.values()
    return account


def ready_one(sockets: list[Any]) -> Any:
    """The one of them that has something to receive."""
    found = mq.poll(sockets, LIMIT)
    assert len(found) == 1, "one message, one taker"
    return found[0][0]
