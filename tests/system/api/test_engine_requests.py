"""What a message engine may ask of its host, and report to it: a set of descriptors, calls by the
clock, a pause between writes, losses by source, an end that takes time, errors at open."""

import os
import socket
import time

import pytest
from mqcore.testing.native.paced import Pulse

import mqcore as mq
from mqcore import events
from mqcore.errors import AddressNotAvailable
from mqcore.spi.transport import Listening, MessageTransport
from mqcore.testing import installed

LIMIT = 20.0


class PulseTransport(MessageTransport):
    """Each socket is a connection by itself, opened by the caller of bind() and connect()."""

    scheme = "pulse"
    doc = "a source of nothing"
    accepts = False

    def __init__(self):
        self.pulse = Pulse()
        self.others = []

    def new(self, address):
        if address == "nowhere":
            raise AddressNotAvailable("there is no interface nowhere")
        ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.others.append(other)
        ours.setblocking(False)
        return ours

    def listen(self, address, options):
        return Listening((self.new(address),), address)

    def adopt(self, address, options):
        return self.new(address)

    def open(self, sock, role, options):
        return self.pulse.engine()
        yield ""


@pytest.fixture
def transport():
    made = PulseTransport()
    with installed("transport", made):
        yield made
    made.pulse.close()
    for other in made.others:
        other.close()


@pytest.fixture
def pulse(transport):
    return transport.pulse


def until(done):
    end = time.monotonic() + LIMIT
    while not done():
        assert time.monotonic() < end
        time.sleep(0.002)


def sub(ctx):
    made = ctx.socket("sub", topics=[b""])
    made.bind("pulse://here")
    made.wait_peers(1, timeout=LIMIT)
    return made


def test_a_descriptor_of_the_set_is_an_edge_while_the_engine_has_an_interest_in_it(pulse):
    with mq.Context() as ctx, sub(ctx) as sock:
        pulse.do(give=3)
        pulse.ring(0)
        assert [sock.recv(timeout=LIMIT) for _ in range(3)] == [b"beat"] * 3
        pulse.change(1, True)
        pulse.do(give=1)
        pulse.ring(1)
        assert sock.recv(timeout=LIMIT) == b"beat"
        pulse.change(0, False)
        pulse.do(give=1)
        pulse.ring(1)
        assert sock.recv(timeout=LIMIT) == b"beat"


def test_many_messages_of_a_set_arrive_in_turns(pulse):
    """More than one turn reads: the host comes back without another edge."""
    with mq.Context() as ctx, sub(ctx) as sock:
        pulse.do(give=20_000)
        pulse.ring(0)
        assert sum(len(sock.recv_many(timeout=LIMIT)) for _ in iter(
            lambda: sock.stats().received < 20_000, False)) == 20_000


def test_an_idle_engine_is_called_by_the_clock_as_long_as_it_asks(pulse):
    with mq.Context() as ctx, sub(ctx):
        pulse.set_up(period=0.001)
        pulse.ring(0)
        until(lambda: pulse.reads > 50)
        pulse.set_up(period=0)
        until(lambda: pulse.reads == (time.sleep(0.05), pulse.reads)[1])


def test_a_waiting_receive_gets_what_the_clock_brings(pulse):
    with mq.Context() as ctx, sub(ctx) as sock:
        pulse.set_up(period=0.001)
        pulse.ring(0)
        until(lambda: pulse.reads > 3)
        pulse.do(give=1)
        assert sock.recv(timeout=LIMIT) == b"beat"


def test_a_write_is_offered_again_after_the_time_that_the_engine_gives(pulse):
    with mq.Context() as ctx, ctx.socket("pub") as pub:
        pub.connect("pulse://there", wait=LIMIT)
        pulse.set_up(refusals=50)
        for _ in range(10):
            pub.send(b"x")
        until(lambda: pulse.written == 10)
        [stats] = pub.stats().peers.values()
        assert (stats.offered, stats.written, stats.queued_out) == (10, 10, 0)


