"""Clients that send too much, too slowly, or nothing, and clients that do not read."""

import contextlib
import json
import socket
import ssl
import threading
import time
from urllib.parse import urlsplit

import pytest
from certificates import Pair
from gateways import problem
from memory import growth
from waiting import until
from websockets.sync.client import connect

import mqcore as mq
from mqcore import http

LIMIT = 60


def raw(server):
    parts = urlsplit(server.url)
    return socket.create_connection((parts.hostname, parts.port), timeout=LIMIT)


def rest(connection):
    """All that comes until the server closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(65536):
            found += data
    return found


def head(path="/log", method=b"POST", **headers):
    lines = b"".join(b"%s: %s\r\n" % (name.replace("_", "-").encode(), value)
                     for name, value in headers.items())
    return b"%s %s HTTP/1.1\r\nhost: localhost\r\n%s\r\n" % (method, path.encode(), lines)


@pytest.fixture
def log(opened, tmp_path):
    """log(**limits): a server with one journal route."""
    def function(**limits):
        return opened({"/log": f"journal:{tmp_path}/j"}, limits=http.Limits(**limits))
    return function


def test_large_bodies(log):
    server, client = log(body_bytes=1000)
    assert client.post("/log", content=b"x" * 1000).status_code == 201
    problem(client.post("/log", content=b"x" * 1001), 413, "body_size")
    with raw(server) as connection:     # it says how much would come, and sends nothing
        connection.sendall(head(content_length=b"9" * 18))
        assert b" 413 " in connection.recv(65536)
    with raw(server) as connection:     # it does not say, and sends without end
        with pytest.raises(ConnectionError):
            connection.sendall(head(transfer_encoding=b"chunked"))
            while True:
                connection.sendall(b"ff\r\n" + b"x" * 255 + b"\r\n")
        assert server.stats().problems["body_size"] == 3
    until(lambda: server.stats().held_bytes == 0)


def test_all_bodies_together(log):
    server, client = log(bodies_bytes=2000, body_bytes=1500)
    with raw(server) as one:
        one.sendall(head(content_length=b"1500") + b"x" * 1200)
        until(lambda: server.stats().held_bytes == 1200)
        answer = client.post("/log", content=b"x" * 1400)
        problem(answer, 503, "bodies")
        assert answer.headers["retry-after"]
        one.sendall(b"x" * 300)
        assert b" 201 " in one.recv(65536)
    assert client.post("/log", content=b"x" * 1400).status_code == 201


@pytest.mark.parametrize("sent", [b"", b"x" * 10])
def test_slow_bodies(log, sent):
    server, _ = log(body_time=0.05)
    with raw(server) as connection:
        connection.sendall(head(content_length=b"100") + sent)
        assert b" 408 " in rest(connection)
    assert server.stats().problems == {"slow_body": 1}


@pytest.mark.parametrize("sent", [b"", b"GET /log HT", b"\r\n", head()[:-2]])
def test_headers_that_do_not_come(log, sent):
    server, _ = log(header_time=0.05)
    with raw(server) as connection:
        connection.sendall(sent)
        assert rest(connection) == b""
    assert server.stats().late == 1


@pytest.mark.parametrize("start", [
    b"GET /" + b"x" * 4000, head()[:-2] + b"a: " + b"x" * 4000,
    head()[:-2] + b"a: b\r\n" * 700,
    head(transfer_encoding=b"chunked") + b"1\r\nx\r\n0\r\n" + b"a: b\r\n" * 700,
])
def test_large_headers(log, start):
    server, client = log(header_bytes=2000)
    with raw(server) as connection:
        connection.sendall(start)
        assert b" 431 " in rest(connection)
    assert server.stats().oversized == 1
    assert client.get("/-/health").status_code == 200


def test_large_headers_that_begin_with_the_end_of_a_message(log):
    server, _ = log(header_bytes=2000)
    with raw(server) as connection:
        connection.sendall(head("/-/health", b"GET") + head()[:-2] + b"a: b\r\n" * 200)
        until(lambda: server.stats().requests == 1)
        connection.sendall(b"a: b\r\n" * 200 + b"\r\n")
        assert b" 431 " in rest(connection)
    assert server.stats().oversized == 1


def test_a_trailer_without_end(log):
    server, client = log()
    with raw(server) as connection:
        connection.sendall(head(transfer_encoding=b"chunked") + b"1\r\nx\r\n0\r\na: ")
        with pytest.raises(ConnectionError):
            while True:
                connection.sendall(b"x" * 10000)
    assert server.stats().oversized == 1
    assert client.get("/-/health").status_code == 200


@pytest.mark.parametrize("sent", [b"\0" * 100, b"nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                                  head(content_length=b"-1"), head(content_length=b"1, 2"),
                                  head(transfer_encoding=b"chunked") + b"zz\r\n"])
def test_what_is_no_http(log, sent):
    server, client = log(header_time=5.0)
    with raw(server) as connection:
        connection.sendall(sent)
        found = rest(connection)
        assert b" 400 " in found and json.loads(found.rpartition(b"\r\n\r\n")[2])["hint"]
    assert client.get("/-/health").status_code == 200


def test_pipelined_requests(log):
    server, client = log()
    with raw(server) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(head("/log?wait=60", b"GET") * 1000)
        rest(connection)
    assert server.stats().oversized == 1 and server.stats().requests <= 20
    assert client.get("/-/health").status_code == 200


def test_many_clients(log):
    server, _ = log(clients=5)
    with contextlib.ExitStack() as stack:
        for _ in range(5):      # one has its answer before the next comes
            one = stack.enter_context(raw(server))
            one.sendall(head("/-/health", b"GET"))
            assert b" 200 " in one.recv(65536)
        with raw(server) as late:
            assert b" 503 " in rest(late)
    assert server.stats().turned_away == 1


def test_many_streams(log):
    server, client = log(streams=1)
    with connect(server.url.replace("http", "ws", 1) + "/log", proxy=None):
        problem(client.get("/log?wait=1"), 503, "streams")
        assert client.post("/log", content=b"x").status_code == 201
    until(lambda: server.stats().streams == 0)
    assert client.get("/log").status_code == 200


@pytest.mark.parametrize("talks", [False, True])
def test_a_client_that_never_reads(opened, tmp_path, talks):
    server, client = opened({"/log": f"journal:{tmp_path}/j"}, limits=http.Limits(send_time=0.1))
    for _ in range(12):
        assert client.post("/log", content=b"x" * (1 << 20)).status_code == 201
    more = {"connection": b"upgrade", "upgrade": b"websocket", "sec_websocket_version": b"13",
            "sec_websocket_key": b"AAAAAAAAAAAAAAAAAAAAAA=="} if talks else \
        {"accept": b"text/event-stream"}
    with raw(server) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(head("/log", b"GET", **more))
        until(lambda: server.stats().slow == 1)
        until(lambda: server.stats().streams == 0)
    assert server.stats().delivered < 12
    assert client.get("/-/health").status_code == 200


def test_a_pipeline_of_answers_that_nobody_reads(opened, tmp_path):
    server, client = opened({"/log": f"journal:{tmp_path}/j"}, limits=http.Limits(send_time=0.1))
    for _ in range(12):
        assert client.post("/log", content=b"x" * (1 << 20)).status_code == 201
    with raw(server) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(head("/log", b"GET") * 16)
        until(lambda: server.stats().slow == 1)
        until(lambda: server.stats().in_progress == 0)
    assert client.get("/-/health").status_code == 200


def test_a_client_that_reads_slowly_gets_the_whole_answer(opened, url):
    """It takes longer than a connection may be idle, or be busy with headers."""
    limits = http.Limits(idle_time=0.5, header_time=0.5)
    with mq.Rep(bind=url) as rep:
        server, _ = opened({"/ask": f"req:{url}"}, limits=limits)
        with raw(server) as connection:
            connection.sendall(head("/ask", content_length=b"0"))
            rep.recv_msg(timeout=LIMIT).reply(bytes(20_000_000))
            found, start = 0, time.monotonic()
            while data := connection.recv(65536):
                found += len(data)
                if time.monotonic() - start < 3:
                    time.sleep(0.01)
    assert found > 20_000_000 and server.stats().late == 0


def test_a_pipeline_outlives_a_long_poll(opened, tmp_path):
    """The time of an idle connection does not run while a pipelined request is in progress."""
    limits = http.Limits(idle_time=0.05, header_time=0.05)
    server, client = opened({"/log": f"journal:{tmp_path}/j"}, limits=limits)
    with raw(server) as connection:
        connection.sendall(head("/-/health", b"GET") + head("/log?wait=60", b"GET"))
        until(lambda: server.stats().streams == 1)
        time.sleep(0.3)         # longer than both times
        assert client.post("/log", content=b"hello").status_code == 201
        found = b""
        while b"hello" not in found:
            assert (data := connection.recv(65536))
            found += data
    assert server.stats().late == 0


def test_a_request_that_begins_and_stops_on_an_idle_connection(log):
    server, _ = log(idle_time=0.05, header_time=0.05)
    with raw(server) as connection:
        connection.sendall(head("/-/health", b"GET"))
        assert b" 200 " in connection.recv(65536)
        connection.sendall(b"GET /-/hea")
        assert rest(connection) == b""
    assert server.stats().late <= 1


def test_clients_that_leave(opened, url):
    server, client = opened({"/jobs": f"pull+bind:{url}"})
    with raw(server) as connection:
        connection.sendall(head("/jobs?wait=60", b"GET"))
        until(lambda: server.stats().streams == 1)
    until(lambda: server.stats().streams == 0)
    with mq.Push(connect=url) as push:      # what it waited for is there for the next
        push.send(b"job", timeout=LIMIT)
        assert client.get("/jobs?wait=60").content == b"job"


def test_memory_stays_flat(opened, url):
    """Messages that nobody reads, and requests that are refused."""
    server, client = opened({"/prices": f"sub:{url}?hold=100"})
    ring = server.gateway.backends["/prices"].feed
    with mq.Pub(bind=url) as pub:
        pub.wait_subscribers(b"", timeout=LIMIT)

        def feed(n):
            for k in range(0, n, 500):      # fewer than the marks hold: none is dropped
                target = ring.next + 500
                for _ in range(500):
                    pub.send(b"x" * 100, timeout=LIMIT)
                client.get(f"/nothing{k}", headers={"host": f"h{k}.example"})
                until(lambda target=target: ring.next == target)
        assert growth(feed) < 100_000


def test_the_ring_is_bounded_in_bytes():
    from mqcore.http.feed import OVERHEAD, Ring

    ring = Ring(1000, 50_000)
    for _ in range(100):
        ring.put(b"x" * 1000)
    assert ring.bytes == len(ring.items) * (len(ring.items[-1].json) + 1000 + OVERHEAD) <= 50_000
    ring.put(b"x" * 100_000)        # the newest is always held
    assert len(ring.items) == 1


def test_shutdown_waits_for_requests_in_progress(opened, url):
    server, client = opened({"/ask": f"req:{url}"})
    answers = []
    with mq.Rep(bind=url) as rep:
        asking = threading.Thread(
            target=lambda: answers.append(client.post("/ask", content=b"x").status_code))
        asking.start()
        request = rep.recv_msg(timeout=LIMIT)
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        until(server.gateway.ending.is_set)
        request.reply(b"y")
        asking.join(LIMIT)
        stopping.join(LIMIT)
    assert answers == [200]


@pytest.fixture
def secure(opened, url, tmp_path):
    """secure(**limits): a server over TLS."""
    ca = Pair("authority", ca=True)
    pair = Pair("localhost", issuer=ca, names=["127.0.0.1"], role="server")
    (tmp_path / "cert").write_bytes(pair.pem())
    (tmp_path / "key").write_bytes(pair.key_pem())

    def function(**limits):
        trusted = ssl.create_default_context(cadata=ca.pem().decode())
        return opened({"/jobs": f"push+bind:{url}"}, bind="https://127.0.0.1:0", verify=trusted,
                      cert=str(tmp_path / "cert"), key=str(tmp_path / "key"),
                      limits=http.Limits(**limits))
    return function


def test_clients_without_a_handshake_are_counted(secure):
    server, client = secure(clients=5)
    with contextlib.ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(raw(server))
        connections = server._serving.server_state.connections
        until(lambda: len(connections) == 5)
        with raw(server) as late:
            assert rest(late) == b""
        assert server.stats().turned_away == 1
    until(lambda: not connections)
    assert client.get("/-/health").status_code == 200


def test_a_handshake_that_does_not_come(secure):
    server, client = secure(header_time=0.05)
    with raw(server) as connection:
        assert rest(connection) == b""
    until(lambda: server.stats().late == 1)


def test_requests_that_are_no_http_do_not_fill_the_log(log, caplog):
    server, _ = log()
    for _ in range(20):
        with raw(server) as connection:
            connection.sendall(b"nonsense\r\n\r\n")
            assert b" 400 " in rest(connection)
    assert len([one for one in caplog.records if "Invalid HTTP" in one.getMessage()]) <= 1
