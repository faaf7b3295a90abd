"""Addresses and options, of both modules: what is taken, what is refused, with which number."""

import errno

import pytest
from zmqerrno import number


def test_addresses(z, new, tmp_path):
    s = new("DEALER")
    for address, error in (
            ("junk", z.EINVAL), ("", z.EINVAL), ("tcp://", z.EINVAL), ("tcp://x", z.EINVAL),
            ("tcp://127.0.0.1", z.EINVAL), ("foo://x", z.EPROTONOSUPPORT), ("ipc://", z.EINVAL)):
        assert number(z, s.bind, address) == number(z, s.connect, address) == error
    assert number(z, s.connect, "tcp://*:5") == z.EINVAL
    assert number(z, s.bind, "tcp://1.2.3.4:5555") == z.EADDRNOTAVAIL
    assert number(z, s.bind, "tcp://no-such-host.invalid:5") == errno.ENODEV
    assert number(z, s.bind, f"ipc://{tmp_path}/none/at/all") == errno.ENOENT
    assert s.last_endpoint == b""
    for address in ("tcp://127.0.0.1:*", "tcp://*:*", f"ipc://{tmp_path}/a%20b", "inproc://a%b c"):
        bound = s.bind(address)
        end = s.last_endpoint.decode()
        assert bound.addr == end and end.startswith(address[:6])
        if not end.startswith("ipc"):  # libzmq takes the path from whoever listens there
            assert number(z, new("DEALER").bind, end) == z.EADDRINUSE
            assert "addr=" in repr(pytest.raises(z.ZMQError, new("DEALER").bind, end).value)
        s.unbind(end)
        assert number(z, s.unbind, end) == errno.ENOENT
    with s.bind("tcp://127.0.0.1:*") as same:
        assert same is s
        end = s.last_endpoint
    assert number(z, s.unbind, end) == errno.ENOENT
    s.connect("tcp://127.0.0.1:7")
    s.disconnect("tcp://127.0.0.1:7")
    for gone in (s.disconnect, s.unbind):
        assert number(z, gone, "tcp://127.0.0.1:7") == errno.ENOENT
        assert number(z, gone, "junk") == z.EINVAL
    port = s.bind_to_random_port("tcp://127.0.0.1")
    assert s.last_endpoint.decode() == f"tcp://127.0.0.1:{port}"
    assert 20000 <= new("PUB").bind_to_random_port("tcp://127.0.0.1", 20000, 30000) < 30000
    with pytest.raises(z.ZMQBindError):
        s.bind_to_random_port("tcp://127.0.0.1", port, port + 1, 3)


OPTIONS = {  # name: default, another value
    "sndhwm": (1000, 5), "rcvhwm": (1000, 0), "linger": (-1, 7), "rcvtimeo": (-1, 12),
    "sndtimeo": (-1, 0), "reconnect_ivl": (100, 20), "reconnect_ivl_max": (0, 500),
    "backlog": (100, 3), "maxmsgsize": (-1, 1000), "immediate": (0, 1), "heartbeat_ivl": (0, 500),
    "heartbeat_ttl": (0, 700), "handshake_ivl": (30000, 100), "connect_timeout": (0, 200),
    "sndbuf": (-1, 4096), "rcvbuf": (-1, 4096), "tos": (0, 8), "tcp_keepalive": (-1, 1),
    "conflate": (0, 1), "identity": (b"", b"me"), "affinity": (0, 1), "rate": (100, 7),
    "ipv6": (0, 1), "tcp_keepalive_idle": (-1, 60), "multicast_hops": (1, 2)}
WRONG = {"sndhwm": -1, "linger": -2, "rcvtimeo": -2, "immediate": 2, "identity": b"",
         "reconnect_ivl": -2, "tcp_keepalive": 5, "tos": -1, "backlog": -1}


def test_options(z, new):
    context = new.context()
    for opened in (False, True):
        with context.socket(z.DEALER) as s:
            if opened:
                s.poll(0)
            for name, (default, other) in OPTIONS.items():
                if opened and name in ("conflate", "identity"):
                    continue
                option = getattr(z, name.upper())
                assert getattr(s, name) == s.getsockopt(option) == default, name
                setattr(s, name, other)
                assert getattr(s, name.upper()) == s.get(option) == other, name
            for name, value in WRONG.items():
                assert number(z, s.setsockopt, getattr(z, name.upper()), value) == z.EINVAL, name
    s = new("DEALER")
    assert (s.type, s.getsockopt(z.TYPE), s.events) == (z.DEALER, 5, 0)
    for option in (z.FD, z.EVENTS, z.RCVMORE, z.TYPE, z.LAST_ENDPOINT, 9999, z.SUBSCRIBE,
                   z.ROUTER_MANDATORY, z.XPUB_VERBOSE, z.REQ_RELAXED):
        assert number(z, s.setsockopt, option, b"x" if option in (z.SUBSCRIBE, z.LAST_ENDPOINT)
                      else 1) == z.EINVAL
    assert number(z, s.getsockopt, 9999) == number(z, s.getsockopt, z.SUBSCRIBE) == z.EINVAL
    for option, value in ((z.IDENTITY, "x"), (z.IDENTITY, 3), (z.LINGER, b"x"), (z.LINGER, "x")):
        with pytest.raises(TypeError):
            s.setsockopt(option, value)
    for name in ("foo", "SUBSCRIBE", "router_mandatory"):
        with pytest.raises(AttributeError):
            getattr(s, name)
    with pytest.raises(AttributeError):
        s.foo = 1
    s.set_hwm(3)
    assert (s.hwm, s.get_hwm(), s.sndhwm, s.rcvhwm) == (3, 3, 3, 3)
    s.hwm = 4
    s.set_string(z.IDENTITY, "é")
    assert s.get_string(z.ROUTING_ID) == "é"


def test_options_of_contexts(z, new):
    context = z.Context(io_threads=2)
    try:
        assert (context.io_threads, context.IO_THREADS, context.get(z.IO_THREADS)) == (2, 2, 2)
        assert (context.max_sockets, context.get(z.SOCKET_LIMIT)) == (1023, 65535)
        assert number(z, context.get, 99) == number(z, context.set, 99, 1) == z.EINVAL
        with pytest.raises(AttributeError):
            _ = context.linger
        with pytest.raises(AttributeError):
            context.foo = 1
        context.linger = 0
        context.setsockopt(z.RCVTIMEO, 5)
        context.subscribe = b"only for SUB"
        assert (context.linger, context.getsockopt(z.RCVTIMEO)) == (0, 5)
        for kind in (z.PUB, z.SUB):
            with context.socket(kind) as s:
                assert (s.linger, s.rcvtimeo) == (0, 5)
        assert number(z, context.socket, 77) == z.EINVAL
    finally:
        context.term()
    assert context.closed
    context.term()
    assert number(z, context.socket, z.PUB) == z.ENOTSUP
    with z.Context() as context:
        context.max_sockets = 1
        with context.socket(z.PUB):
            assert number(z, context.socket, z.PUB) == errno.EMFILE
    with z.Context() as context, context.socket(z.PUB) as s:
        pass
    assert context.closed and s.closed
