"""Peers that vanish without a word: keep-alive, the Idle event, and the device that packets use."""

import contextlib
import errno
import os
import socket

import pytest
from namespaces import inside, sh
from own_sockets import our_connections

import mqcore as mq

PROBES = {"keepalive_idle": 1, "keepalive_interval": 1, "keepalive_count": 2}


def tcp_option(sock, number):
    return sock.getsockopt(socket.IPPROTO_TCP, number)


def kept_alive(sock):
    """(on, idle, interval, count) as the kernel has them."""
    return (bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)),
            *(tcp_option(sock, n) for n in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL,
                                            socket.TCP_KEEPCNT)))


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
def test_keep_alive_is_on_at_both_ends(ctx, scheme):
    pull, push = ctx.socket("pull"), ctx.socket("push")
    url = pull.bind(f"{scheme}://127.0.0.1:0").url
    push.connect(url, wait=10)
    pull.wait_peers(1, 10)
    with our_connections(int(url.rpartition(":")[2])) as socks:
        assert [kept_alive(sock) for sock in socks] == [(True, 60, 10, 6)] * 2


def test_its_times_are_options_of_socket_endpoint_and_url(ctx):
    pull = ctx.socket("pull", keepalive_idle=5)
    push = ctx.socket("push", keepalive_interval=7)
    url = pull.bind("tcp://127.0.0.1:0?keepalive_count=3", keepalive_interval=4).url
    push.connect(url + "?keepalive_idle=none", keepalive_count=2, wait=10)
    pull.wait_peers(1, 10)
    with socket.socket() as plain:
        system = kept_alive(plain)[1]
    with our_connections(int(url.rpartition(":")[2])) as socks:
        assert sorted(map(kept_alive, socks)) == sorted([(True, 5, 4, 3), (True, system, 7, 2)])


def test_it_can_be_off(ctx):
    pull, push = ctx.socket("pull", keepalive=False), ctx.socket("push", keepalive=False)
    url = pull.bind("tcp://127.0.0.1:0").url
    push.connect(url, wait=10)
    pull.wait_peers(1, 10)
    with our_connections(int(url.rpartition(":")[2])) as socks:
        assert [kept_alive(sock)[0] for sock in socks] == [False, False]


@pytest.mark.parametrize(("name", "bad"), [
    ("keepalive_idle", 0), ("keepalive_idle", 32768), ("keepalive_interval", 1.5),
    ("keepalive_count", 128), ("bind_device", b"lo"), ("idle_after", 0)])
def test_wrong_values(ctx, name, bad):
    with pytest.raises(mq.OptionError, match=name):
        ctx.socket("push", **{name: bad})


# -- the Idle event --------------------------------------------------------------------------------


def kinds(events, *wanted):
    """The next events of these kinds, in their order."""
    found = []
    while len(found) < len(wanted):
        event = events.get(10)
        if event.kind in wanted:
            found.append(event)
    assert tuple(event.kind for event in found) == wanted
    return found


@pytest.mark.parametrize("wire", ["sp", "zmtp"])
def test_a_silent_peer_is_reported_once_per_silence(ctx, wire):
    with contextlib.ExitStack() as stack:
        pub = ctx.socket("pub")
        sub = ctx.socket("sub", topics=[b""], idle_after=0.2, wire=wire, heartbeat=None)
        events = stack.enter_context(sub.events())
        sub.connect(pub.bind("tcp://127.0.0.1:0"), wait=10)
        connected, idle = kinds(events, "Connected", "Idle")
        assert idle.peer == connected.peer and "nothing has arrived from it for 0." in idle.reason
        assert idle.at - connected.at >= 0.2
        pub.wait_peers(1, 10)
        if wire == "zmtp":
            pub.wait_subscribers(timeout=10)
        pub.send(b"x")
        assert sub.recv(timeout=10) == b"x"
        again, = kinds(events, "Idle")
        assert again.at > idle.at
        pub.close()
        kinds(events, "Disconnected")
        assert not [event for event in events._queue if event.kind == "Idle"]


def test_heartbeats_are_signs_of_life_and_senders_expect_none(ctx):
    pull, push = ctx.socket("pull", heartbeat=0.05, idle_after=0.4), ctx.socket(
        "push", heartbeat=None, idle_after=0.1)
    with pull.events() as ours, push.events() as theirs:
        push.connect(pull.bind("tcp://127.0.0.1:0"), wait=10)
        kinds(ours, "Connected")
        quiet = ctx.socket("pull", heartbeat=None, idle_after=0.8)
        other = ctx.socket("push", heartbeat=None)
        with quiet.events() as clock:  # time passes
            other.connect(quiet.bind("tcp://127.0.0.1:0"), wait=10)
            kinds(clock, "Idle")
        assert not [event for event in (*ours._queue, *theirs._queue) if event.kind == "Idle"]


def test_a_watch_ends_with_its_stream_and_its_socket(ctx):
    pull = ctx.socket("pull", idle_after=0.02)
    with pull.events():
        pass
    with pull.events() as events:
        ctx.socket("push", heartbeat=None).connect(pull.bind("tcp://127.0.0.1:0"), wait=10)
        kinds(events, "Idle")
    loop = ctx._hub.loop
    pull.close()
    loop.call_wait(loop.clock)
    assert "IdleWatch" not in " ".join(repr(timer.fn) for timer in loop._timers)


