"""The end of a connection, over TCP and TLS, on asyncio and uvloop: clients that read slowly, that
stop reading, and that do not answer the close."""

import asyncio
import logging
import socket
import threading
import time
from urllib.parse import urlsplit

import pytest
from waiting import until

import mqcore as mq

LIMIT = 60
LARGE = 20_000_000      # more than the kernels of both sides hold
UPGRADE = (b"GET /log HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
           b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
SSE = b"GET /log HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n"
HEALTH = b"GET /-/health HTTP/1.1\r\nhost: localhost\r\n\r\n"
ASK = b"POST /ask HTTP/1.1\r\nhost: localhost\r\n%scontent-length: 1\r\n\r\nx"


def read_to(one, end):
    found = b""
    while end not in found:
        found += one.recv(1) or pytest.fail(f"ended after {found}")
    return found


def stopped(server, within=LIMIT):
    thread = threading.Thread(target=server.stop)
    thread.start()
    thread.join(within)
    return not thread.is_alive()


def fill(connection, count):
    """Messages of 900 kB in the topic."""
    one = connection()
    for _ in range(count):
        one.sendall(b"POST /log HTTP/1.1\r\nhost: localhost\r\ncontent-length: 900000\r\n\r\n")
        one.sendall(bytes(900_000))
        assert b" 201 " in read_to(one, b"}")


def from_first(connection, asked=UPGRADE):
    """A client of the whole topic, which has read no more than the beginning of its answer."""
    one = connection()
    one.sendall(asked.replace(b"/log", b"/log?from=first"))
    found = read_to(one, b"\r\n\r\n")
    assert b" 101 " in found or b" 200 " in found
    assert one.recv(10)     # the first message has begun
    return one


def test_a_websocket_that_says_goodbye_and_reads_nothing_is_cut_off(gate):
    server, connection = gate(send_time=1.0)
    fill(connection, 20)
    one = from_first(connection)
    one.sendall(b"\x88\x82\0\0\0\0\x03\xe8")
    until(lambda: server.stats().slow == 1)
    until(lambda: len(server._serving.server_state.connections) == 1)


def test_a_websocket_that_is_behind_gets_all_of_it_when_the_server_stops(gate):
    """Also if a pong comes after the close frame was written."""
    server, connection = gate(drain=300.0)
    fill(connection, 1)
    one = from_first(connection)
    until(lambda: server.stats().delivered == 1)
    thread = threading.Thread(target=server.stop)
    thread.start()
    until(server._serving.gateway.ending.is_set)
    one.sendall(b"\x8a\x80\0\0\0\0")
    found = b""
    while data := one.recv(65536):
        found += data
    thread.join(LIMIT)
    assert len(found) > 900_000
    assert found.endswith(b"\x03\xe9the gateway ends; connect again later")


def test_a_websocket_that_answers_no_ping_is_cut_off_once_it_sends_nothing(gate):
    server, connection = gate(send_time=0.5, heartbeat=0.1)
    one = connection()
    one.sendall(UPGRADE)
    read_to(one, b"\r\n\r\n")
    start = time.monotonic()
    while time.monotonic() - start < 2:
        one.sendall(b"\x8a\x80\0\0\0\0")      # has no answer
        time.sleep(0.02)
    assert server.stats().streams == 1
    assert read_to(one, b"timeout").endswith(b"\x88\x18\x03\xf3keepalive ping timeout")
    until(lambda: server.stats().streams == 0)


def test_a_websocket_whose_client_ends_its_side_is_over(gate):
    ends_its_side(*gate(send_time=1.0, idle_time=0.5, header_time=0.5), UPGRADE)


@pytest.mark.parametrize("secure", ["tcp"], indirect=True)
def test_a_stream_whose_client_ends_its_side_is_over(gate):
    """Not over TLS on uvloop, which does not tell of that end while it has bytes to write."""
    ends_its_side(*gate(send_time=1.0, idle_time=0.5, header_time=0.5), SSE)


def ends_its_side(server, connection, asked):
    """The stream would take messages that no client gets."""
    fill(connection, 20)
    one = from_first(connection, asked)
    one.shutdown(socket.SHUT_WR)
    until(lambda: server.stats().streams == 0)
    until(lambda: not server._serving.server_state.connections)


@pytest.mark.parametrize("asked", [HEALTH, UPGRADE, HEALTH + b"GET", b""])
def test_stop_does_not_wait_for_a_client_that_leaves_the_close_unanswered(gate, asked):
    server, connection = gate(drain=300.0)
    one = connection()
    if asked:
        one.sendall(asked)
        assert one.recv(65536)
    assert stopped(server)


@pytest.mark.parametrize("turns", [3, 4, 5])       # after 2, asyncio itself loses the connection
@pytest.mark.parametrize("secure", ["tcp"], indirect=True)
def test_stop_does_not_wait_for_a_client_that_connects_meanwhile(gate, monkeypatch, turns):
    """asyncio has accepted the connection, and says so when the others have been closed."""
    server, connection = gate(drain=300.0, header_time=300.0)
    real = server._serving.shutdown

    async def shutdown(sockets=None):
        connection()
        for _ in range(turns):
            await asyncio.sleep(0)
        await real(sockets)
    monkeypatch.setattr(server._serving, "shutdown", shutdown)
    assert stopped(server)


@pytest.mark.parametrize("closing", [b"", b"connection: close\r\n"])
def test_a_client_that_reads_slowly_gets_its_answer_also_from_a_server_that_stops(
        gate, url, closing):
    server, connection = gate(drain=300.0)
    with mq.Rep(bind=url) as rep:
        one = connection()
        one.sendall(ASK % closing)
        rep.recv_msg(timeout=LIMIT).reply(bytes(LARGE))
        found = len(one.recv(10))
        until(lambda: server.stats().answered == 1)
        thread = threading.Thread(target=server.stop)
        thread.start()
        time.sleep(2)           # some looks at the connection
        while data := one.recv(65536):
            found += len(data)
        thread.join(LIMIT)
    assert found > LARGE and not thread.is_alive()


def test_a_client_that_reads_little_at_a_time_gets_its_whole_answer(gate, url):
    """Between two looks it reads less than the kernel waits for before it takes more."""
    server, connection = gate(idle_time=0.4, header_time=0.4)
    with mq.Rep(bind=url) as rep:
        one = connection()
        one.sendall(ASK % b"")
        rep.recv_msg(timeout=LIMIT).reply(bytes(LARGE))
        found, start = 0, time.monotonic()
        while data := one.recv(16384):
            found += len(data)
            if time.monotonic() - start < 4:
                time.sleep(0.02)
    assert found > LARGE and (server.stats().late, server.stats().slow) == (0, 0)


@pytest.mark.parametrize("closing", [b"", b"connection: close\r\n"])
def test_a_client_that_stops_reading_is_cut_off(gate, url, closing):
    server, connection = gate(idle_time=0.4, header_time=0.4)
    with mq.Rep(bind=url) as rep:
        one = connection()
        one.sendall(ASK % closing)
        rep.recv_msg(timeout=LIMIT).reply(bytes(LARGE))
        assert one.recv(65536)
        until(lambda: server.stats().slow == 1)
        assert server.stats().late == 0 and stopped(server)


def test_a_client_is_idle_once_it_has_read_its_answer(gate):
    server, connection = gate(idle_time=0.1)
    one = connection()
    one.sendall(HEALTH)
    until(lambda: not server._serving.server_state.connections)
    assert b" 200 " in one.recv(65536) and server.stats().late == 0


@pytest.mark.parametrize("asked", [ASK % b"", ASK[:-1].replace(b"/ask", b"/log") % b""])
def test_what_is_in_progress_at_the_end_of_drain_is_refused(gate, url, asked):
    """It waits for a reply, or for its body."""
    server, connection = gate(drain=1.0)
    with mq.Rep(bind=url):
        one = connection()
        one.sendall(asked)
        until(lambda: server.stats().in_progress == 1)
        assert stopped(server)
    found = b""
    while data := one.recv(65536):
        found += data
    assert b" 503 " in found and b"urn:mqcore:http:ending" in found
    assert found.count(b"HTTP/1.1") == 1
    stats = server.stats()
    assert (stats.requests, stats.refused, stats.problems) == (1, 1, {"ending": 1})


@pytest.mark.parametrize("secure", ["tcp"], indirect=True)
@pytest.mark.parametrize("drain", [0.0, 0.2, 1.5])
def test_drain_is_no_whole_number_of_seconds(gate, url, drain):
    server, connection = gate(drain=drain)
    assert server._serving.config.timeout_graceful_shutdown in (drain, 0.05)
    with mq.Rep(bind=url):
        one = connection()
        one.sendall(ASK % b"")
        until(lambda: server.stats().in_progress == 1)
        assert stopped(server)
    assert b" 503 " in one.recv(65536)


def test_no_drain_is_no_error(gate, url, caplog):
    """Where there is nothing to cut off, nothing is said."""
    server, _ = gate(drain=0)
    assert stopped(server)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("path", ["/jobs", "/log"])
def test_a_message_behind_an_answer_that_its_client_left_unread_is_not_delivered(
        opened, tmp_path, url, loop, path):
    """One of a socket is lost, and counted as such. A journal has it for the next client."""
    server, client = opened({"/ask": f"req:{url}", "/log": f"journal:{tmp_path}/j",
                             "/jobs": f"pull+bind:{url}p"})
    assert client.post("/log", content=b"job").status_code == 201
    parts = urlsplit(server.url)
    with mq.Rep(bind=url) as rep, mq.Push(connect=url + "p") as push:
        push.send(b"job", timeout=LIMIT)
        with socket.create_connection((parts.hostname, parts.port), timeout=LIMIT) as one:
            one.sendall(ASK % b"" + f"GET {path}?wait=60&from=first HTTP/1.1\r\n"
                        "host: localhost\r\n\r\n".encode())
            rep.recv_msg(timeout=LIMIT).reply(bytes(LARGE))
            until(lambda: server.stats().answered == 3)     # it waits to be written
        until(lambda: server.stats().in_progress == 0)
    stats = server.stats()
    assert (stats.delivered, stats.undelivered) == (0, path == "/jobs")
