"""Radio and Dish over udp://: the datagrams byte by byte, multicast, and everything that goes
wrong. The peers are plain sockets of the loopback interface."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from machine import ipv6

import mqcore as mq

LIMIT = 60.0
GROUP = "239.9.8.7"
VECTORS = {v["name"]: bytes.fromhex(v["hex"]) for v in json.loads(
    Path(__file__).parents[2].joinpath("vectors.json").read_text()) if v["group"] == "zmq_draft"}




def until(done, why=""):
    end = time.monotonic() + LIMIT
    while not done():
        assert time.monotonic() < end, why
        time.sleep(0.002)


def place(sock):
    host, port = sock.endpoints[0].url.removeprefix("udp://").rsplit(":", 1)
    return host, int(port)


def url_of(plain):
    return f"udp://127.0.0.1:{plain.getsockname()[1]}"


@pytest.fixture
def plain():
    """A datagram socket of the other side."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(LIMIT)
        yield sock


@pytest.fixture
def radio(ctx, plain):
    """Connected to `plain`."""
    made = ctx.socket("radio", connect=url_of(plain))
    made.wait_subscribers(timeout=LIMIT)
    return made


@pytest.fixture
def dish(ctx):
    made = ctx.socket("dish", groups="tv", bind="udp://127.0.0.1:0")
    made.wait_peers(timeout=LIMIT)
    return made


def laws(sock):
    for peer in sock.stats().peers.values():
        assert peer.offered == peer.written + peer.queued_out + sum(peer.dropped_out.values())
        assert peer.read == peer.delivered + peer.queued_in + sum(peer.dropped_in.values())


def of(sock):
    (stats,) = sock.stats().peers.values()
    return stats


# -- the layout ------------------------------------------------------------------------------------

def test_bytes_out(radio, plain):
    radio.send(b"body!", group="tv")
    assert plain.recv(65536) == VECTORS["udp_radio_datagram"]
    radio.send(b"", group="")
    assert plain.recv(65536) == b"\0"
    radio.send(b"x" * 60000, group="g" * 127)
    assert plain.recv(65536) == b"\x7f" + b"g" * 127 + b"x" * 60000
    until(lambda: of(radio).written == 3)
    laws(radio)


def test_bytes_in(dish, plain):
    plain.sendto(VECTORS["udp_dish_datagram"], place(dish))
    got = dish.recv_msg(timeout=LIMIT)
    assert (got.group, got.body) == ("tv", b"hello")
    dish.join(b"g" * 255, "")
    plain.sendto(b"\xff" + b"g" * 255 + b"x" * 5000, place(dish))
    plain.sendto(b"\0", place(dish))
    assert [len(dish.recv(timeout=LIMIT)) for _ in range(2)] == [5000, 0]
    laws(dish)


@pytest.mark.parametrize("size", [0, 1, 53, 54, 55, 56, 57, 1000, 8000, 8192, 8193, 65504])
def test_sizes(ctx, dish, size):
    with ctx.socket("radio", connect=dish.endpoints[0].url) as out:
        out.wait_subscribers(timeout=LIMIT)
        body = os.urandom(size)
        out.send(body, group="tv")
        assert dish.recv(timeout=LIMIT) == body


def test_a_burst(ctx, dish):
    """More than one system call's worth, from an array, in order."""
    with ctx.socket("radio", connect=dish.endpoints[0].url) as out:
        out.wait_subscribers(timeout=LIMIT)
        for round in range(20):
            bodies = [b"%d " % round + b"x" * (i * 9 % 700) for i in range(100)]
            out.send_many(bodies, group="tv")
            assert [dish.recv(timeout=LIMIT) for _ in bodies] == bodies
        until(lambda: of(out).written == 2000)
        laws(out)
        laws(dish)


@ipv6
def test_ipv6(ctx):
    with ctx.socket("dish", groups="g", bind="udp://[::1]:0") as into, \
            ctx.socket("radio", connect=into.endpoints[0].url) as out:
        out.wait_subscribers(timeout=LIMIT)
        out.send(b"x" * 65525, group="g")         # 20 bytes more than IPv4 has room for
        assert len(into.recv(timeout=LIMIT)) == 65525
        out.send(b"x" * 65526, group="g")
        until(lambda: of(out).dropped.get("unsendable") == 1)