def test_losses_are_events_and_counters_by_source(pulse):
    with mq.Context() as ctx, sub(ctx) as sock:
        seen = sock.events()
        for lose in (3, 5, 3):
            pulse.do(lose=lose)
            pulse.ring(0)
            event = next(e for e in seen if isinstance(e, events.Lost))
            assert event.reason == f"{lose} from source {lose}" and event.peer is not None
        stats = sock.stats()
        assert stats.lost == {"source 3": 6, "source 5": 5}
        [peer] = stats.peers.values()
        assert (peer.lost, peer.read, peer.dropped) == (11, 0, {})
        pulse.do(give=1)
        pulse.ring(0)
        assert sock.recv(timeout=LIMIT) == b"beat"


@pytest.mark.parametrize("way", ["bind", "connect"])
def test_an_engine_that_ends_has_stopped_its_endpoint(pulse, way):
    """However it was opened: there is an event, and the state says so."""
    with mq.Context() as ctx, ctx.socket("sub", topics=[b""]) as sock:
        getattr(sock, way)("pulse://here")
        sock.wait_peers(1, timeout=LIMIT)
        seen = sock.events()
        [peer] = sock.peers()
        sock._links.end_peer(peer.id)
        event = next(e for e in seen if isinstance(e, events.Stopped))
        [endpoint] = sock.endpoints
        assert endpoint.state == "stopped" and str(endpoint.error) == event.reason
        assert event.endpoint == endpoint.url and event.reason in sock.explain()


@pytest.mark.parametrize("way", ["bind", "connect"])
@pytest.mark.parametrize("end", ["socket", "endpoint"])
def test_what_the_program_closes_has_not_stopped(pulse, way, end):
    with mq.Context() as ctx, ctx.socket("sub", topics=[b""]) as sock:
        endpoint = getattr(sock, way)("pulse://here")
        sock.wait_peers(1, timeout=LIMIT)
        seen = sock.events()
        (sock if end == "socket" else endpoint).close()
        sock.close()
        kinds = [type(event) for event in seen]
        assert events.Disconnected in kinds and events.Stopped not in kinds


def test_close_waits_for_the_engine_and_for_linger_at_most(pulse):
    with mq.Context() as ctx:
        pub = ctx.socket("pub")
        pub.connect("pulse://there", wait=LIMIT)
        pulse.set_up(unflushed=20)
        report = pub.close(linger=LIMIT)
        assert (report.unacked, pulse.unflushed, pulse.finished) == (0, 0, 1)
        pub = ctx.socket("pub")
        pub.connect("pulse://there", wait=LIMIT)
        pulse.set_up(unflushed=1 << 40)
        report = pub.close(linger=0.05)
        assert report.unacked > 0 and not report and pulse.finished == 2


@pytest.mark.parametrize("way", ["bind", "connect"])
def test_errors_at_open_are_raised_to_the_caller(transport, way):
    with mq.Context() as ctx, ctx.socket("sub") as sock:
        with pytest.raises(AddressNotAvailable, match="no interface nowhere"):
            getattr(sock, way)("pulse://nowhere")
        assert sock.endpoints == ()


def test_a_forked_child_has_none_of_the_descriptors(pulse):
    with mq.Context() as ctx, sub(ctx):
        pulse.set_up(period=0.001)
        pulse.ring(0)
        until(lambda: pulse.reads > 3)
        timers = [int(n) for n in os.listdir("/proc/self/fd")
                  if "timerfd" in os.path.realpath(f"/proc/self/fd/{n}")]
        assert timers
        child = os.fork()
        if child == 0:
            left = [fd for fd in (*pulse.descriptors(), *timers)
                    if os.path.exists(f"/proc/self/fd/{fd}")]
            os._exit(len(left))
        assert os.waitpid(child, 0)[1] == 0
