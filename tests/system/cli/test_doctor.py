"""`mq doctor`: each way to fail is named, and it disturbs nobody."""

import errno
import socket
import threading
from contextlib import contextmanager

import pytest
import zmq
from programs import mq, run

import mqcore
from mqcore.cli import doctor_options

STEPS = ["name", "port", "wire", "greeting", "mechanism", "socket", "round"]


def diagnose(url, *args):
    status, out, err = run(*mq("doctor", url, "-t", 5, *args))
    assert err == ""
    return status, out.decode()


@pytest.mark.parametrize(
    "pattern", ["rep", "pub", "pull", "router", "push", "dealer", "pair", "xpub", "sub"]
)
@pytest.mark.parametrize("library", [pytest.param("mqcore", marks=pytest.mark.slow), "pyzmq"])
def test_all_is_well(library, pattern):
    with listening(library, pattern) as url:
        status, out = diagnose(url)
    lines = out.splitlines()
    assert status == 0 and [line.split()[1] for line in lines] == STEPS, out
    assert all(line.startswith("ok ") for line in lines)
    assert pattern.upper() in lines[5] and "ZMTP 3.1" in lines[2] and "NULL" in lines[4]


@contextmanager
def listening(library, pattern):
    if library == "mqcore":
        with (
            mqcore.Context() as context,
            mqcore.socket(pattern, bind="tcp://127.0.0.1:0", context=context) as s,
        ):
            yield s.endpoints[0].url
    else:
        with zmq.Context() as context, context.socket(getattr(zmq, pattern.upper())) as s:
            s.linger = 0
            yield f"tcp://127.0.0.1:{s.bind_to_random_port('tcp://127.0.0.1')}"


def test_over_ipc(tmp_path):
    with mqcore.Context() as context, mqcore.Rep(bind=f"ipc://{tmp_path}/s", context=context) as s:
        status, out = diagnose(s.endpoints[0].url)
    assert status == 0 and "REP" in out


def test_a_resolvers_name():
    with mqcore.Context() as context, mqcore.Rep(bind="tcp://127.0.0.1:0", context=context) as s:
        status, out = diagnose(s.endpoints[0].url.replace("tcp", "dns"))
    assert status == 0 and "REP" in out


def test_it_takes_nobodys_messages():
    with (
        mqcore.Context() as context,
        mqcore.Push(bind="tcp://127.0.0.1:0", context=context) as push,
    ):
        url = push.endpoints[0].url
        assert diagnose(url)[0] == 0
        with mqcore.Pull(connect=url, context=context) as pull:
            push.send(b"mine", timeout=20)
            assert pull.recv(timeout=20) == b"mine"