# -- a network that breaks -------------------------------------------------------------------------


def cut(name):
    """No packet passes any more, and neither side gets an error."""
    sh("-n", name, "route", "add", "blackhole", "169.254.77.1/32")
    sh("-n", name, "address", "flush", "dev", f"{name}b")


@pytest.mark.parametrize("wire", ["sp", "zmtp"])
def test_a_half_open_subscriber_finds_out(ctx, network, wire):
    name, _, _, there = network
    with inside(name, f"""
            import mqcore as mq
            pub = mq.Pub(bind="tcp://{there}:5555")
            print("ready", flush=True)
            pub.wait_peers(1, 20)
            pub.wait_subscribers(timeout=20)
            pub.send(b"the last")
            input()
            """):
        sub = ctx.socket("sub", topics=[b""], wire=wire, heartbeat=None, idle_after=0.5, **PROBES)
        with sub.events() as events:
            sub.connect(f"tcp://{there}:5555")
            assert sub.recv(timeout=10) == b"the last"
            cut(name)
            _, gone, _ = kinds(events, "Idle", "Disconnected", "Retrying")
            assert os.strerror(errno.ETIMEDOUT) in gone.reason


def test_without_keep_alive_it_does_not(ctx, network):
    name, _, _, there = network
    with inside(name, f"""
            import mqcore as mq
            pub = mq.Pub(bind="tcp://{there}:5555")
            print("ready", flush=True)
            input()
            """):
        url = f"tcp://{there}:5555"
        deaf = ctx.socket("sub", wire="sp", keepalive=False)
        sub = ctx.socket("sub", wire="sp", **PROBES)
        with sub.events() as events:
            for one in (deaf, sub):
                one.connect(url, wait=10)
            cut(name)
            kinds(events, "Disconnected")
        assert len(deaf.peers()) == 1  # the other one's end shows that there was time


def test_a_publisher_finds_out_about_its_subscriber(ctx, network):
    name, _, here, _ = network
    pub = ctx.socket("pub", **PROBES)
    port = pub.bind(f"tcp://{here}:0").url.rpartition(":")[2]
    with pub.events() as events, inside(name, f"""
            import mqcore as mq
            sub = mq.Sub(topics=[b""], wire="sp")
            sub.connect("tcp://{here}:{port}", wait=10)
            print("ready", flush=True)
            input()
            """):
        pub.wait_peers(1, 10)
        cut(name)
        kinds(events, "Disconnected")
        assert pub.peers() == []


@pytest.mark.parametrize("full", [False, True])
def test_a_slow_consumer_whose_machine_goes_is_found(ctx, network, full):
    """libzmq's PULL, which sends no PING. With a closed window or with data on the way."""
    name, _, _, there = network
    push = ctx.socket("push", heartbeat=0.3, heartbeat_timeout=1.2, send_hwm=1)
    with inside(name, f"""
            import zmq
            pull = zmq.Context().socket(zmq.PULL)
            pull.rcvhwm = 1
            pull.bind("tcp://{there}:5555")
            print("ready", flush=True)
            while {not full}:
                pull.recv()
            input()
            """), push.events() as events:
        push.connect(f"tcp://{there}:5555", wait=10)
        if full:
            with pytest.raises(mq.Timeout):
                while True:
                    push.send(bytes(64_000), timeout=1)
            assert not [event for event in events._queue if event.kind == "Disconnected"]
        cut(name)
        with contextlib.suppress(mq.Timeout):
            while True:
                push.send(bytes(64_000), timeout=1)
        gone = events.get(60)
        while gone.kind != "Disconnected":
            gone = events.get(60)
        assert "nothing was heard" in gone.reason


def test_bind_device(ctx, network):
    name, device, here, there = network
    pull = ctx.socket("pull", bind_device=device)
    port = pull.bind("tcp://*:0").url.rpartition(":")[2]
    with inside(name, f"""
            import mqcore as mq
            push = mq.Push(connect="tcp://{here}:{port}", bind_device="{name}b")
            push.send(b"by the link")
            print("ready", flush=True)
            input()
            """):
        assert pull.recv(timeout=10) == b"by the link"
    push = ctx.socket("push")
    with pytest.raises(mq.ConnectTimeout) as caught:  # loopback is another device
        push.connect(f"tcp://127.0.0.1:{port}", wait=0.5)
    assert isinstance(caught.value.last, mq.RemoteRefused)


def test_a_device_that_is_not_there(ctx):
    sock = ctx.socket("pull", bind_device="nosuchdev0")
    for url in ("tcp://127.0.0.1:0", "ws://127.0.0.1:0"):
        with pytest.raises(mq.BindError, match="bind_device='nosuchdev0': No such device.*ip link"):
            sock.bind(url)
    for name in ("lo" + "x" * 300, "lo\0x", "lo\ud800"):
        with pytest.raises(mq.BindError, match="No such device"):
            sock.bind("tcp://127.0.0.1:0", bind_device=name)
    endpoint = sock.connect("tcp://127.0.0.1:9")
    with pytest.raises(mq.ConnectTimeout, match="No such device.*ip link"):
        endpoint.wait_ready(1)
