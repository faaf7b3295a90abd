"""MulticastSuite: what a transport over multicast must do, with TransportSuite. Subclass it:

    class TestEpgm(MulticastSuite):
        scheme, group, rate = "epgm", "239.192.5.1", "pgm_rate"
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest

import mqcore as mq
from mqcore import events
from mqcore.testing.suite import LIMIT, live
from mqcore.testing.transport_suite import TransportSuite

PORTS = itertools.count(20_000 + os.getpid() % 20_000)
ISOLATED = ("-S",) if sys.flags.no_site else ()
NO_ROUTE = """
import mqcore as mq, sys
for way in ("bind", "connect"):
    for pattern in ("pub", "sub"):
        with mq.Context().socket(pattern) as sock:
            try:
                getattr(sock, way)(sys.argv[1])
            except mq.Error as error:
                print(type(error).__name__, error)
"""

IPV6 = """
import sys, mqcore as mq
from mqcore.testing.multicast_suite import hear
url = sys.argv[1]
with mq.Sub(topics=[""], bind=url) as sub, mq.Pub(bind=url) as pub:
    hear(pub, sub)
    print(sub.endpoints[0].url == url)
try:
    mq.Sub(bind=url.replace("a0", "lo"))
except mq.AddressNotAvailable as error:
    print(error)
"""
# without a link-local address, which is not ready at once
PAIR = "ip link set lo up; ip link add a0 type veth peer name b0; " \
       "ip link set a0 addrgenmode none; ip link set a0 up; ip link set b0 up; " \
       "ip address add fd00::1/64 dev a0 nodad; exec \"$@\""
NO_DESCRIPTORS = """
import os, resource, sys, mqcore as mq
with mq.Context() as context:
    context.socket("sub", bind=sys.argv[1]).close()
    for free in range(12):
        sock = context.socket("sub")
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 4096))
        taken = []
        try:
            while True:
                taken.append(os.dup(0))
        except OSError:
            pass
        for _ in range(free):
            os.close(taken.pop())
        try:
            sock.bind(sys.argv[1])
        except mq.BindError as error:
            print(free, error.errno == 24 or "Too many open files" in str(error), error)
        for fd in taken:
            os.close(fd)
        sock.close(linger=0)
