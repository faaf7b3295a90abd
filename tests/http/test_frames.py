"""WebSockets whose clients send many small frames: all of them are handled, a few at a time."""

import socket
import time

import pytest
from waiting import until

import mqcore as mq
from mqcore.http import guarded_talk

LIMIT = 60
COUNT = 4000
UPGRADE = (b"GET %s HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
           b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
BINARY, CLOSE, PING = 0x82, 0x88, 0x89


def frame(first, body=b""):
    assert len(body) < 126
    return bytes([first, 0x80 | len(body)]) + bytes(4) + body


def large(first, length, body):
    """A frame of so many bytes, or its beginning."""
    return bytes([first, 0xff]) + length.to_bytes(8, "big") + bytes(4) + body


def upgraded(connection, path):
    one = connection()
    one.sendall(UPGRADE % path)
    head = b""
    while b"\r\n\r\n" not in head:
        head += one.recv(1) or pytest.fail(f"ended after {head}")
    assert b" 101 " in head
    return one


def rest(one):
    """What is left of frames until the connection ends."""
    found = b""
    while data := one.recv(65536):
        found += data
    return found


def talk_of(server):
    return until(lambda: next((
        one for one in server._serving.server_state.connections
        if isinstance(one, guarded_talk.GuardedTalk)), None))


def end(one):
    """Without a close frame. Over TLS a closure alert comes with the last bytes."""
    if hasattr(one, "unwrap"):
        one.setblocking(False)
        with pytest.raises(OSError):
            one.unwrap()
    else:
        one.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("ends", ["close", "end"])
def test_small_messages_before_the_end_all_reach_the_backend(gate, url, ends):
    """Few of them wait in the gateway meanwhile."""
    server, connection = gate()
    one = upgraded(connection, b"/jobs")
    one.sendall(b"".join(frame(BINARY, b"%d" % n) for n in range(COUNT))
                + (frame(CLOSE, b"\x03\xe8") if ends == "close" else b""))
    if ends == "end":
        end(one)
    talk = talk_of(server)
    until(lambda: talk.queue.qsize() > 256)
    with mq.Pull(connect=url + "j") as pull:
        for n in range(COUNT):
            assert pull.recv(timeout=LIMIT) == b"%d" % n
            assert talk.queue.qsize() <= 513        # the end is one of them
        until(lambda: server.stats().streams == 0)
    assert server.stats().sent == COUNT


@pytest.fixture
def turns(monkeypatch):
    """One for each frame: how many talks had more frames after it."""
    found = []
    real = guarded_talk.GuardedTalk.handle_events

    def handle(self):
        found.append(0)         # before the client can see what it does
        real(self)
        found[-1] = len(self.busy)

    monkeypatch.setattr(guarded_talk, "TURN", 0.0)
    monkeypatch.setattr(guarded_talk, "LEAST", 0.0)
    monkeypatch.setattr(guarded_talk, "LOOK", 1)
    monkeypatch.setattr(guarded_talk.GuardedTalk, "handle_events", handle)
    return found


@pytest.mark.parametrize("secure", ["tcp"], indirect=True)
def test_other_tasks_have_their_turns_between_small_frames(gate, turns):
    """Here after each one."""
    _, connection = gate()
    one = upgraded(connection, b"/log")
    one.sendall(frame(PING, b"p") * 200 + frame(CLOSE, b"\x03\xe8"))
    assert rest(one) == b"\x8a\x01p" * 200 + b"\x88\x02\x03\xe8"
    assert len(turns) > 200


@pytest.mark.parametrize("secure", ["tcp"], indirect=True)
def test_a_turn_is_shared_by_those_that_have_frames_left(gate, turns):
    """Two of twelve, and none of them afterwards."""
    server, connection = gate()
    idle = [upgraded(connection, b"/log") for _ in range(10)]
    ones = [upgraded(connection, b"/log") for _ in range(2)]
    for one in ones:
        one.sendall(frame(PING, b"p") * 2000 + frame(CLOSE, b"\x03\xe8"))
    for one in ones:
        assert rest(one) == b"\x8a\x01p" * 2000 + b"\x88\x02\x03\xe8"
    assert max(turns) == 2
    assert talk_of(server).busy == set()
    assert len(idle) == 10


def test_unfinished_messages_are_bodies(gate):
    """There is room for three of them."""
    server, connection = gate(bodies_bytes=3_000_000)
    size, half = 900_000, bytes(899_999)
    first, second, third, *late = [upgraded(connection, b"/log?form=raw") for _ in range(5)]
    for n, one in enumerate((first, second, third)):
        one.sendall(large(BINARY, size, half))
        until(lambda want=(n + 1) * 899_999: server.stats().held_bytes >= want)
    late[0].sendall(large(BINARY, size, half))
    assert b"\x03\xf5the gateway holds too many bodies now; send it again later" in rest(late[0])
    assert server.stats().problems == {"bodies": 1}
    second.close()
    until(lambda: server.stats().held_bytes < 2_000_000)
    late[1].sendall(large(BINARY, size, bytes(size)))
    first.sendall(b"\0")
    until(lambda: server.stats().sent == 2)
    for one in (first, third, *late):
        one.close()
    until(lambda: server.stats().held_bytes == 0)


def test_messages_that_the_backend_has_not_taken_are_bodies(gate, url):
    server, connection = gate(bodies_bytes=3_000_000)
    size, body = 900_000, bytes(900_000)
    ones = [upgraded(connection, b"/jobs") for _ in range(2)]
    for n, one in enumerate(ones):
        one.sendall(large(BINARY, size, body))
        until(lambda want=(n + 1) * size: server.stats().held_bytes >= want)
    ones[0].sendall(large(BINARY, size, body))
    until(lambda: server.stats().held_bytes >= 3 * size)
    ones[1].sendall(large(BINARY, size, body))
    until(lambda: server.stats().problems == {"bodies": 1})
    with mq.Pull(connect=url + "j") as pull:
        assert [len(pull.recv(timeout=LIMIT)) for _ in range(3)] == [size] * 3
        assert b"\x03\xf5" in rest(ones[1])
    until(lambda: server.stats().held_bytes == 0)


@pytest.mark.parametrize("begun", [
    large(BINARY, 900_000, bytes(800_000)),                     # a frame
    large(0x02, 800_000, bytes(800_000)),                       # a fragment
    frame(0x01, b"x") + frame(0x00, b"") * COUNT,               # many
    frame(BINARY, b"y") + frame(0x01, b"x"),                    # behind another message
])
def test_a_message_is_to_be_complete_within_the_time_of_a_body(gate, begun):
    """Others need the room that it takes."""
    server, connection = gate(body_time=0.5, bodies_bytes=1_000_000)
    one = upgraded(connection, b"/log?form=raw&from=end")
    one.sendall(begun)
    said = b"\x03\xf0the message was not complete within 0.5 s; send it faster"
    assert said in rest(one)
    until(lambda: server.stats().streams == 0)
    assert server.stats().problems == {"slow_body": 1}
    until(lambda: server.stats().held_bytes == 0)
    two = upgraded(connection, b"/log?form=raw&from=end")
    two.sendall(large(BINARY, 900_000, bytes(900_000)))
    until(lambda: server.stats().sent == 1 + begun.startswith(frame(BINARY, b"y")))


def test_the_time_of_a_message_does_not_run_while_the_gateway_does_not_read(gate, url):
    """Its beginning came with messages that the backend does not take yet."""
    server, connection = gate(body_time=1.0)
    one = upgraded(connection, b"/jobs")
    body = bytes(900_000)
    one.sendall(frame(BINARY, b"1") + frame(BINARY, b"2") + large(BINARY, len(body), body[:-9]))
    talk = talk_of(server)
    until(lambda: talk.buffer.length and talk.read_paused)
    start = time.monotonic()
    until(lambda: time.monotonic() - start > 1.5)
    assert talk.clock is None
    one.sendall(body[-9:])
    with mq.Pull(connect=url + "j") as pull:
        assert [len(pull.recv(timeout=LIMIT)) for _ in range(3)] == [1, 1, len(body)]
    assert talk.clock is None and not server.stats().problems


@pytest.mark.parametrize(("broken", "code"), [
    (b"\x83\x80\0\0\0\0", 1002),          # no such opcode
    (b"\x82\x01a", 1002),                 # not masked
    (b"\xc2\x80\0\0\0\0", 1002),          # a reserved bit
    (b"\x80\x80\0\0\0\0", 1002),          # goes on with nothing
    (b"\x89\xfe\0\x80\0\0\0\0", 1002),    # a long ping
    (frame(CLOSE, b"x"), 1002),
    (frame(CLOSE, b"\0\1"), 1002),
    (frame(0x81, b"\xff"), 1007),          # no UTF-8
    (frame(CLOSE, b"\x03\xe8\xff"), 1007),
    (large(BINARY, 70_000, bytes(70_000)), 1009),
])
def test_a_broken_frame_has_a_reason_in_the_close_frame(gate, broken, code):
    """What came before it is handled, what comes after it is not."""
    server, connection = gate(body_bytes=60_000)
    one = upgraded(connection, b"/log?form=raw&from=end")
    one.sendall(frame(BINARY, b"first"))
    until(lambda: server.stats().sent == 1)
    one.sendall(broken + frame(BINARY, b"last"))
    found = rest(one)
    first, length, *said = found[found.index(b"\x88"):]
    assert first == CLOSE and len(said) == length > 2
    assert bytes(said[:2]) == code.to_bytes(2, "big")
    until(lambda: server.stats().streams == 0)
    assert server.stats().sent == 1 and not server.stats().problems


@pytest.mark.parametrize("ends", [
    b"\x82\x01a", large(BINARY, 70_000, bytes(70_000)), frame(CLOSE, b"\x03\xe8")])
def test_an_answer_that_comes_after_the_close_is_no_mistake(gate, ends):
    server, connection = gate(body_bytes=60_000)
    one = upgraded(connection, b"/log?form=raw&from=end")
    one.sendall(frame(BINARY, b"x") * 100 + ends)
    assert b"\x88" in rest(one)
    until(lambda: server.stats().streams == 0)
    until(lambda: server.stats().held_bytes == 0)
    assert not server.stats().problems


def test_what_comes_before_the_close_is_answered_before_it(gate, url):
    server, connection = gate()
    with mq.Rep(bind=url) as rep:
        one = upgraded(connection, b"/ask")
        one.sendall(b"".join(frame(BINARY, b"%d" % n) for n in range(3))
                    + frame(CLOSE, b"\x03\xe8") + frame(BINARY, b"late") + frame(PING))
        talk = talk_of(server)
        until(lambda: talk.goodbye is not None)
        for n in range(3):
            request = rep.recv_msg(timeout=LIMIT)
            request.reply(bytes(request.parts[0]) + b"!")
            until(lambda want=n + 1: server.stats().sent == want)
        assert rest(one) == b"\x82\x020!\x82\x021!\x82\x022!\x88\x02\x03\xe8"
    until(lambda: server.stats().streams == 0)
    assert server.stats().sent == 3 and not server.stats().problems
    assert talk.close_timer is None


def test_a_close_is_answered_without_answers_that_take_too_long(gate, url):
    server, connection = gate()
    with mq.Rep(bind=url) as rep:
        one = upgraded(connection, b"/ask")
        talk_of(server).close_timeout = 0.1
        one.sendall(frame(BINARY, b"x") * 2 + frame(CLOSE))
        request = rep.recv_msg(timeout=LIMIT)
        assert rest(one) == b"\x88\0"
        request.reply(b"late")
        until(lambda: server.stats().streams == 0)
    assert not server.stats().problems


def test_a_message_before_the_close_that_is_not_taken_has_a_reason(gate):
    server, connection = gate(send_time=0.1)
    one = upgraded(connection, b"/jobs")
    one.sendall(frame(BINARY, b"x") + frame(CLOSE, b"\x03\xe8"))
    assert b"\x03\xf5/jobs takes no message now" in rest(one)
    until(lambda: server.stats().streams == 0)
    until(lambda: not server._serving.server_state.connections)
