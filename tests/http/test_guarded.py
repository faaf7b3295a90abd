"""One connection: an answer in one write, and the time between requests."""

import asyncio
import base64
import logging
import socket
import struct
import time
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from waiting import until

import mqcore as mq
from mqcore import http
from mqcore.http import guarded_talk
from mqcore.http.guarded import Corked
from mqcore.http.guarded_talk import GuardedTalk
from mqcore.http.unread import progress

LIMIT = 60
EVENTS = b"GET /log?wait=60 HTTP/1.1\r\nhost: localhost\r\n%s\r\n"
UPGRADE = EVENTS % (
    b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: " + base64.b64encode(bytes(16)) + b"\r\n")
DATE = [(b"date", b"Mon, 30 Nov 2026 12:00:00 GMT")]


class Transport:
    """What was written, one entry a write."""

    def pause_reading(self):
        pass

    def __init__(self):
        self.writes, self.closed = [], False

    def write(self, data):
        assert not self.closed
        self.writes.append(data)

    def writelines(self, parts):
        self.write(b"".join(parts))

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    abort = close


@pytest.fixture
def transport():
    return Transport()


@pytest.fixture
def corked(transport):
    return Corked(transport)


def test_without_hold_each_write_is_one(transport, corked):
    corked.write(b"head")
    corked.write(b"body")
    assert transport.writes == [b"head", b"body"]


def test_a_head_waits_for_its_body(transport, corked):
    for _ in range(2):
        corked.hold()
        corked.write(b"head")
        corked.write(b"body")
    corked.write(b"more")
    assert transport.writes == [b"headbody", b"headbody", b"more"]


def test_an_empty_body_brings_the_head(transport, corked):
    corked.hold()
    corked.write(b"head")
    corked.write(b"")
    assert transport.writes == [b"head"]


def test_a_close_brings_the_head(transport, corked):
    corked.hold()
    corked.write(b"head")
    corked.close()
    assert transport.writes == [b"head"] and corked.is_closing()
    corked.close()
    assert transport.writes == [b"head"]


def test_nothing_is_written_to_a_closed_connection(transport, corked):
    """An answer may be on its way when the connection is refused."""
    corked.hold()
    transport.close()
    corked.write(b"head")
    corked.write(b"body")
    corked.close()
    assert not transport.writes


@pytest.fixture
def cycle(corked):
    """A request whose answer is due, and how often it was complete."""
    cycle = RequestResponseCycle(
        {"method": "POST"}, corked, FlowControl(corked), None, None, False, DATE, asyncio.Event(),
        False, True, lambda: cycle.ends.append(cycle))
    cycle.ends = []
    corked.cycle = cycle
    return cycle


def sent(cycle, status, kind, body):
    """What uvicorn itself writes."""
    headers = [(b"content-type", kind)] if kind else []
    headers.append((b"content-length", b"%d" % len(body)))

    async def both():
        await cycle.send({"type": "http.response.start", "status": status, "headers": headers})
        await cycle.send({"type": "http.response.body", "body": body})
    asyncio.run(both())
    return b"".join(cycle.transport._transport.writes)


@pytest.mark.parametrize(("status", "kind", "body"), [
    (200, b"text/plain", b"hello"), (202, b"", b""), (201, b"application/json", b"x" * 100_000)])
def test_a_whole_answer_is_uvicorns(transport, corked, cycle, status, kind, body):
    assert corked.answer(status, kind, body)
    assert cycle.response_complete and cycle.ends == [cycle] and cycle.message_event.is_set()
    assert not corked.answer(status, kind, body), "one request has two answers"
    found, transport.writes = transport.writes, []
    cycle.response_started = cycle.response_complete = False
    assert found == [sent(cycle, status, kind, body)]


@pytest.mark.parametrize("state", [
    {"keep_alive": False}, {"waiting_for_100_continue": True}, {"disconnected": True}])
def test_an_answer_that_has_more_to_say_is_left_to_uvicorn(transport, corked, cycle, state):
    for name, value in state.items():
        setattr(cycle, name, value)
    assert not corked.answer(200, b"text/plain", b"hello")
    assert not transport.writes and not cycle.response_started


def test_a_request_whose_client_is_cut_off_needs_no_answer(transport, corked, cycle, caplog):
    """uvicorn would log that there is none."""
    async def app(*_):
        corked.cut()
    cycle.logger = logging.getLogger("mqcore.tests.cut")
    asyncio.run(cycle.run_asgi(app))
    assert transport.closed and not transport.writes and not caplog.records


def test_an_answer_to_a_client_that_does_not_read_waits(transport, corked, cycle):
    cycle.flow.pause_writing()
    assert not corked.answer(200, b"text/plain", b"hello")
    transport.close()
    cycle.flow.resume_writing()
    assert not corked.answer(200, b"text/plain", b"hello")
    assert not transport.writes and not cycle.response_started


@pytest.fixture
def talk(opened, tmp_path):
    """talk(**limits): a server, and a connection to it."""
    sockets = []

    def function(**limits):
        server, _ = opened({"/log": f"journal:{tmp_path}/j"}, limits=http.Limits(**limits))
        parts = urlsplit(server.url)
        sockets.append(socket.create_connection((parts.hostname, parts.port), timeout=LIMIT))
        return server, sockets[-1]
    yield function
    for one in sockets:
        one.close()


def post(body=b"x", **more):
    lines = b"".join(b"%s: %s\r\n" % (name.encode(), value) for name, value in more.items())
    return (b"POST /log HTTP/1.1\r\nhost: localhost\r\n%scontent-length: %d\r\n\r\n"
            % (lines, len(body))) + body


def answers(connection, n):
    """The heads of the next n answers, whose bodies are JSON."""
    found = b""
    while found.count(b"}") < n:
        assert (data := connection.recv(65536)), found
        found += data
    return [head for head in found.split(b"HTTP/1.1 ") if head]


def test_an_idle_connection_is_closed_and_not_called_late(talk):
    server, connection = talk(idle_time=0.1)
    connection.sendall(post())
    answers(connection, 1)
    assert connection.recv(1) == b""
    assert server.stats().late == 0


def test_a_connection_whose_body_ends_after_its_answer_is_idle(talk):
    server, connection = talk(idle_time=0.1, body_bytes=10)
    connection.sendall(post(b"x" * 11)[:-1])
    assert b"413" in connection.recv(65536)
    connection.sendall(b"x")
    assert connection.recv(1) == b""
    assert server.stats().late == 0


def test_pipelined_answers_come_in_order(talk):
    """Some are written whole, some are left to uvicorn."""
    server, connection = talk(rate=1e6, burst=100)
    kinds = [{}, {"origin": b"http://evil.example"}, {}, {"accept": b"x"}, {},
             {"origin": b"http://evil.example"}, {}, {"connection": b"close"}]
    connection.sendall(b"".join(post(**more) for more in kinds))
    found = answers(connection, len(kinds))
    assert [head[:3] for head in found] == [
        b"403" if "origin" in more else b"201" for more in kinds]
    assert b"connection: close" in found[-1] and connection.recv(1) == b""
    until(lambda: server.stats().in_progress == 0)
    assert server.stats().requests == len(kinds)


def test_a_request_behind_the_end_of_a_refused_body_is_not_idle(talk):
    """Both come in one piece, after the answer to the first."""
    server, connection = talk(idle_time=0.1, header_time=30.0, body_bytes=10)
    connection.sendall(post(b"x" * 11)[:-1])
    assert b"413" in connection.recv(65536)
    connection.sendall(b"x" + EVENTS % b"accept: text/event-stream\r\n")
    until(lambda: server.stats().streams == 1)
    assert b" 200 " in connection.recv(65536)
    time.sleep(0.3)         # longer than an idle connection is kept
    assert server.stats().streams == 1


def test_a_refused_body_is_read_for_longer_than_a_connection_may_be_idle(talk):
    server, connection = talk(idle_time=0.05, body_bytes=10)
    connection.sendall(post(b"x" * 11)[:-1])
    assert b"413" in connection.recv(65536)
    time.sleep(0.3)         # longer than an idle connection is kept
    connection.sendall(b"x" + post())
    assert answers(connection, 1)[0][:3] == b"201"
    assert server.stats().late == 0


def test_a_client_that_goes_ends_what_is_in_progress_before_its_last_request(talk):
    server, connection = talk()
    connection.sendall(EVENTS % b"accept: text/event-stream\r\n" + post())
    until(lambda: server.stats().streams == 1)
    connection.close()
    until(lambda: server.stats().in_progress == 0)
    assert server.stats().streams == 0 and server.stats().requests == 1


def test_a_message_is_not_taken_for_a_client_that_has_gone(opened, url):
    """Its request was followed by another."""
    server, client = opened({"/jobs": f"pull+bind:{url}"})
    parts = urlsplit(server.url)
    poll = b"GET /jobs?wait=60 HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with socket.create_connection((parts.hostname, parts.port), timeout=LIMIT) as connection:
        connection.sendall(poll + poll)
        until(lambda: server.stats().streams == 1)
    until(lambda: server.stats().streams == 0)
    with mq.Push(connect=url) as push:
        push.send(b"job", timeout=LIMIT)
        assert client.get("/jobs?wait=60").content == b"job"
    assert server.stats().undelivered == 0


def test_a_websocket_does_not_break_into_an_answer(talk):
    server, connection = talk()
    connection.sendall(EVENTS % b"" + UPGRADE)
    found = b""
    while data := connection.recv(65536):
        found += data
    assert b" 400 " in found and b" 101 " not in found
    assert server.stats().problems == {"upgrade": 1}
    until(lambda: server.stats().in_progress == 0)


def test_a_websocket_after_a_request_is_not_idle(talk):
    server, connection = talk(idle_time=0.05, header_time=0.05)
    connection.sendall(post())
    answers(connection, 1)
    connection.sendall(UPGRADE)
    assert b" 101 " in connection.recv(65536)
    until(lambda: server.stats().streams == 1)
    time.sleep(0.3)         # longer than both times
    assert server.stats().streams == 1 and server.stats().late == 0


def test_counters_add_up_where_requests_overlap(talk):
    """One is refused while another is answered."""
    server, connection = talk(body_time=0.2)
    connection.sendall(post(b"xx")[:-1])        # refused when its time is up
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=LIMIT) as other:
        other.sendall(post())
        answers(other, 1)
    assert b" 408 " in connection.recv(65536)
    until(lambda: server.stats().in_progress == 0)
    stats = server.stats()
    assert (stats.requests, stats.answered, stats.refused) == (2, 1, 1)