def test_awaited(ctx, loop):
    async def talk():
        async with ctx.socket("dish", groups="g") as into, ctx.socket("radio") as out:
            end = await into.abind("udp://127.0.0.1:0")
            await out.aconnect(end.url)
            await out.await_subscribers("g", timeout=LIMIT)
            for i in range(200):
                await out.asend(b"%d" % i, group="g")
                assert await into.arecv(timeout=LIMIT) == b"%d" % i

    loop.run(talk)


# -- what is lost is counted -----------------------------------------------------------------------

MALFORMED = [b"", b"\x09tv", b"\x01", b"\xff" + b"g" * 254]


def test_bad_datagrams_are_dropped_and_counted(dish, plain):
    for datagram in MALFORMED:
        plain.sendto(datagram, place(dish))
    plain.sendto(b"\x02TVother", place(dish))
    plain.sendto(b"\x02tvafter", place(dish))
    assert dish.recv(timeout=LIMIT) == b"after"
    assert of(dish).dropped_in == {"malformed": len(MALFORMED), "unsubscribed": 1}
    assert of(dish).read == len(MALFORMED) + 2
    laws(dish)


def test_random_datagrams(dish, plain):
    for i in range(2000):
        plain.sendto(os.urandom(i % 97), place(dish))
        if i % 50 == 49:
            plain.sendto(b"\x02tv%d" % i, place(dish))
            while dish.recv(timeout=LIMIT) != b"%d" % i:
                pass                              # a random one that was a message
    laws(dish)


def test_max_message_size_is_of_group_and_body(ctx, plain):
    with ctx.socket("dish", groups="tv", bind="udp://127.0.0.1:0", max_message_size=10) as into:
        plain.sendto(b"\x02tv" + b"x" * 9, place(into))
        plain.sendto(b"\x02tv" + b"x" * 8, place(into))
        assert into.recv(timeout=LIMIT) == b"x" * 8
        assert of(into).dropped_in == {"malformed": 1}


@pytest.mark.parametrize("group,size", [("g" * 128, 1), ("g", 65506), ("g" * 127, 65380),
                                        ("", 10_000_000)])
def test_what_no_datagram_can_carry(radio, plain, group, size):
    radio.send(b"x" * size, group=group)
    radio.send(b"after", group="g")
    assert plain.recv(65536) == b"\x01gafter"
    until(lambda: of(radio).written == 1)
    assert of(radio).dropped_out == {"unsendable": 1}
    laws(radio)


def test_largest(radio, plain):
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
    radio.send(b"x" * 65505, group="g")
    assert len(plain.recv(65536)) == 65507


def test_what_the_kernel_drops_is_counted(ctx, plain):
    """A socket at its high-water mark does not read, and the kernel's buffer overflows. On the
    loopback each datagram is in that buffer or dropped when sendto returns."""
    with ctx.socket("dish", groups="tv", recv_hwm=10) as into:
        into.bind("udp://127.0.0.1:0", recv_buffer=4096)
        into.wait_peers(timeout=LIMIT)
        for i in range(3000):
            plain.sendto(b"\x02tv%d" % i, place(into))
        got = []

        def drained():
            with contextlib.suppress(mq.RecvTimeout):
                while True:
                    got.append(int(into.recv(timeout=0)))
            return (of(into).read, of(into).queued_in) == (3000, 0)

        until(drained)
        assert got == sorted(set(got)) and 0 < len(got) < 3000
        assert of(into).dropped_in == {"full": 3000 - len(got)}
        laws(into)


