"""STREAM and raw ROUTER sockets, of both modules, and of one against the other."""

import asyncio
import hashlib
import random
import socket as pysocket
import threading

import pytest
from zmqerrno import number

import mqcore.zmq as ours

LIMIT = 5000  # ms that anything may take
SHORT = 50  # ms, for what shall not come


@pytest.fixture
def listener():
    with pysocket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(LIMIT / 1000)
        yield made


def url_of(listener):
    return f"tcp://127.0.0.1:{listener.getsockname()[1]}"


def dial(s):
    port = s.bind_to_random_port("tcp://127.0.0.1")
    return pysocket.create_connection(("127.0.0.1", port), LIMIT / 1000)


def test_serving(z, new):
    """The program of zmq_socket(3): notes, bytes, the end; who is unknown."""
    s = new("STREAM")
    with dial(s) as plain:
        name, empty = s.recv_multipart()
        assert len(name) == 5 and name[0] == 0 and empty == b""
        plain.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert s.recv() == name and s.rcvmore
        assert s.recv() == b"GET / HTTP/1.0\r\n\r\n" and not s.rcvmore
        s.send(name, z.SNDMORE)
        s.send(b"HTTP/1.0 200 OK\r\n\r\n")
        s.send_multipart([name, b"Hello"], copy=False)
        answer = b""
        while not answer.endswith(b"Hello"):
            answer += plain.recv(100)
        assert answer == b"HTTP/1.0 200 OK\r\n\r\nHello"
        plain.sendall(b"x")
        frames = s.recv_multipart(copy=False)
        assert [f.bytes for f in frames] == [name, b"x"]
    assert s.recv_multipart() == [name, b""]
    assert number(z, s.send_multipart, [b"nobody", b"x"]) == z.EHOSTUNREACH
    assert s.type == z.STREAM and s.events & z.POLLOUT and not s.events & z.POLLIN
    assert number(z, s.recv, z.NOBLOCK) == z.EAGAIN


def test_connecting(z, new, listener):
    """The id is known at once, what is sent waits for the connection, and it stays the same."""
    s = new("STREAM", reconnect_ivl=10)
    assert s.routing_id == b""
    s.connect(url_of(listener))
    name = s.routing_id
    assert len(name) == 5 and name[0] == 0
    s.send_multipart([name, b"early"])
    for word in (b"early", b"again"):
        plain, _ = listener.accept()
        with plain:
            plain.settimeout(LIMIT / 1000)
            assert s.recv_multipart() == [name, b""]
            if word == b"again":
                s.send_multipart([name, word])
            assert plain.recv(100) == word
            plain.sendall(word.upper())
            assert s.recv_multipart() == [name, word.upper()]
        assert s.recv_multipart() == [name, b""]
    plain, _ = listener.accept()
    with plain:
        assert s.recv_multipart() == [name, b""]
        s.send_multipart([name, b""])
        assert number(z, s.send_multipart, [name, b"x"]) == z.EHOSTUNREACH
        s.rcvtimeo = SHORT
        assert number(z, s.recv) == z.EAGAIN  # no note of an end that we made
        listener.settimeout(SHORT / 1000 * 4)
        with pytest.raises(TimeoutError):
            listener.accept()


def test_options(z, new, listener):
    s = new("STREAM")
    s.setsockopt(z.CONNECT_ROUTING_ID, b"web")
    s.stream_notify = 0
    s.connect(url_of(listener))
    plain, _ = listener.accept()
    with plain:
        plain.sendall(b"first thing")
        assert s.recv_multipart() == [b"web", b"first thing"]
        s.send_multipart([b"web", b"x"])
        assert plain.recv(9) == b"x"
    s.rcvtimeo = SHORT
    assert number(z, s.recv) == z.EAGAIN
    for option, value in ((z.STREAM_NOTIFY, 2), (z.ROUTER_RAW, 1), (z.CONNECT_ROUTING_ID, b"")):
        assert number(z, s.setsockopt, option, value) == z.EINVAL
    for option in (z.STREAM_NOTIFY, z.CONNECT_ROUTING_ID):
        assert number(z, s.getsockopt, option) == z.EINVAL
        assert number(z, new("DEALER").setsockopt, option, 1 if option == z.STREAM_NOTIFY
                      else b"x") == z.EINVAL


def test_a_raw_router(z, new):
    s = new("ROUTER")
    s.router_raw = 1
    with dial(s) as plain:
        name, empty = s.recv_multipart()
        assert empty == b""
        plain.sendall(b"x")
        assert s.recv_multipart() == [name, b"x"]
        s.send_multipart([b"nobody", b"x"])
        s.send_multipart([name, b"y"])
        assert plain.recv(9) == b"y"
    assert s.recv_multipart() == [name, b""]
    assert s.type == z.ROUTER