@pytest.mark.parametrize("left, taken, paused, heard, waits", [
    (5, 20, False, False, True), (5, 10, False, False, False), (0, 20, False, False, False),
    (0, 20, True, False, True), (0, 20, False, True, True), (5, 10, True, False, False),
    (5, 10, False, True, False)])
def test_a_ping_waits_for_a_client_that_still_reads_what_is_before_it(
        monkeypatch, left, taken, paused, heard, waits):
    """It had taken 10 bytes when the ping was written. Or the gateway reads nothing itself, or has
    read something else."""
    delays = []

    class Loop:
        def call_later(self, delay, function):
            delays.append(delay)

    talk = GuardedTalk.__new__(GuardedTalk)     # no connection: what it would say is not the point
    talk.loop, talk.limits, talk.transport = Loop(), http.Limits(send_time=7.0), Transport()
    talk.queue, talk.close_sent, talk.taken = asyncio.Queue(), True, 10
    talk.read_paused, talk.heard = paused, heard
    monkeypatch.setattr(guarded_talk, "progress", lambda transport: (left, taken))
    talk.keepalive_timeout()
    assert delays == [7.0] * waits and talk.queue.empty() == waits
    if not waits:       # who waits for a frame of the client hears of the end
        assert talk.queue.get_nowait() == {"type": "websocket.disconnect", "code": 1011}


def test_nothing_is_left_for_a_client_that_has_reset_its_connection():
    """The kernel does not take the bytes out of its count."""
    with socket.create_server(("127.0.0.1", 0)) as listening, \
            socket.create_connection(listening.getsockname()) as client:
        one, _ = listening.accept()
        with one:
            one.setblocking(False)
            one.send(bytes(20_000_000))
            transport = SimpleNamespace(
                get_extra_info=lambda name: one, get_write_buffer_size=lambda: 5)
            assert progress(transport)[0] > 5
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            until(lambda: progress(transport)[0] == 0)