def test_refused_is_counted_and_harmless(ctx):
    """While no socket is bound, ICMP reports the refusal; later one is."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as late:
        late.bind(("127.0.0.1", 0))
        port = late.getsockname()[1]
    with ctx.socket("radio", connect=f"udp://127.0.0.1:{port}") as out:
        out.wait_subscribers(timeout=LIMIT)
        until(lambda: out.send(b"x", group="g") or of(out).bounced > 3)
        assert len(out.peers()) == 1 and out.endpoints[0].state == "connected"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as late:
            late.bind(("127.0.0.1", port))
            late.settimeout(LIMIT)
            out.send(b"there", group="g")
            while (got := late.recv(100)) != b"\x01gthere":
                assert got == b"\x01gx"
        until(lambda: of(out).queued_out == 0)
        assert of(out).written == of(out).offered
        laws(out)


def test_whatever_answers_a_radio_is_unexpected(radio, plain):
    radio.send(b"x", group="g")
    _, where = plain.recvfrom(100)
    plain.sendto(b"\x01gback", where)
    plain.sendto(b"", where)
    until(lambda: of(radio).dropped_in == {"unexpected": 2})
    radio.send(b"y", group="g")
    assert plain.recv(100) == b"\x01gy"
    laws(radio)


def test_close_sends_what_was_accepted(ctx, plain):
    out = ctx.socket("radio", connect=url_of(plain))
    out.wait_subscribers(timeout=LIMIT)
    for i in range(100):
        out.send(b"%d" % i, group="g")
    report = out.close(LIMIT)
    assert (report.written, report.undelivered) == (100, 0)
    assert [plain.recv(100) for _ in range(100)] == [b"\x01g%d" % i for i in range(100)]


def test_before_there_is_a_socket_messages_are_unmatched(ctx):
    with ctx.socket("radio") as out:
        out.send(b"x", group="g")
        assert out.stats().unmatched == 1


# -- groups, peers, addresses ----------------------------------------------------------------------

def test_join_and_leave_at_any_time(ctx, dish):
    with ctx.socket("radio", connect=dish.endpoints[0].url) as out:
        out.wait_subscribers(timeout=LIMIT)
        for i in range(100):
            dish.join(f"g{i % 9}")
            out.send(b"%d" % i, group=f"g{i % 9}")
            assert dish.recv(timeout=LIMIT) == b"%d" % i
            dish.leave(f"g{i % 9}")
        assert of(dish).delivered == 100
        laws(dish)


def test_many_radios_are_one_peer(ctx, dish):
    radios = [ctx.socket("radio", connect=dish.endpoints[0].url) for _ in range(8)]
    for i, out in enumerate(radios):
        out.wait_subscribers(timeout=LIMIT)
        out.send(b"%d" % i, group="tv")
    assert {dish.recv(timeout=LIMIT) for _ in radios} == {b"%d" % i for i in range(8)}
    assert len(dish.peers()) == 1


def test_a_radio_of_many_kinds(ctx, dish):
    """Dishes by udp and by tcp on one radio: those that can say so get what they joined only."""
    with ctx.socket("radio", bind="tcp://127.0.0.1:0", connect=dish.endpoints[0].url) as out, \
            ctx.socket("dish", groups="a", connect=out.endpoints[0].url) as other:
        until(lambda: out._subscribers(b"a") == 2)
        for group in ("b", "a", "tv"):
            out.send(group.encode(), group=group)
        assert (other.recv(timeout=LIMIT), dish.recv(timeout=LIMIT)) == (b"a", b"tv")
        assert out.stats().unmatched == 0


def test_unbind_and_bind_again(dish, plain):
    url = dish.endpoints[0].url
    dish.unbind(url)
    assert dish.peers() == []
    dish.bind(url)
    dish.wait_peers(timeout=LIMIT)
    plain.sendto(b"\x02tvagain", place(dish))
    assert dish.recv(timeout=LIMIT) == b"again"


def test_addresses_and_people(ctx, dish):
    with ctx.socket("radio", connect=dish.endpoints[0].url) as out:
        out.wait_subscribers(timeout=LIMIT)
        (peer,) = out.peers()
        assert peer.address == dish.endpoints[0].url
        assert (peer.routing_id, peer.pid) == (b"", None)
        assert dish.endpoints[0].url in out.explain()
    with pytest.raises(mq.AddressInUse):
        ctx.socket("dish", bind=dish.endpoints[0].url)


def test_storms_of_sockets_leave_nothing(ctx):
    with ctx.socket("dish", groups="g", bind="udp://127.0.0.1:0") as into:
        def storm():
            for _ in range(30):
                with ctx.socket("radio", connect=into.endpoints[0].url) as out:
                    out.wait_subscribers(timeout=LIMIT)
                    out.send(b"x", group="g")
        threads = [threading.Thread(target=storm) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _ in range(120):
            assert into.recv(timeout=LIMIT) == b"x"


# -- multicast -------------------------------------------------------------------------------------

def listen_all(ctx, n, url, groups="g"):
    first = ctx.socket("dish", groups=groups, bind=url)
    return [first] + [ctx.socket("dish", groups=groups, bind=first.endpoints[0].url)
                      for _ in range(n - 1)]


@pytest.mark.parametrize("interface", ["lo", "127.0.0.1"])
def test_multicast_reaches_every_dish(ctx, interface):
    dishes = listen_all(ctx, 3, f"udp://{interface};{GROUP}:0")
    with ctx.socket("radio", connect=dishes[0].endpoints[0].url) as out:
        out.wait_subscribers(timeout=LIMIT)
        for i in range(100):
            out.send(b"%d" % i, group="g")
            assert [d.recv(timeout=LIMIT) for d in dishes] == [b"%d" % i] * 3


def test_multicast_without_loop_stays_away(ctx):
    (into,) = listen_all(ctx, 1, f"udp://lo;{GROUP}:0")
    url = into.endpoints[0].url
    with ctx.socket("radio", connect=url + "?multicast_loop=no") as silent, \
            ctx.socket("radio", connect=url) as out:
        for s in (silent, out):
            s.wait_subscribers(timeout=LIMIT)
        until(lambda: of(silent).offered == of(silent).written)
        out.send(b"heard", group="g")
        assert into.recv(timeout=LIMIT) == b"heard"


def test_a_dish_of_a_group_hears_this_group_only(ctx, plain):
    (into,) = listen_all(ctx, 1, f"udp://lo;{GROUP}:0")
    port = place(into)[1]
    (other,) = listen_all(ctx, 1, f"udp://lo;239.9.8.6:{port}")
    plain.sendto(b"\x01gunicast", ("127.0.0.1", port))
    for address, body in (("239.9.8.6", b"other"), (GROUP, b"ours")):
        with ctx.socket("radio", connect=f"udp://lo;{address}:{port}") as out:
            out.wait_subscribers(timeout=LIMIT)
            out.send(body, group="g")
    assert (into.recv(timeout=LIMIT), other.recv(timeout=LIMIT)) == (b"ours", b"other")
    assert of(into).read == 1


MULTICAST_6 = """
import sys
import mqcore as mq
LIMIT = 60.0
with mq.Context() as ctx:
    dishes = [ctx.socket("dish", groups="g", bind="udp://mc0;[ff12::1:2]:0")]
    dishes.append(ctx.socket("dish", groups="g", bind=dishes[0].endpoints[0].url))
    out = ctx.socket("radio", connect=dishes[0].endpoints[0].url)
    out.wait_subscribers(timeout=LIMIT)
    out.send(b"six", group="g")
    print([d.recv(timeout=LIMIT) for d in dishes])
    four = ctx.socket("dish", groups="g", bind="udp://239.1.2.3:0")   # the only interface there is
    out = ctx.socket("radio", connect=four.endpoints[0].url)
    out.wait_subscribers(timeout=LIMIT)
    out.send(b"four", group="g")
    print(four.recv(timeout=LIMIT))
