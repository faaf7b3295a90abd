"""udp://: addresses, what may bind and what may connect, and the sockets that it makes."""

import socket

import pytest
from mqcore.transports.udp import transport

import mqcore as mq
from mqcore import options
from mqcore.spi import registry

DEFAULTS = options.defaults(registry.transport_options("udp"), "")
GROUP = "239.9.8.7"


@pytest.mark.parametrize("address,role", [
    ("127.0.0.1:5555", "connect"), ("127.0.0.1:0", "bind"), ("*:0", "bind"), ("[::1]:5555", "bind"),
    ("host.example:1", "connect"), ("lo:0", "bind"), (f"{GROUP}:5555", "bind"),
    (f"lo;{GROUP}:5555", "bind"), (f"127.0.0.1;{GROUP}:5555", "connect"),
    ("[ff12::1%lo]:5555", "bind"), ("lo;[ff12::1]:5555", "connect"),
    ("lo;127.0.0.1:5555", "connect"), ("127.0.0.1:4000;127.0.0.1:5555", "connect"),
])
def test_addresses(address, role):
    transport.check(address, role)


@pytest.mark.parametrize("address,role,text,position", [
    ("127.0.0.1", "bind", "a port is missing", 9),
    ("*:5555", "connect", "only for bind", 0),
    (f"lo:1;{GROUP}:5555", "bind", "an interface has no port", 0),
    (f"lo:1;{GROUP}:5555", "connect", "an interface has no port", 0),
    ("lo;127.0.0.1:5555", "bind", "only a multicast group is bound on an interface", 0),
    ("lo;239.0.0.1:99999", "bind", "is not a port", 13),
    ("127.0.0.1:0", "connect", "port 0 is only for bind", 10),
])
def test_bad_addresses(address, role, text, position):
    with pytest.raises(mq.AddressError, match=text) as caught:
        transport.check(address, role)
    assert caught.value.position == position


@pytest.mark.parametrize("pattern,role,text", [
    ("push", "connect", "udp:// cannot carry a push socket"),
    ("req", "connect", "it carries radio to connect.., dgram to connect.., pub to connect"),
    ("pub", "bind", "a pub socket cannot bind.. over udp://.*only connect"),
    ("sub", "connect", "a sub socket cannot connect.. over udp://.*only bind"),
    ("radio", "bind", "a radio socket cannot bind.. over udp://.*only connect"),
    ("dish", "connect", "a dish socket cannot connect.. over udp://.*only bind"),
])
def test_who_may(pattern, role, text):
    with mq.Context() as ctx, ctx.socket(pattern) as sock:
        with pytest.raises(mq.UsageError, match=text):
            getattr(sock, role)("udp://127.0.0.1:5555")
        assert sock.endpoints == ()


def option(sock, level, name, size=4):
    return int.from_bytes(sock.getsockopt(level, name, size), "little")


def test_bind_unicast_is_not_shared():
    made = transport.listen("127.0.0.1:0", DEFAULTS)
    (sock,) = made.sockets
    with sock:
        assert made.address == f"127.0.0.1:{sock.getsockname()[1]}"
        assert not sock.getblocking() and not sock.get_inheritable()
        with pytest.raises(mq.AddressInUse):
            transport.listen(made.address, DEFAULTS)


def test_bind_a_group_is_shared():
    made = transport.listen(f"lo;{GROUP}:0", DEFAULTS)
    port = made.sockets[0].getsockname()[1]
    assert made.address == f"lo;{GROUP}:{port}"
    again = transport.listen(made.address, DEFAULTS)
    for sock in made.sockets + again.sockets:
        with sock:
            assert sock.getsockname() == (GROUP, port)   # hears nothing else that comes to the port


def test_what_a_radio_says_about_its_datagrams():
    options = {**DEFAULTS, "multicast_hops": 7, "multicast_loop": False, "tos": 8}
    (target,) = transport.resolve(f"127.0.0.1;{GROUP}:5555", options)
    assert target.interface == socket.if_nametoindex("lo")
    with transport.connect(target, options) as sock:
        assert sock.getpeername() == (GROUP, 5555)
        assert option(sock, socket.IPPROTO_IP, socket.IP_MULTICAST_TTL) == 7
        assert option(sock, socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP) == 0
        assert option(sock, socket.IPPROTO_IP, socket.IP_TOS) == 8
        assert not sock.getblocking() and not sock.get_inheritable()


def test_defaults_of_multicast():
    with transport.connect(transport.resolve(f"lo;{GROUP}:5555", DEFAULTS)[0], DEFAULTS) as sock:
        assert option(sock, socket.IPPROTO_IP, socket.IP_MULTICAST_TTL) == 1
        assert option(sock, socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP) == 1


@pytest.mark.parametrize("hops", [-1, 256])
def test_hops_are_those_of_an_ip_header(ctx, hops):
    with pytest.raises(mq.OptionError, match="multicast_hops"):
        ctx.socket("radio", connect=f"udp://{GROUP}:5555", multicast_hops=hops)


def test_source_of_a_unicast_radio():
    (target,) = transport.resolve("127.0.0.3;127.0.0.1:5555", DEFAULTS)
    with transport.connect(target, DEFAULTS) as sock:
        assert sock.getsockname()[0] == "127.0.0.3"
        assert transport.names(sock)[1] == "udp://127.0.0.1:5555"


@pytest.mark.parametrize("address", [f"nosuchif0;{GROUP}:0", f"192.0.2.77;{GROUP}:0",
                                     "nosuchhost.invalid:0"])
def test_no_such_interface(address):
    with pytest.raises(mq.BindError, match="cannot listen on udp://"):
        transport.listen(address, DEFAULTS)