@contextmanager
def server(say):
    """Accepts one connection and says `say` (None: nothing; b"": closes at once)."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = threading.Event()

        def serve():
            with listener.accept()[0] as peer:
                if say:
                    peer.recv(64)
                    peer.sendall(say)
                if say is None or say:
                    done.wait(20)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        done.set()
        thread.join()


CURVE = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"CURVE".ljust(20, b"\0") + bytes(32)


@pytest.mark.parametrize(
    ("say", "step", "found"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "wire", "an HTTP server"),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "wire", "an SSH server"),
        (b"\xff" + bytes(8) + b"\x7f\x01\x08", "wire", "ZMTP 2.0 PUSH"),
        (b"\xff" + bytes(8) + b"\x7f\x03", "wire", "silence"),
        (b"", "wire", "the end of the connection"),
        (None, "wire", "silence"),
        (CURVE, "mechanism", "CURVE"),
        (CURVE.replace(b"CURVE", b"NULL\0"), "socket type", "no READY"),
    ],
)
def test_what_is_wrong_on_the_wire(say, step, found):
    with server(say) as url:
        status, out, _ = run(*mq("doctor", url, "-t", 0.3))
    text = out.decode()
    assert status == 1 and f"FAILED  {step}" in text and found in text and "what to do" in text


@pytest.mark.parametrize(
    ("url", "step", "found"),
    [
        ("tcp://127.0.0.1", "name", "host:port"),
        ("tcp://*:5555", "name", "listens"),
        ("tcp://127.0.0.1:5555#here", "name", "'5555#here' is not a port"),
        ("tcp://127.0.0.1:http", "name", "'http' is not a port"),
        ("tcp://127.0.0.1:65536", "name", "'65536' is not a port"),
        ("dns://localhost:05555", "name", "'05555' is not a port"),
        ("tcp://127.1:5555", "name", "not an IPv4 address"),
        ("tcp://::1:5555", "name", "brackets"),
        ("tcp://;127.0.0.1:5555", "name", "host"),
        ("tcp://a..b:5555", "name", "unknown"),
        (f"tcp://{'a' * 64}.b:5555", "name", "unknown"),
        ("tcp://no-such-host.invalid:5555", "name", "not known"),
        ("tcp://203.0.113.9;127.0.0.1:5555", "source", "203.0.113.9"),
        ("tcp://no-such-host.invalid;127.0.0.1:5555", "source", "not known"),
        ("tcp://[::1];127.0.0.1:5555", "source", "no address family in common"),
        ("ipc:///nowhere/at/all", "port", "No such file"),
        ("inproc://x", "url", "outside"),
        ("dns://no-such-host.invalid:5555", "name", "not known"),
        ("file:///etc/workers", "url", "test each of them"),
        ("carrier-pigeon://x", "url", "carrier-pigeon"),
        ("127.0.0.1:5555", "url", "tcp://"),
        ("tcp://127.0.0.1:5555?nosuch=1", "url", "unknown option 'nosuch'"),
        ("tcp://127.0.0.1:5555?tos=high", "url", "whole number"),
        ("tcp://127.0.0.1:5555?tos", "url", "name=value"),
        ("tcp://127.0.0.1:5555?tos=1&tos=1", "url", "twice"),
        ("tcp://127.0.0.1:5555?congestion_control=reno%00x", "url", "a zero byte"),
        ("tls+tcp://127.0.0.1:5555", "url", "no transport 'tls+tcp'"),
        ("tcp://%zz:5555", "url", "position 6"),
    ],
)
def test_what_is_wrong_before(url, step, found):
    status, out = diagnose(url)
    assert status == 1 and f"FAILED  {step}" in out and found in out


@pytest.mark.parametrize("scheme", ["tcp", "dns"])
@pytest.mark.parametrize(("option", "found", "advice"), [
    ("congestion_control=nosuch", "no such algorithm", "reno"),
    ("bind_device=nosuch", "no such network device", "lo"),
    (f"bind_device={'x' * 99}", "no such network device", "lo"),
])
def test_what_the_kernel_refuses(scheme, option, found, advice):
    with listening("mqcore", "rep") as url:
        status, out = diagnose(f"{url.replace('tcp', scheme)}?{option}")
    name, failed, remedy = out.splitlines()
    assert status == 1 and name.startswith("ok      name")
    assert failed.startswith("FAILED  options") and found in failed, out
    assert remedy.strip().startswith("what to do") and advice in remedy, out


def test_options_that_a_process_may_not_choose():
    class Refusing:
        def setsockopt(self, *_):
            raise PermissionError(errno.EPERM, "Operation not permitted")

    for name in ("congestion_control", "bind_device"):
        with pytest.raises(doctor_options.Wrong, match="this process may not choose") as caught:
            doctor_options.apply(Refusing(), {name: "cubic"})
        assert "leave the option out" in caught.value.advice


def test_options_that_the_kernel_accepts():
    with listening("mqcore", "rep") as url:
        status, out = diagnose(f"{url}?congestion_control=reno&bind_device=lo&reconnect=0.1")
    assert status == 0 and [line.split()[1] for line in out.splitlines()] == [
        "name", "options", *STEPS[1:]], out
    assert "bind_device=lo, congestion_control=reno" in out


@pytest.mark.parametrize("place", ["lo:{}", "lo;127.0.0.1:{}", "127.0.0.1;lo:{}",
                                   "127.0.0.1:0;127.0.0.1:{}"])
def test_interfaces_and_source_addresses(place):
    with listening("mqcore", "rep") as url:
        status, out = diagnose("tcp://" + place.format(url.rpartition(":")[2]))
    assert status == 0 and "127.0.0.1" in out.splitlines()[0], out


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    status, out = diagnose(f"tcp://127.0.0.1:{port}")
    assert status == 1 and "FAILED  port" in out and "nobody listens" in out


SP = {0x31: "REP", 0x11: "PAIR v1", 0x70: "BUS", 0x99: "protocol 0x99"}


@pytest.mark.parametrize("number", SP)
def test_an_sp_peer_is_named(number):
    """It says its header at once, before or after ours; what we said it does not understand."""
    with server(b"\0SP\0" + number.to_bytes(2, "big") + bytes(2)) as url:
        status, out = diagnose(url)
    assert status == 0 and "wire         SP" in out and f"socket type  {SP[number]}: " in out


def test_an_http_server_that_is_silent_until_it_is_asked():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = threading.Event()

        def serve():
            with listener.accept()[0], listener.accept()[0] as second:
                assert second.recv(64).startswith(b"GET / HTTP/1")
                second.sendall(b"HTTP/1.0 404 Not Found\r\n\r\n")
                done.wait(20)

        thread = threading.Thread(target=serve)
        thread.start()
        status, out, _ = run(*mq("doctor", f"tcp://127.0.0.1:{listener.getsockname()[1]}",
                                 "-t", 0.5))
        done.set()
        thread.join()
    assert status == 1 and b"an HTTP server, silent until a request" in out


HOSTILE = b"\x1b]0;pwned\x07\x9b2J\r\n"


@pytest.mark.parametrize("where", ["mechanism", "error", "type", "name"])
def test_what_a_peer_says_cannot_command_the_terminal(where):
    mechanism = HOSTILE if where == "mechanism" else b"NULL"
    greeting = b"\xff" + bytes(7) + b"\x01\x7f\x03\x01" + mechanism.ljust(20, b"\0") + bytes(32)
    if where == "error":
        body = b"\x05ERROR" + bytes([len(HOSTILE)]) + HOSTILE
    else:
        kind = HOSTILE if where == "type" else b"PULL"
        name = HOSTILE if where == "name" else b"Motto"
        body = (b"\x05READY\x0bSocket-Type" + len(kind).to_bytes(4, "big") + kind
                + bytes([len(name)]) + name + len(HOSTILE).to_bytes(4, "big") + HOSTILE)
    said = greeting + bytes([4, len(body)]) + body
    with answering(said) as url:
        _, out, err = run(*mq("doctor", url, "-t", 1))
        assert "pwned" in out.decode()
        status, _, complaint = run(*mq("cat", "push", url, "-d", "x", "-t", 0.3))
    for text in (out, err.encode(), complaint.encode()):
        assert text.decode().replace("\n", "").isprintable(), text


@contextmanager
def answering(said):
    """A listener that greets each peer so."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer:
                    peer.sendall(said)
                    peer.settimeout(0.5)
                    try:
                        while peer.recv(1000):
                            pass
                    except OSError:
                        pass
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