"""


@ipv6
def test_multicast_over_a_network_of_its_own():
    """A network namespace with one interface: IPv6, and IPv4 by the routing table."""
    setup = ("ip link set lo up && ip link add mc0 type veth peer name mc1 && "
             "ip link set mc1 up && ip link set mc0 up && ip addr add 198.51.100.1/24 dev mc0 && "
             "ip -6 addr add fd00:9::1/64 dev mc0 nodad && ip route add 224.0.0.0/4 dev mc0")
    apart = ["unshare", "-rn", "sh", "-c"]
    inside = subprocess.run([*apart, setup], capture_output=True, text=True)
    if inside.returncode:
        pytest.skip(f"no network namespace can be made here: {inside.stderr.strip()[:200]}")
    done = subprocess.run([*apart, f"{setup} && exec {sys.executable} -c '{MULTICAST_6}'"],
                          capture_output=True, text=True, timeout=200)
    assert done.stdout.splitlines() == ["[b'six', b'six']", "b'four'"], done.stderr


def test_a_datagram_that_the_route_has_no_room_for_is_counted_once_as_unsendable(radio, plain):
    """IP options leave less room than an address without them: EMSGSIZE, from the local kernel."""
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if not str(entry.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as sock:
                if sock.type == socket.SOCK_DGRAM and sock.getpeername() == plain.getsockname():
                    sock.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, b"\x01" * 40)
    radio.send(b"x" * 65_490, group="g")
    until(lambda: of(radio).dropped_out == {"unsendable": 1})
    radio.send(b"fits", group="g")
    assert plain.recv(100) == b"\x01gfits"
    stats = of(radio)
    assert (stats.bounced, stats.written, stats.dropped_out) == (0, 1, {"unsendable": 1})
