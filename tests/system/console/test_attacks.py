"""The console under attack, and with programs at unusual places: clients without a handshake, logs
that strangers fill, folders with spaces, programs of other machines."""

import contextlib
import json
import logging
import socket
import time

import pytest
from certificates import Authority
from waiting import until

import mqcore as mq
from mqcore import monitor
from mqcore.console import Console, control, web
from mqcore.console.control import from_here, shown
from mqcore.console.looks import Look
from mqcore.console.requests import Refused
from mqcore.console.web import CONNECTIONS

LIMIT = 60


def place(console):
    host, _, port = console.page.partition("://")[2].rstrip("/").rpartition(":")
    return host, int(port)


def opened(stack, console):
    return stack.enter_context(socket.create_connection(place(console), LIMIT))


def closed(sock):
    """Wait until the other end has closed the connection."""
    with contextlib.suppress(ConnectionError):
        while sock.recv(65536):
            pass
    return True


@pytest.fixture
def pages():
    """The connections of a console's HTTP server."""
    return lambda console: console._server._server.server_state.connections


# -- connections -----------------------------------------------------------------------------------


def test_connections_without_a_handshake_are_counted(tmp_path, monkeypatch, pages):
    monkeypatch.setattr(web, "IDLE", 1000)
    known = Authority(tmp_path)
    with Console(**known.server) as console, contextlib.ExitStack() as stack:
        first = [opened(stack, console) for _ in range(2 * CONNECTIONS)]
        until(lambda: len(pages(console)) == 2 * CONNECTIONS)
        assert closed(opened(stack, console))
        assert len(pages(console)) == 2 * CONNECTIONS
        for sock in first:
            sock.close()
        until(lambda: not pages(console))


def test_a_handshake_that_does_not_come_ends_its_connection(tmp_path, monkeypatch, pages):
    monkeypatch.setattr(web, "IDLE", 0.1)
    known = Authority(tmp_path)
    with Console(**known.server) as console, contextlib.ExitStack() as stack:
        silent, garbage, leaves = (opened(stack, console) for _ in range(3))
        garbage.sendall(b"GET / HTTP/1.1\r\n\r\n")
        leaves.close()
        assert closed(silent) and closed(garbage)
        until(lambda: not pages(console))


def test_the_console_ends_while_handshakes_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(web, "IDLE", 1000)
    known = Authority(tmp_path)
    with contextlib.ExitStack() as stack:
        with Console(**known.server) as console:
            sock = opened(stack, console)
            until(lambda: console._server._server.server_state.connections)
        assert closed(sock)


def test_refused_requests_do_not_fill_the_log(caplog):
    caplog.set_level(logging.WARNING)
    requests = (b"no HTTP\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\n"
                b"Upgrade: h2c\r\n\r\n")
    with Console() as console:
        for number in range(40):
            with contextlib.ExitStack() as stack:
                sock = opened(stack, console)
                sock.sendall(requests[number % 2])
                assert sock.recv(65536).startswith(b"HTTP/1.1 4")
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == len(set(texts)) <= 4, texts


# -- places ----------------------------------------------------------------------------------------


def ask(req, op, **fields):
    return json.loads(req.request(json.dumps({"op": op, **fields}).encode()))


@pytest.mark.parametrize("name", ["my shop", "50%", "木"])
def test_any_number_of_programs_in_any_folder_explain_themselves(monkeypatch, folder, name):
    monkeypatch.setenv("MQCORE_MONITOR", str(folder.parent / name))
    with contextlib.ExitStack() as stack:
        for _ in range(18):
            context = stack.enter_context(mq.Context(monitor=True))
            stack.enter_context(mq.Pull(bind="inproc://x", context=context))
        console = stack.enter_context(Console())
        own = stack.enter_context(mq.Context(monitor=False))
        req = stack.enter_context(mq.Req(connect=console._rep.endpoints[0].url, context=own,
                                         recv_timeout=LIMIT))
        rows = until(lambda: len(rows := ask(req, "sockets")["rows"]) == 18 and rows, LIMIT)
        for row in rows:
            answer = ask(req, "explain", context=row["context"], socket=row["socket"])
            assert "A pull socket" in answer["text"], answer


@pytest.mark.parametrize(("url", "via", "near", "found"), [
    ("tcp://0.0.0.0:5", "ipc:///m", True, "tcp://127.0.0.1:5"),
    ("tcp://[::]:5", "ipc:///m", True, "tcp://[::1]:5"),
    ("ws://*:5/path", "ipc:///m", True, "ws://127.0.0.1:5/path"),
    ("tcp://127.0.0.1:5", "ipc:///m", True, "tcp://127.0.0.1:5"),
    ("tls+tcp://a.example:5", "ipc:///m", True, ""),
    ("ipc:///a", "tcp://127.0.0.1:7", True, "ipc:///a"),
    # another machine: its loopback and its files are not ours
    ("tcp://127.0.0.1:5", "tcp://a.example:7", False, ""),
    ("tcp://[::1]:5", "tcp://a.example:7", False, ""),
    ("ws://localhost:5/path", "tcp://a.example:7", False, ""),
    ("ipc:///a", "tcp://a.example:7", False, ""),
    ("shm:///a", "tls+tcp://a.example:7", False, ""),
    ("tcp://*:5", "tls+tcp://a.example:7", False, "tcp://a.example:5"),
    ("tcp://192.0.2.1:5", "tcp://a.example:7", False, "tcp://192.0.2.1:5"),
    # a container that shares a folder with this machine
    ("ipc:///a", "ipc:///m", False, "ipc:///a"),
    ("tcp://*:5", "ipc:///m", False, ""),
])
def test_a_message_goes_to_the_program_that_was_meant(url, via, near, found):
    assert from_here(url, via, near) == found


def test_a_program_of_another_machine_is_out_of_reach(monkeypatch):
    with mq.Context(monitor=True) as context, mq.Pull(bind="tcp://127.0.0.1:0", context=context):
        shot, = monitor.look()
        look = Look(shots=[shot], urls={shot.context.id: "tcp://a.example:7"})
        assert control.address(look, shot.context.id, 1)[0] == "pull"
        shot.process.host = "elsewhere"
        with pytest.raises(Refused) as error:
            control.address(look, shot.context.id, 1)
        assert "elsewhere" in error.value.text


# -- messages --------------------------------------------------------------------------------------


def test_of_a_large_part_only_the_beginning_is_looked_at():
    large = ("ü" * 1_000_000).encode() + b"\xff"
    began = time.process_time()
    for _ in range(1000):
        found = shown(memoryview(large))
    assert time.process_time() - began < 10        # of the whole part: minutes
    assert found == {"kind": "text", "text": "ü" * 2000, "bytes": len(large)}
    assert shown("ü".encode()[:1]) == {"kind": "hex", "text": "c3", "bytes": 1}
    assert shown(b"\0" * 10_000) == {"kind": "hex", "text": "00" * 1000, "bytes": 10_000}
    assert shown(b"") == {"kind": "text", "text": "", "bytes": 0}
