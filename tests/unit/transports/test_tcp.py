import errno
import os
import select
import socket

import pytest
from machine import ipv6

from mqcore.errors import AddressError, AddressInUse, AddressNotAvailable
from mqcore.spi import inet, registry
from mqcore.spi.capability import complaints
from mqcore.spi.inet import bind_all, look_up, parse
from mqcore.spi.transport import StreamTransport

tcp = registry.transport("tcp")


def dial(address, opts):
    """Connect as the control plane does, without a loop."""
    error = OSError("nothing tried")
    for target in tcp.resolve(address, opts):
        sock = None
        try:
            sock = tcp.connect(target, opts)
            assert select.select([], [sock], [], 10)[1]
            number = tcp.finish(sock)
            if not number:
                return sock
            error = OSError(number, os.strerror(number))
        except OSError as failed:
            error = failed
        if sock is not None:
            sock.close()
    raise error


def accept(listening):
    ready = select.select(listening.sockets, [], [], 10)[0]
    return ready[0].accept()[0]


def test_what_it_says_of_itself():
    assert isinstance(tcp, StreamTransport) and complaints(tcp) == []


@pytest.mark.parametrize(("bind", "real", "dialled"), [
    ("127.0.0.1:0", "127.0.0.1", "127.0.0.1"),
    ("127.0.0.1:*", "127.0.0.1", "127.0.0.1"),
    ("0.0.0.0:0", "0.0.0.0", "127.0.0.1"),
    ("0.0.0.0:*", "0.0.0.0", "0.0.0.0"),
    pytest.param("*:0", "[::]", "127.0.0.1", marks=ipv6),
    pytest.param("*:*", "[::]", "[::1]", marks=ipv6),
    pytest.param("*:*", "[::]", "[::]", marks=ipv6),
    ("lo:0", "127.0.0.1", "127.0.0.1"),
    pytest.param("lo:*", "127.0.0.1", "[::1]", marks=ipv6),
    ("localhost:0", "127.0.0.1", "localhost"),
    pytest.param("[::1]:0", "[::1]", "[::1]", marks=ipv6),
    pytest.param("[::]:0", "[::]", "[::1]", marks=ipv6),
    pytest.param("[::]:0", "[::]", "127.0.0.1", marks=ipv6),
])
def test_bind_gives_the_real_address_and_names_both_ends(bind, real, dialled, opts, closing):
    listening = closing(tcp.listen(bind, opts))
    host, _, port = listening.address.rpartition(":")
    assert host.startswith(real) and int(port) > 0
    near = closing(dial(f"{dialled}:{port}", opts))
    far = closing(accept(listening))
    ours, theirs = tcp.names(near)
    assert tcp.names(far) == (theirs, ours)
    assert ours.startswith("tcp://") and theirs.endswith(f":{port}") and "ffff" not in theirs
    tcp.check(listening.address, "connect")


def test_descriptors_are_as_promised(opts, closing):
    opts.update(keepalive=True, tos=0x10, send_buffer=50_000, recv_buffer=60_000, backlog=5)
    listening = closing(tcp.listen("127.0.0.1:0", opts))
    near = closing(dial(listening.address, opts))
    far = closing(accept(listening))
    far.setblocking(False)
    tcp.tune(far, opts)
    for sock in (near, far, *listening.sockets):
        assert sock.gettimeout() == 0 and not os.get_inheritable(sock.fileno())
    for sock in (near, far):
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 0x10
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 100_000  # the kernel doubles
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 120_000


def test_busy_and_foreign_addresses(opts, closing):
    listening = closing(tcp.listen("127.0.0.1:0", opts))
    with pytest.raises(AddressInUse) as caught:
        tcp.listen(listening.address, opts)
    assert caught.value.errno == errno.EADDRINUSE and listening.address in str(caught.value)
    for address in ("192.0.2.1:0", "no-such-host.invalid:0"):
        with pytest.raises(AddressNotAvailable, match=address):
            tcp.listen(address, opts)


