"""TransportSuite: what a transport must do, as pytest tests. Subclass it in a test module:

    from mqcore.testing import TransportSuite

    class TestSctp(TransportSuite):
        scheme = "sctp"
        bad = ("", "nohost", "127.0.0.1:port")

        def url(self, tmp_path):
            return "sctp://127.0.0.1:0"

Everything else has a default that fits a stream; each attribute and method below says how to change
it. Tests of the plug-in object are in contract.py, those of a damaged stream in damage.py, those of
live sockets here.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

import mqcore as mq
from mqcore.spi.url import parse
from mqcore.testing.bed import FAST, Bed, pattern
from mqcore.testing.damage import DamagedStream
from mqcore.testing.suite import LIMIT, live, needs
from mqcore.testing.traffic import laws
from mqcore.testing.watch import until

SMALL = (0, 1, 55, 56, 57, 255, 256, 8192)  # around what a handle holds, and a short frame
LARGE = (65536, 1 << 20)
HUGE = 64 << 20
STORM = 200
BODY = 65536


class TransportSuite(DamagedStream):
    """Tests of a transport. Set `scheme`, `bad` (invalid addresses) and the method `url`."""

    #: which pattern sends in these tests, and which receives; those of radio and dish, say
    sender: ClassVar[str] = "push"
    receiver: ClassVar[str] = "pull"
    #: which pattern talks both ways, with itself
    both: ClassVar[str] = "pair"
    #: options for every bind() and connect(), such as certificates
    bind_options: ClassVar[Mapping[str, Any]] = {}
    connect_options: ClassVar[Mapping[str, Any]] = {}

    def wildcard(self, tmp_path: Path) -> str:
        """A URL to bind that means "any free address"."""
        return f"{self.scheme}://*"

    def connect_url(self, endpoint: Any) -> str:
        """Where to connect, to reach what listens at this endpoint."""
        return str(endpoint.url)

    def prepare(self, sender: Any, receiver: Any) -> None:
        """Whatever must be done before messages flow: subscribe, join a group."""

    def send(self, sender: Any, parts: list[bytes], timeout: float | None = LIMIT) -> None:
        sender.send_parts(parts, timeout=timeout)

    def recv(self, receiver: Any, timeout: float | None = LIMIT) -> list[bytes]:
        parts: list[bytes] = receiver.recv_parts(timeout=timeout)
        return parts

    def any_pattern(self) -> str:
        return self.receiver

    # -- tools -------------------------------------------------------------------------------------

    @pytest.fixture
    def bed(self, mq_context: Any, mq_folder: Path) -> Bed:
        """Sockets over this transport, closed and looked after."""
        return Bed(self, mq_context, mq_folder)

    def deliver(self, sender: Any, receiver: Any, parts: list[bytes]) -> None:
        """Sent once and received; sent again and again where messages may be lost."""
        if "reliable" not in self.gaps():
            self.send(sender, parts)
            assert self.recv(receiver) == parts
            return

        def came() -> bool:
            self.send(sender, parts)
            try:
                while self.recv(receiver, 0.2) != parts:
                    pass
            except mq.RecvTimeout:
                return False
            return True
        until(came, LIMIT)

    # -- exchange ----------------------------------------------------------------------------------

    @live
    @pytest.mark.parametrize("size", SMALL)
    def test_small_messages(self, bed: Bed, size: int) -> None:
        s, r = bed.linked()
        for n in range(3):
            self.deliver(s, r, [pattern(size, n)])

    @live
    @needs("large")
    @pytest.mark.parametrize("size", LARGE)
    def test_large_messages(self, bed: Bed, size: int) -> None:
        s, r = bed.linked()
        for n in range(3):
            self.deliver(s, r, [pattern(size, n)])

    @live
    @needs("large", "reliable")
    def test_a_huge_message(self, bed: Bed) -> None:
        s, r = bed.linked()
        body = pattern(HUGE, 7)
        digest = hashlib.sha256(body).digest()
        self.send(s, [body])
        del body
        [got] = self.recv(r)
        assert len(got) == HUGE and hashlib.sha256(got).digest() == digest

    @live
    @needs("multipart")
    def test_messages_of_several_parts(self, bed: Bed) -> None:
        s, r = bed.linked()
        for parts in ([b"", b""], [b"a", b"", b"c"], [b"x" * 57, b"y"], [b"."] * 100):
            self.deliver(s, r, parts)

    @live
    @needs("multipart", "large")
    def test_large_parts(self, bed: Bed) -> None:
        s, r = bed.linked()
        self.deliver(s, r, [b"head", pattern(100_000, 1), b"", pattern(300_000, 2), b"tail"])

    @live
    @needs("duplex", "reliable")
    def test_both_ways_at_once(self, bed: Bed) -> None:
        a, b = bed.linked(self.both, self.both)
        n = 300
        for k in range(n):
            a.send(b"a%d" % k, timeout=LIMIT)
            b.send(b"b%d" % k, timeout=LIMIT)
        assert [a.recv(timeout=LIMIT) for _ in range(n)] == [b"b%d" % k for k in range(n)]
        assert [b.recv(timeout=LIMIT) for _ in range(n)] == [b"a%d" % k for k in range(n)]

    @live
    @needs("many", "reliable", "ordered")
    def test_order_and_totals_with_several_peers(self, bed: Bed) -> None:
        """Each of four senders floods; every message arrives once, in its sender's order."""
        senders, n = 4, 500
        r = bed.socket(self.receiver)
        at = bed.bind(r)
        sockets = [bed.connected(self.sender, at) for _ in range(senders)]
        bed.meet(r, senders)

        def flood(me: int) -> None:
            for k in range(n):
                self.send(sockets[me], [b"%d %d" % (me, k)])
        threads = [threading.Thread(target=flood, args=(me,)) for me in range(senders)]
        for thread in threads:
            thread.start()
        seen: dict[int, list[int]] = {me: [] for me in range(senders)}
        for _ in range(senders * n):
            me, k = self.recv(r)[0].split()
            seen[int(me)].append(int(k))
        for thread in threads:
            thread.join()
        assert seen == {me: list(range(n)) for me in range(senders)}
        assert laws(r).received == senders * n
        for s in sockets:
            assert laws(s).sent == n

    # -- addresses ---------------------------------------------------------------------------------

    @live
    @needs("wildcard")
    def test_a_wildcard_gives_the_real_address(self, bed: Bed) -> None:
        r = bed.socket(self.receiver)
        given = self.wildcard(bed.fresh())
        at = r.bind(given, **self.bind_options)
        assert at.url != given and at.state == "listening"
        self.check(parse(at.url).address, "connect")
        s = bed.connected(self.sender, at)
        bed.meet(s, 1)
        self.prepare(s, r)
        self.deliver(s, r, [b"found"])

    @live
    @needs("busy")
    def test_a_busy_address(self, bed: Bed) -> None:
        """The second one is refused, the first one does not notice."""
        s, r = bed.linked()
        other = bed.socket(self.receiver)
        with pytest.raises(mq.AddressInUse) as caught:
            other.bind(r.endpoints[0].url, **self.bind_options)
        assert caught.value.errno == errno.EADDRINUSE and other.endpoints == ()
        self.deliver(s, r, [b"still here"])

    @live
    @needs("rebind")
    def test_unbind_frees_the_address_at_once(self, bed: Bed) -> None:
        r = bed.socket(self.receiver)
        url = bed.bind(r).url
        s = bed.connected(self.sender, r.endpoints[0])
        bed.meet(s, 1)
        for _ in range(3):
            r.unbind(url)
            assert r.endpoints == ()
            assert r.bind(url, **self.bind_options).url == url
        r.close()
        again = bed.socket(self.receiver)
        assert again.bind(url, **self.bind_options).url == url

    @live
    @needs("connection")
    def test_names_of_both_ends(self, bed: Bed) -> None:
        s, r = bed.linked()
        [there], [here] = s.peers(), r.peers()
        near, far = s.endpoints[0], r.endpoints[0]
        near.wait_ready(LIMIT)  # the peer is there a moment before its endpoint says so
        assert (near.kind, near.state) == ("connect", "connected")
        assert (far.kind, far.state) == ("bind", "listening")
        assert there.endpoint == near.url and here.endpoint == far.url
        if "handshake" not in self.gaps():
            assert here.pattern == self.sender and there.pattern == self.receiver
        if not self.filters():  # below filters it goes by the transport's own address
            assert there.address in ("", far.url), "a listener is known by where it listens"
        for url in (near.url, far.url):
            assert url.startswith(f"{self.scheme}://")
        assert isinstance(here.address, str) and bool(here.address) == bool(there.address)

    @live
    @needs("connection", "pid", "processes")
    def test_the_peers_process_is_known(self, bed: Bed) -> None:
        r = bed.socket(self.receiver)
        at = bed.bind(r)
        with bed.process(self.sender, connect=self.connect_url(at)) as child:
            r.wait_peers(1, LIMIT)
            [peer] = r.peers()
            assert peer.pid == child.pid

    # -- connecting --------------------------------------------------------------------------------

    @live
    @needs("refused")
    def test_a_refused_connect(self, bed: Bed) -> None:
        """It fails at once, says so, and can be told to give up."""
        url = bed.nowhere()
        s = bed.socket(self.sender)
        with pytest.raises(mq.RemoteRefused):
            s.connect(url, wait=LIMIT, reconnect_stop=("refused",), **self.connect_options)
        assert s.endpoints == ()
        with pytest.raises(mq.ConnectTimeout) as caught:
            s.connect(url, wait=0.1, reconnect=0.01, **self.connect_options)
        assert isinstance(caught.value.last, mq.RemoteRefused) and s.endpoints == ()

    @live
    @needs("reconnect", "rebind")
    def test_whoever_connects_first_waits_for_the_other(self, bed: Bed) -> None:
        url = bed.nowhere()
        s = bed.socket(self.sender, **FAST)
        s.connect(url, **self.connect_options)
        r = bed.socket(self.receiver)
        r.bind(url, **self.bind_options)
        bed.meet(s, 1)
        self.prepare(s, r)
        self.deliver(s, r, [b"at last"])

    @live
    @needs("reconnect", "connection", "rebind")
    def test_a_lost_connection_is_made_anew(self, bed: Bed) -> None:
        r = bed.socket(self.receiver)
        url = bed.bind(r).url
        s = bed.connected(self.sender, r.endpoints[0], **FAST)
        for n in range(3):
            bed.meet(s, 1)
            self.prepare(s, r)
            self.deliver(s, r, [b"%d" % n])
            r.close()
            until(lambda: not s.peers())
            r = bed.socket(self.receiver)
            r.bind(url, **self.bind_options)
        bed.meet(s, 1)

    @live
    @needs("many", "reliable")
    def test_a_storm_of_connects(self, bed: Bed) -> None:
        """Two hundred at once, each with a message; all of them come, and go again."""
        r = bed.socket(self.receiver)
        at = bed.bind(r)
        s = bed.socket(self.sender, send_timeout=LIMIT)
        for _ in range(STORM):
            s.connect(self.connect_url(at), **self.connect_options)
        bed.meet(s, STORM)
        bed.meet(r, STORM)
        for n in range(STORM):
            self.send(s, [b"%d" % n])
        assert sorted(int(self.recv(r)[0]) for _ in range(STORM)) == list(range(STORM))
        laws(s)
        laws(r)
        s.close()
        if "connection" not in self.gaps():
            until(lambda: not r.peers())

    # -- ends --------------------------------------------------------------------------------------

    @live
    @needs("connection")
    def test_each_end_notices_when_the_other_goes(self, bed: Bed) -> None:
        s, r = bed.linked()
        s.close()
        until(lambda: not r.peers())
        s, r = bed.linked()
        r.close()
        until(lambda: not s.peers())
        s, r = bed.linked()
        s.disconnect(s.endpoints[0])
        until(lambda: not r.peers())
        s, r = bed.linked()
        r.unbind(r.endpoints[0])
        until(lambda: not s.peers())

    @live
    @needs("connection", "processes", "reconnect", "rebind")
    @pytest.mark.parametrize("role", ["bind", "connect"])
    def test_a_killed_peer(self, bed: Bed, role: str) -> None:
        """SIGKILL while messages are on their way: we notice, the laws hold, and its successor at
        the same address is served."""
        s = bed.socket(self.sender, **FAST, linger=0)
        if role == "connect":
            at = self.connect_url(bed.bind(s))
            start = {"connect": at}
        else:
            start = {"bind": bed.nowhere()}
            s.connect(start["bind"], **self.connect_options)
        for n in range(2):
            with bed.process(self.receiver, **start) as child:
                s.wait_peers(1, LIMIT)
                self.send(s, [b"hello %d" % n])
                if "reliable" not in self.gaps():
                    while child.recv() != [b"hello %d" % n]:
                        pass  # what its predecessor had not been sent
                for _ in range(50):
                    self.send(s, [b"x" * 1000])
                child.kill()
            until(lambda: not s.peers())
            laws(s)

    @live
    @needs("reliable")
    def test_close_while_busy(self, bed: Bed) -> None:
        """Both ends are in use when they close: every call ends with SocketClosed."""
        s, r = bed.linked()
        started, ended = threading.Event(), []

        def send() -> None:
            try:
                while True:
                    self.send(s, [b"x" * 5000], None)
            except mq.SocketClosed as error:
                ended.append(error)

        def recv() -> None:
            try:
                while True:
                    self.recv(r, None)
                    started.set()
            except mq.SocketClosed as error:
                ended.append(error)
        threads = [threading.Thread(target=fn) for fn in (send, send, recv, recv)]
        for thread in threads:
            thread.start()
        assert started.wait(LIMIT)
        report = s.close(0)
        r.close(0)
        for thread in threads:
            thread.join(LIMIT)
            assert not thread.is_alive()
        assert len(ended) == 4 and s.close() is report

    @live
    def test_a_cancelled_call_takes_nothing(self, bed: Bed) -> None:
        """A receive and a connect, cancelled while they wait; the next message is there."""
        s, r = bed.linked()

        async def main() -> bytes:
            task = asyncio.ensure_future(r.arecv())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            if "refused" not in self.gaps():
                url = bed.nowhere()
                task = asyncio.ensure_future(
                    s.aconnect(url, wait=LIMIT, **self.connect_options))
                await asyncio.sleep(0.01)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert len(s.endpoints) == 1, "nothing stays behind"
            return b"done"
        assert asyncio.run(main()) == b"done"
        self.deliver(s, r, [b"after"])

    # -- limits ------------------------------------------------------------------------------------

    @live
    @needs("backpressure", "reliable", "ordered", "large")
    def test_a_stalled_reader_stalls_the_sender(self, bed: Bed) -> None:
        """A sender at its HWM waits. What it took until then is bounded, and all of it arrives
        when the reader continues. Bodies are noise, which no filter can compress."""
        small: dict[str, Any] = {"send_buffer": BODY, "recv_buffer": BODY}
        s, r = bed.linked(send_hwm=4, recv_hwm=4, **small)
        sent = 0
        with pytest.raises(mq.SendTimeout) as caught:
            while True:
                self.send(s, [b"%d " % sent + os.urandom(BODY)], 0.2)
                sent += 1
                assert sent < 1000, "64 MB are on their way, and nothing holds the sender back"
        assert caught.value.why == "full" and sent > 0
        laws(s)
        laws(r)
        got = [int(self.recv(r)[0].split()[0]) for _ in range(sent)]
        assert got == list(range(sent))
        self.deliver(s, r, [b"goes on"])
        assert sum(laws(s).total.dropped_out.values()) == 0

    @live
    @needs("limit", "connection")
    def test_a_message_above_the_limit_is_refused(self, bed: Bed) -> None:
        """Its connection ends with a reason; what came before is there, what comes after too."""
        r = bed.socket(self.receiver, max_message_size=1000)
        at = bed.bind(r)
        events = r.events()
        s = bed.connected(self.sender, at, **FAST)
        bed.meet(s, 1)
        self.prepare(s, r)
        self.deliver(s, r, [b"x" * 1000])
        self.send(s, [b"x" * 1001])
        while (event := events.get(LIMIT)).kind != "Disconnected":
            pass
        assert event.reason
        if "reconnect" not in self.gaps():
            until(lambda: s.stats().reconnects >= 1)
            bed.meet(s, 1)
            self.deliver(s, r, [b"small again"])
        laws(s)
        laws(r)