def test_a_router_names_whom_it_connects_to(make, sides):
    dealer = make(sides.a, "DEALER")
    port = dealer.bind_to_random_port("tcp://127.0.0.1")
    router = make(sides.b, "ROUTER")
    router.setsockopt(sides.b.CONNECT_ROUTING_ID, b"you")
    router.router_mandatory = 1
    router.connect(f"tcp://127.0.0.1:{port}")
    dealer.send(b"up")
    assert router.recv_multipart() == [b"you", b"up"]
    router.send_multipart([b"you", b"down"])
    assert dealer.recv() == b"down"


def test_streams_of_both_modules(make, sides):
    """8 MiB each way between two STREAM sockets, in pieces of any size."""
    there, back = (random.Random(n).randbytes(8 << 20) for n in (1, 2))
    server, client = make(sides.a, "STREAM"), make(sides.b, "STREAM")
    port = server.bind_to_random_port("tcp://127.0.0.1")
    client.connect(f"tcp://127.0.0.1:{port}")
    names = [s.recv_multipart()[0] for s in (server, client)]
    assert names[1] == client.routing_id
    heard = [hashlib.sha256(), hashlib.sha256()]

    def run(end, data):
        s, name = (server, client)[end], names[end]
        rng = random.Random(end)
        at = left = len(data)
        while at or left:
            if at and (not left or s.poll(0, 2)):
                size = rng.choice((1, 100, 8192, 70_000))
                try:
                    s.send_multipart([name, data[-at:][:size]], 1)
                    at = max(0, at - size)
                except (sides.a.Again, sides.b.Again):
                    pass
            if left and s.poll(0 if at else LIMIT):
                who, body = s.recv_multipart()
                assert who == name and body
                heard[end].update(body)
                left -= len(body)

    threads = [threading.Thread(target=run, args=args) for args in ((0, there), (1, back))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT / 1000 * 2)
    assert [h.digest() for h in heard] == [hashlib.sha256(d).digest() for d in (back, there)]
    client.close(0)
    assert server.recv_multipart() == [names[0], b""]


def test_asyncio(z, new, part, listener):
    """A send that waits for its connection neither blocks the loop nor spins in it."""
    aio = part("asyncio")

    async def main():
        context = aio.Context()
        s = context.socket(z.STREAM)
        s.linger = 0
        s.connect(url_of(listener))
        sent = s.send_multipart([s.routing_id, b"hello"])
        plain, _ = await asyncio.to_thread(listener.accept)
        with plain:
            await asyncio.wait_for(sent, LIMIT / 1000)
            assert await asyncio.to_thread(plain.recv, 9) == b"hello"
            plain.sendall(b"hi")
            assert await s.recv_multipart() == [s.routing_id, b""]
            assert await s.recv_multipart() == [s.routing_id, b"hi"]
        s.close()
        context.term()
    asyncio.run(main())


def test_monitors_tell_of_connections(z, new, part, listener):
    s = new("STREAM")
    monitor = s.get_monitor_socket()
    monitor.rcvtimeo = LIMIT
    parse = part("utils.monitor").parse_monitor_message
    told = []
    try:
        with dial(s):
            s.recv_multipart()
        s.recv_multipart()
        while told[-1:] != [z.EVENT_DISCONNECTED]:
            told.append(parse(monitor.recv_multipart())["event"])
        s.connect(url_of(listener))
        plain, _ = listener.accept()
        with plain:
            s.recv_multipart()
            while told[-1:] != [z.EVENT_CONNECTED]:
                told.append(parse(monitor.recv_multipart())["event"])
    finally:
        s.disable_monitor()
        monitor.close(0)
    if z is not ours:  # libzmq takes the end of each raw connection for a failed handshake, too
        told.remove(z.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
    told.remove(z.EVENT_CONNECT_DELAYED)
    assert told == [z.EVENT_LISTENING, z.EVENT_ACCEPTED, z.EVENT_DISCONNECTED, z.EVENT_CONNECTED]


def test_what_differs(make, listener):
    """As README.md says."""
    s = make(ours, "STREAM")
    for url in ("inproc://x", "ws://127.0.0.1:0/x"):
        assert number(ours, s.bind, url) == number(ours, s.connect, url) == ours.ENOTSUP
    s.setsockopt(ours.CONNECT_ROUTING_ID, b"web")
    s.connect("tcp://127.0.0.1:1")  # where nobody listens
    assert number(ours, s.send_multipart, [b"web", b"x"], ours.NOBLOCK) == ours.EAGAIN
    s.sndtimeo = SHORT
    assert number(ours, s.send_multipart, [b"web", b"x"]) == ours.EAGAIN
    assert number(ours, s.send_multipart, [b"who", b"x"]) == ours.EHOSTUNREACH
    s.setsockopt(ours.CONNECT_ROUTING_ID, b"web")
    assert number(ours, s.connect, url_of(listener)) == ours.EINVAL
    router = make(ours, "ROUTER")
    router.setsockopt(ours.CONNECT_ROUTING_ID, b"web")
    assert number(ours, router.connect, "inproc://x") == ours.ENOTSUP
    opened = make(ours, "ROUTER")
    opened.bind("inproc://y")
    assert number(ours, opened.setsockopt, ours.ROUTER_RAW, 1) == ours.EINVAL
