"""vsock: its addresses always; an exchange where the kernel has the loopback."""

import errno
import os
import socket

import pytest
from mqcore.transports import vsock
from mqcore.transports.vsock import ANY, FAMILY, Vsock, parse

from mqcore.errors import AddressError, BindError


@pytest.fixture
def plugin():
    return Vsock()


def bound(cid):
    """Why a listener cannot be bound to this CID here; "" if it can."""
    try:
        with socket.socket(FAMILY, socket.SOCK_STREAM) as sock:
            sock.bind((cid, ANY))
    except OSError as error:
        return os.strerror(error.errno or 0)
    return ""


no_vsock = bound(ANY)
no_loopback = bound(1)  # only vsock_loopback answers for VMADDR_CID_LOCAL
needs_vsock = pytest.mark.skipif(bool(no_vsock), reason=f"this kernel has no vsock ({no_vsock})")
needs_loopback = pytest.mark.skipif(
    bool(no_loopback), reason=f"this kernel has no vsock loopback ({no_loopback})")


@pytest.mark.parametrize(("address", "role", "expected"), [
    ("3:5555", "connect", (3, 5555)), ("host:1", "connect", (2, 1)),
    ("local:4294967294", "connect", (1, ANY - 1)), ("hypervisor:7", "bind", (0, 7)),
    ("*:5555", "bind", (ANY, 5555)), ("*:*", "bind", (ANY, ANY)), ("local:0", "bind", (1, ANY)),
])
def test_addresses(plugin, address, role, expected):
    plugin.check(address, role)
    assert parse(address, role) == expected


@pytest.mark.parametrize(("address", "role", "position", "message"), [
    ("3", "bind", 1, "a port is missing"), ("3:", "bind", 2, "a port is missing"),
    (":5", "bind", 0, "the CID is missing"), ("*:5", "connect", 0, "only for bind"),
    ("4294967295:5", "connect", 0, "is not a CID"), ("03:5", "connect", 0, "is not a CID"),
    ("tower:5", "bind", 0, "'tower' is not a CID"), ("3:0", "connect", 2, "the URL that bind"),
    ("3:*", "connect", 2, "the URL that bind"), ("3:4294967295", "bind", 2, "is not a port"),
    ("host:x", "bind", 5, "'x' is not a port"), ("3:-1", "bind", 2, "is not a port"),
])
def test_addresses_that_are_wrong(plugin, address, role, position, message):
    with pytest.raises(AddressError, match=message) as caught:
        plugin.check(address, role)
    assert caught.value.position == position


def test_a_kernel_without_it(plugin, opts, monkeypatch):
    assert bool(plugin.unavailable()) == bool(no_vsock)
    monkeypatch.setattr(vsock, "FAMILY", 46)  # above every family that there is
    assert "this kernel has no vsock" in plugin.unavailable()
    with pytest.raises(BindError, match="listen on vsock://.:5.*this kernel has no vsock"):
        plugin.listen("*:5", opts)
    with pytest.raises(OSError) as caught:
        plugin.connect((1, 5), opts)
    assert caught.value.errno == errno.EAFNOSUPPORT


def test_a_reset_is_a_refusal(plugin):
    class Reset:
        def getsockopt(self, *_):
            return errno.ECONNRESET

    assert plugin.finish(Reset()) == errno.ECONNREFUSED


@needs_vsock
def test_bound_to_all(plugin, opts, closing):
    listening = closing(plugin.listen("*:*", {**opts, "recv_buffer": 1 << 20}))
    sock, = listening.sockets
    cid, port = sock.getsockname()
    assert cid == ANY and listening.address == f"{vsock._own_cid()}:{port}"
    plugin.check(listening.address, "connect")
    assert sock.getsockopt(FAMILY, vsock.BUFFER_SIZE) == 1 << 20
    with pytest.raises(BindError) as caught:
        plugin.listen(f"*:{port}", opts)
    assert caught.value.errno == errno.EADDRINUSE


@needs_vsock
def test_a_cid_that_is_not_ours(plugin, opts):
    with pytest.raises(BindError, match="this machine has no such CID"):
        plugin.listen("77777:*", opts)


@needs_loopback
def test_names_of_both_ends(plugin, opts, closing):
    import select

    listening = closing(plugin.listen("local:*", opts))
    near = closing(plugin.connect(plugin.resolve(listening.address, opts)[0], opts))
    assert select.select([], [near], [], 10)[1] and plugin.finish(near) == 0
    far = closing(listening.sockets[0].accept()[0])
    assert plugin.names(near)[1] == f"vsock://{listening.address}"
    assert plugin.names(far) == plugin.names(near)[::-1]


@needs_loopback
def test_an_exchange():
    import mqcore as mq

    with mq.Context(linger=0) as context:
        pull = context.socket("pull")
        push = context.socket("push", connect=pull.bind("vsock://local:*"))
        for body in (b"", b"x" * 100, b"y" * 300_000):
            push.send(body)
            assert pull.recv(timeout=10) == body
        push.close()
        pull.close()


@needs_loopback
def test_nobody_listens(plugin, opts, closing):
    import select

    listening = closing(plugin.listen("local:*", opts))
    target = plugin.resolve(listening.address, opts)[0]
    for sock in listening.sockets:
        sock.close()
    near = closing(plugin.connect(target, opts))
    assert select.select([], [near], [], 10)[1]
    assert plugin.finish(near) == errno.ECONNREFUSED