def test_rebinding_after_a_connection_works_at_once(opts, closing):
    listening = tcp.listen("127.0.0.1:0", opts)
    near, far = dial(listening.address, opts), accept(listening)
    far.close()  # our side closes first and goes to TIME_WAIT
    near.close()
    listening.sockets[0].close()
    closing(tcp.listen(listening.address, opts))


def test_refused(opts):
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        with pytest.raises(ConnectionRefusedError):
            dial(f"127.0.0.1:{sock.getsockname()[1]}", opts)


@pytest.mark.parametrize("source", ["127.0.0.2", "127.0.0.2:0", "127.0.0.2:*", "lo", "lo:0", "*"])
def test_source_address(source, opts, closing):
    listening = closing(tcp.listen("127.0.0.1:0", opts))
    near = closing(dial(f"{source};{listening.address}", opts))
    expected = "127.0.0.2" if source.startswith("127") else "127.0.0.1"
    assert near.getsockname()[0] == expected


def test_source_port(opts, closing):
    listening = closing(tcp.listen("127.0.0.1:0", opts))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    near = closing(dial(f"127.0.0.1:{port};{listening.address}", opts))
    assert near.getsockname() == ("127.0.0.1", port)


def test_source_of_another_family_or_machine(opts):
    with pytest.raises(OSError, match="in common"):
        tcp.resolve("127.0.0.1;[::1]:5", opts)
    with pytest.raises(OSError) as caught:
        dial("192.0.2.1;127.0.0.1:5", opts)
    assert caught.value.errno == errno.EADDRNOTAVAIL


def test_a_name_that_no_name_can_be(opts):
    for call in (tcp.listen, tcp.resolve):
        with pytest.raises(AddressError, match="not a host name"):
            call("x" * 64 + "\u00fc.example:5", opts)


def test_only_names_may_block():
    assert not tcp.may_block("127.0.0.1:5") and not tcp.may_block("[::1]:5")
    assert not tcp.may_block("127.0.0.1;127.0.0.1:5")
    assert tcp.may_block("a.example:5") and tcp.may_block("lo;127.0.0.1:5")


@pytest.mark.parametrize(("address", "role", "position"), [
    ("127.0.0.1", "bind", 9), ("127.0.0.1:", "bind", 10), (":5", "bind", 0), (":5", "connect", 0),
    ("127.0.0.1:65536", "bind", 10), ("127.0.0.1:-1", "bind", 10), ("127.0.0.1:+1", "bind", 10),
    ("127.0.0.1:0x5", "bind", 10), ("127.0.0.1: 5", "bind", 10), ("127.0.0.1:05", "bind", 10),
    ("127.0.0.1:5 ", "bind", 10), ("127.0.0.1:\u0665", "bind", 10), ("127.1:5", "bind", 0),
    ("256.0.0.1:5", "bind", 0), ("1:5", "bind", 0), ("::1:5", "bind", 0), ("[::1:5", "bind", 0),
    ("[::1]5", "bind", 5), ("[::1]", "connect", 5), ("[1.2.3.4]:5", "bind", 1),
    ("[]:5", "bind", 1), ("[::g]:5", "bind", 1), ("a b:5", "bind", 0), ("a/b:5", "connect", 0),
    ("x" * 254 + ":5", "bind", 0), ("*:5", "connect", 0), ("127.0.0.1:0", "connect", 10),
    ("127.0.0.1:*", "connect", 10), ("a;b:5", "bind", 1), ("a;b", "connect", 3),
    (";b:5", "connect", 0), ("a:99999;b:5", "connect", 2), ("a;b:99999", "connect", 4),
    ("a;", "connect", 2),
])
def test_mistakes(address, role, position):
    with pytest.raises(AddressError) as caught:
        tcp.check(address, role)
    assert caught.value.position == position