"""


def hear(pub: Any, sub: Any) -> None:
    """Until the subscriber knows the source."""
    while True:
        pub.send(b"hello")
        try:
            sub.recv(timeout=0.1)
            break
        except mq.RecvTimeout:
            pass
    pub.send(b"begin")
    while sub.recv(timeout=LIMIT) != b"begin":
        pass


class MulticastSuite(TransportSuite):
    """Tests of a transport with the addresses interface;group:port, for PUB and SUB. Set `scheme`,
    and:"""

    #: a group that no other suite uses
    group: ClassVar[str] = ""
    #: the option for bind() that limits the rate, in kbit/s
    rate: ClassVar[str] = ""
    bad = ("", "239.192.1.1", "lo;10.0.0.1:5555", "lo;239.192.1.1:port", ";239.192.1.1:5555")
    sender, receiver = "pub", "sub"

    def fresh(self) -> str:
        """An address that no other test uses."""
        return f"{self.scheme}://lo;{self.group}:{next(PORTS)}"

    def url(self, tmp_path: Path) -> str:
        return self.fresh()

    def prepare(self, sender: Any, receiver: Any) -> None:
        receiver.subscribe(b"")

    @live
    @pytest.mark.parametrize("sender", ["pub", "xpub"])
    @pytest.mark.parametrize("receiver", ["sub", "xsub"])
    @pytest.mark.parametrize("way", ["bind", "connect"])
    def test_patterns_and_ways(self, mq_context: Any, sender: str, receiver: str,
                               way: str) -> None:
        url = self.fresh()
        out, back = mq_context.socket(sender), mq_context.socket(receiver)
        if receiver == "sub":     # an XSUB gets everything
            back.subscribe(b"")
        getattr(back, way)(url)
        getattr(out, "bind" if way == "connect" else "connect")(url)
        hear(out, back)
        for size in (0, 1, 254, 255, 1500, 100_000, 1_000_000):
            out.send_parts([b"a", bytes(size), b""])
            assert back.recv_parts(timeout=LIMIT) == [b"a", bytes(size), b""]
        assert back.stats().lost == {}

    @live
    def test_the_subscriber_filters(self, mq_context: Any) -> None:
        url = self.fresh()
        pub, sub = mq_context.socket("pub", bind=url), mq_context.socket("sub", bind=url)
        for topic in (b"hello", b"begin", b"EUR"):
            sub.subscribe(topic)
        hear(pub, sub)
        for n in range(100):
            pub.send_parts([b"EUR" if n % 2 else b"USD", b"%d" % n])
        assert [int(sub.recv_parts(timeout=LIMIT)[1]) for _ in range(50)] == list(range(1, 100, 2))
        [peer] = sub.stats().peers.values()
        assert peer.dropped_in["unsubscribed"] == 50

    @live
    def test_several_sources_at_one_subscriber(self, mq_context: Any) -> None:
        """Large messages of four publishers come in packets that are mixed, each one whole."""
        url = self.fresh()
        sub = mq_context.socket("sub", topics=[b""], bind=url, recv_hwm=None, recv_hwm_bytes=None)
        pubs = [mq_context.socket("pub", bind=url, nodrop=True) for _ in range(4)]
        for pub in pubs:
            hear(pub, sub)
        for n in range(25):
            for k, pub in enumerate(pubs):
                pub.send_parts([b"%d" % k, b"%d" % n, bytes([k]) * 20_000])
        seen: dict[int, list[int]] = {k: [] for k in range(4)}
        for _ in range(100):
            k, n, body = sub.recv_parts(timeout=LIMIT)
            seen[int(k)].append(int(n))
            assert body == bytes([int(k)]) * 20_000
        assert seen == {k: list(range(25)) for k in range(4)}
        assert sub.stats().lost == {}

    @live
    def test_a_late_subscriber_begins_with_a_whole_message(self, mq_context: Any) -> None:
        url = self.fresh()
        pub, early = (mq_context.socket("pub", bind=url, nodrop=True),
                      mq_context.socket("sub", topics=[b""], bind=url))
        hear(pub, early)
        late = mq_context.socket("sub", topics=[b"n"])
        for n in range(300):
            if n == 100:
                late.bind(url)
            pub.send_parts([b"n", b"%d" % n, bytes(5000)])
            early.recv_parts(timeout=LIMIT)
        first = int(late.recv_parts(timeout=LIMIT)[1])
        assert first >= 100
        for n in range(first + 1, 300):
            parts = late.recv_parts(timeout=LIMIT)
            assert parts == [b"n", b"%d" % n, bytes(5000)]
        assert late.stats().lost == {}

    @live
    def test_a_message_above_the_limit_is_a_loss_and_ends_nothing(self, mq_context: Any) -> None:
        url = self.fresh()
        pub = mq_context.socket("pub", bind=url)
        sub = mq_context.socket("sub", topics=[b""], max_message_size=1000)
        seen = sub.events()
        sub.bind(url)
        hear(pub, sub)
        pub.send(bytes(5000))
        pub.send(b"after")
        assert sub.recv(timeout=LIMIT) == b"after"
        assert next(e for e in seen if isinstance(e, events.Lost)).reason.startswith("1 from ")
        [peer] = sub.stats().peers.values()
        assert peer.lost == 1

    @live
    @pytest.mark.slow
    def test_without_a_limit_a_message_may_have_any_size(self, mq_context: Any) -> None:
        url = self.fresh()
        pub = mq_context.socket("pub", nodrop=True, send_hwm_bytes=None)
        sub = mq_context.socket("sub", topics=[b""], bind=url, max_message_size=None,
                                recv_hwm_bytes=None)
        pub.bind(url, **{self.rate: 1_000_000})
        hear(pub, sub)
        pub.send(bytes(65 << 20))
        pub.send(b"after")
        assert len(sub.recv(timeout=5 * LIMIT)) == 65 << 20
        assert sub.recv(timeout=LIMIT) == b"after"

    @live
    def test_close_delivers_within_linger_and_reports(self, mq_context: Any) -> None:
        url = self.fresh()
        pub, sub = (mq_context.socket("pub", bind=url, nodrop=True, send_hwm=None),
                    mq_context.socket("sub", topics=[b""], bind=url, recv_hwm=None))
        hear(pub, sub)
        for n in range(2000):
            pub.send(b"%d" % n)
        report = pub.close(linger=LIMIT)
        assert (report.undelivered, report.unacked, bool(report)) == (0, 0, True)
        assert [int(sub.recv(timeout=LIMIT)) for _ in range(2000)] == list(range(2000))

    @live
    def test_a_rate_limit_holds_the_publisher_back(self, mq_context: Any) -> None:
        """200 kB at 800 kbit/s are two seconds, less what may leave at once."""
        url = self.fresh()
        pub, sub = (mq_context.socket("pub", nodrop=True),
                    mq_context.socket("sub", topics=[b""], bind=url))
        pub.bind(url, **{self.rate: 800})
        hear(pub, sub)
        started = time.monotonic()
        for _ in range(200):
            pub.send(bytes(1000))
        for _ in range(200):
            sub.recv(timeout=LIMIT)
        assert time.monotonic() - started > 1.0

    @live
    @pytest.mark.skipif(os.geteuid() != 0, reason="a namespace takes root")
    def test_without_a_route_there_is_a_clear_error(self, tmp_path: Path) -> None:
        program = tmp_path / "program.py"
        program.write_text(NO_ROUTE)
        done = subprocess.run(
            ["unshare", "-n", sys.executable, *ISOLATED, program,
             f"{self.scheme}://239.192.1.1:5555"], capture_output=True, text=True, timeout=120)
        lines = done.stdout.splitlines()
        assert len(lines) == 4, done.stderr
        assert all("no route leads to the group" in line and "name the interface" in line
                   for line in lines), lines

    @live
    @pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"),
                        reason="a namespace takes root, and `ip`")
    def test_ipv6_groups_at_an_interface_that_carries_them(self, tmp_path: Path) -> None:
        """Loopback carries none: the error says so."""
        program = tmp_path / "program.py"
        program.write_text(IPV6)
        done = subprocess.run(
            ["unshare", "-n", "sh", "-c", PAIR, "sh", sys.executable, *ISOLATED, program,
             f"{self.scheme}://a0;[ff05::1234]:5555"], capture_output=True, text=True, timeout=120)
        works, refused = done.stdout.splitlines() or pytest.fail(done.stderr)
        assert works == "True"
        assert "lo has no route to the group" in refused

    @live
    def test_without_free_descriptors_the_error_says_so(self, tmp_path: Path) -> None:
        program = tmp_path / "program.py"
        program.write_text(NO_DESCRIPTORS)
        done = subprocess.run(
            [sys.executable, *ISOLATED, program, f"{self.scheme}://lo;{self.group}:5555"],
            capture_output=True, text=True, timeout=120)
        assert not done.returncode, done.stderr
        lines = done.stdout.splitlines()
        assert len(lines) > 1
        assert all(line.split()[1] == "True" for line in lines), lines