@pytest.mark.parametrize("address", [
    "127.0.0.1:5", "[::1]:5", "[fe80::1%eth0]:5", "example.com:5", "my_host-1.local.:65535",
    "b\u00fccher.example:80", "eth0;10.0.0.1:1", "[::1]:4000;[::1]:5", "[::1];[::1]:5", "*:7;a:1",
])
def test_good_addresses(address):
    tcp.check(address, "connect")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may bind any port")
def test_denied(opts):
    from mqcore.errors import AddressDenied

    with open("/proc/sys/net/ipv4/ip_unprivileged_port_start") as first:
        if int(first.read()) <= 1:
            pytest.skip("every port is free for all here")
    with pytest.raises(AddressDenied):
        tcp.listen("127.0.0.1:1", opts)


# -- all addresses of a place ----------------------------------------------------------------------

class Fakes:
    """Sockets of bind_all(): `taken` are (host, port) in use, `absent` hosts that are not here."""

    def __init__(self, taken=(), absent=()):
        self.taken, self.absent, self.free, self.made = set(taken), absent, 5000, []

    def __call__(self, family, sockaddr):
        host, port = sockaddr[:2]
        if host in self.absent:
            raise OSError(errno.EADDRNOTAVAIL, "absent")
        if not port:
            self.free += 1
            port = self.free
        if (host, port) in self.taken:
            raise OSError(errno.EADDRINUSE, "taken")
        self.made.append(Fake(host, port))
        return self.made[-1]

    @property
    def open(self):
        return [(one.host, one.port) for one in self.made if not one.closed]


class Fake:
    closed = False

    def __init__(self, host, port):
        self.host, self.port = host, port

    def getsockname(self):
        return self.host, self.port

    def close(self):
        self.closed = True


FOUR, SIX = (socket.AF_INET, ("a", 0)), (socket.AF_INET6, ("b", 0, 0, 0))


def test_all_addresses_get_one_port():
    fakes = Fakes(taken=[("b", 5001), ("b", 5002)])
    bind_all([SIX, FOUR, SIX], fakes)
    assert fakes.open == [("a", 5003), ("b", 5003)]


def test_addresses_of_other_machines_are_left_out():
    fakes = Fakes(absent=["a"])
    bind_all([FOUR, SIX], fakes)
    assert fakes.open == [("b", 5001)]
    with pytest.raises(OSError, match="absent"):
        bind_all([FOUR], Fakes(absent=["a"]))
    with pytest.raises(OSError, match="assign"):
        bind_all([], fakes)


def test_an_address_in_use_is_an_error():
    fakes = Fakes(taken=[("b", 7)])
    with pytest.raises(OSError, match="taken"):
        bind_all([(family, (sockaddr[0], 7, *sockaddr[2:])) for family, sockaddr in (FOUR, SIX)],
                 fakes)
    assert not fakes.open
    everywhere = Fakes(taken=[("b", port) for port in range(6000)])
    with pytest.raises(OSError, match="taken"):
        bind_all([FOUR, SIX], everywhere)   # no port is free in both families
    assert not everywhere.open


def test_everywhere_is_one_socket_or_ipv4(monkeypatch):
    everywhere = look_up(parse("*:0", "bind")[1])
    monkeypatch.setattr(inet, "_addresses6", lambda: ["one"])
    fakes = Fakes()
    bind_all(everywhere, fakes)
    assert fakes.open == [("::", 5001)]
    fakes = Fakes(absent=["::"])
    bind_all(everywhere, fakes)
    assert fakes.open == [("0.0.0.0", 5001)]
    with pytest.raises(OSError, match="taken"):
        bind_all(everywhere, Fakes(taken=[("::", 5001)]))


def test_everywhere_is_ipv4_where_ipv6_is_switched_off(monkeypatch):
    """A socket binds to "::" there, but nothing connects to it by that address."""
    monkeypatch.setattr(inet, "_addresses6", list)
    fakes = Fakes()
    bind_all(look_up(parse("*:0", "bind")[1]), fakes)
    assert fakes.open == [("0.0.0.0", 5001)]
