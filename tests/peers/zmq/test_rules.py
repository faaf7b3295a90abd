"""Rules of libzmq that programs rely on, of both modules: what is readable, which sockets inproc
joins, addresses, connect() again."""

import contextlib
import itertools

import pytest
from machine import has_ipv6
from ports import free_port
from zmqerrno import number

import mqcore.zmq as ours

SHORT = 20  # ms, for what shall not come
ipv6 = pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")
CLASSIC = ("PAIR", "PUB", "SUB", "REQ", "REP", "DEALER", "ROUTER", "PULL", "PUSH", "XPUB", "XSUB")


# -- states ----------------------------------------------------------------------------------------

def test_a_rep_that_owes_an_answer_is_not_readable(z, new):
    rep, clients = new("REP"), [new("DEALER") for _ in range(2)]
    rep.bind("inproc://owes")
    for client in clients:
        client.connect("inproc://owes")
        client.send_multipart([b"", b"question"])
    poller = z.Poller()
    poller.register(rep, z.POLLIN)
    for _ in clients:
        assert poller.poll(5000) == [(rep, z.POLLIN)] and rep.poll(5000) == z.POLLIN
        assert rep.get(z.EVENTS) == z.POLLIN
        rep.recv()
        assert poller.poll(SHORT) == [] and rep.poll(0) == 0 and z.select([rep], [], [], 0)[0] == []
        assert rep.get(z.EVENTS) == z.POLLOUT
        rep.send(b"answer")
    assert poller.poll(0) == [] and rep.get(z.EVENTS) == 0


def test_fd_tells_of_the_request_behind_an_answer(z, new):
    """A program that reads EVENTS whenever FD is readable gets both requests."""
    rep, client = new("REP"), new("DEALER")
    rep.bind("inproc://fd-owes")
    client.connect("inproc://fd-owes")
    for text in (b"1", b"2"):
        client.send_multipart([b"", text])
    assert rep.poll(5000)
    got = []
    while len(got) < 2:
        if rep.get(z.EVENTS) & z.POLLIN:
            got.append(rep.recv())
            assert not rep.get(z.EVENTS) & z.POLLIN
            rep.send(b"answer")
        else:
            poller = z.Poller()
            poller.register(rep.fileno(), z.POLLIN)
            assert poller.poll(5000)
    assert got == [b"1", b"2"]


# -- inproc ----------------------------------------------------------------------------------------

def exchange(z, new, here, there):
    """What arrives of a message each way."""
    name = f"inproc://{here}-{there}"
    server, client = new(there, rcvtimeo=SHORT, sndtimeo=SHORT), new(
        here, rcvtimeo=SHORT, sndtimeo=SHORT)
    for one in (server, client):
        if one.type in (z.SUB,):
            one.subscribe(b"")
    server.bind(name)
    client.connect(name)
    found = []
    for one, other in ((client, server), (server, client)):
        try:
            one.send(b"x", z.NOBLOCK)
        except z.ZMQError as error:
            found.append(z.strerror(error.errno))
            continue
        try:
            found.append(other.recv_multipart()[-1])
        except z.ZMQError as error:
            found.append(z.strerror(error.errno))
    for one in (server, client):
        one.close(0)
    return found


@pytest.mark.parametrize(("here", "there"), [
    ("PAIR", "PULL"), ("PUSH", "PAIR"), ("PUSH", "SUB"), ("DEALER", "PAIR"), ("PAIR", "DEALER"),
    ("PUSH", "DEALER"), ("DEALER", "PULL")])
def test_inproc_does_not_compare_types(z, new, here, there):
    assert exchange(z, new, here, there)[0] == b"x"


def test_any_two_sockets_can_be_joined_by_inproc(new, make):
    """Whatever comes of it, and in both orders."""
    for here, there in itertools.product(CLASSIC, CLASSIC):
        exchange(ours, lambda kind, **options: make(ours, kind, **options), here, there)
        late, early = make(ours, here), make(ours, there)
        late.connect(f"inproc://late-{here}-{there}")
        early.bind(f"inproc://late-{here}-{there}")
        for _ in range(3):
            for one in (late, early):
                with contextlib.suppress(ours.ZMQError):
                    one.send(b"x", ours.NOBLOCK)
                with contextlib.suppress(ours.ZMQError):
                    one.recv_multipart(ours.NOBLOCK)
        late.close(0)
        early.close(0)


# -- addresses -------------------------------------------------------------------------------------

def carries(z, new, server, url, v6=0):
    client = new("PUSH", ipv6=v6)
    client.connect(url)
    client.send(b"x")
    came = server.poll(5000) and server.recv()
    client.close(0)
    return came == b"x"


@pytest.mark.parametrize("form", ["tcp://127.0.0.1:0{}", "tcp://127.1:{}", "tcp://[127.0.0.1]:{}",
                                  "tcp://2130706433:{}", "tcp://127.0.0.01:{}"])
def test_forms_of_an_ipv4_address(z, new, form):
    port = free_port()
    server = new("PULL")
    server.bind(form.format(port))
    assert server.last_endpoint.decode() == f"tcp://127.0.0.1:{port}"
    assert carries(z, new, server, form.format(port))


def test_what_is_behind_a_port(z, new):
    port = free_port()
    server = new("PULL")
    server.bind(f"tcp://127.0.0.1:{port} ")
    assert server.last_endpoint.decode() == f"tcp://127.0.0.1:{port}"


def test_ports_are_cut_to_sixteen_bits(z, new):
    port = free_port()
    server = new("PULL")
    server.bind(f"tcp://127.0.0.1:{port + 65536}")
    assert server.last_endpoint.decode() == f"tcp://127.0.0.1:{port}"
    assert carries(z, new, server, f"tcp://127.0.0.1:{port + 65536}")
    assert number(z, server.bind, "tcp://127.0.0.1:65536") == z.EINVAL


@pytest.mark.parametrize("port", [0, 65536, 131072])
def test_a_port_that_no_peer_has(z, new, port):
    """connect() takes it, and messages wait."""
    url = f"tcp://127.0.0.1:{port}"
    dealer = new("DEALER", sndtimeo=SHORT)
    dealer.connect(url)
    assert dealer.last_endpoint.decode() == url
    dealer.send(b"x")
    dealer.disconnect(url)
    assert number(z, dealer.disconnect, url) == 2     # ENOENT


@ipv6
@pytest.mark.parametrize("form", ["tcp://::1:{}", "tcp://[::1]:{}"])
def test_forms_of_an_ipv6_address(z, new, form):
    server = new("PULL", ipv6=1)
    server.bind(form.format("*"))
    port = server.last_endpoint.decode().rpartition(":")[2]
    assert server.last_endpoint.decode() == f"tcp://[::1]:{port}"
    assert carries(z, new, server, form.format(port), v6=1)


@ipv6
@pytest.mark.parametrize("option", ["IPV6", "IPV4ONLY", "context"])
def test_everywhere_is_both_families_with_ipv6(z, new, option):
    if option == "context":
        new.context().set(z.IPV6, 1)
    server = new("PULL")
    if option != "context":
        server.set(getattr(z, option), int(option == "IPV6"))
    assert server.get(z.IPV6) == 1
    server.bind("tcp://*:*")
    head, _, port = server.last_endpoint.decode().rpartition(":")
    assert head == "tcp://[::]"
    for host in ("127.0.0.1", "[::1]"):
        assert carries(z, new, server, f"tcp://{host}:{port}", v6=1)


def test_everywhere_is_ipv4_without_ipv6(z, new):
    server = new("PULL")
    assert server.get(z.IPV6) == 0 and server.get(z.IPV4ONLY) == 1
    server.bind("tcp://*:*")
    assert server.last_endpoint.decode().startswith("tcp://0.0.0.0:")


@ipv6
@pytest.mark.parametrize("scheme", ["tcp", "ws"])
@pytest.mark.parametrize("host", ["*", "lo"])
def test_all_addresses_of_an_interface_are_reached_in_both_families(new, make, scheme, host):
    server = make(ours, "PULL", ipv6=1)
    server.bind(f"{scheme}://{host}:*")
    port = server.last_endpoint.decode().partition("://")[2].rpartition(":")[2].partition("/")[0]
    for near in ("127.0.0.1", "[::1]"):
        assert carries(ours, lambda kind, **options: make(ours, kind, **options), server,
                       f"{scheme}://{near}:{port}", v6=1)


# -- the same address again ------------------------------------------------------------------------

@pytest.mark.parametrize(("here", "there"), [
    ("SUB", "PUB"), ("PUB", "SUB"), ("DEALER", "ROUTER"), ("REQ", "ROUTER")])
def test_a_second_connect_has_no_effect(z, new, here, there):
    server, client = new(there), new(here)
    server.bind("tcp://127.0.0.1:*")
    url = server.last_endpoint.decode()
    monitor = server.get_monitor_socket()
    for _ in range(3):
        client.connect(url)
        assert client.last_endpoint.decode() == url
    for one in (server, client):
        if one.type == z.SUB:
            one.subscribe(b"")
    accepted = 0
    while monitor.poll(5000 if not accepted else 10 * SHORT):
        event = int.from_bytes(monitor.recv_multipart()[0][:2], "little")
        accepted += event == z.EVENT_ACCEPTED
    assert accepted == 1
    client.disconnect(url)
    assert number(z, client.disconnect, url) == 2     # ENOENT
    server.disable_monitor()
    monitor.close(0)


def test_disconnect_ends_all_connections_to_an_address(z, new):
    server, client = new("PULL"), new("PUSH")
    server.bind("tcp://127.0.0.1:*")
    url = server.last_endpoint.decode()
    for _ in range(2):
        client.connect(url)
    client.disconnect(url)
    assert number(z, client.disconnect, url) == 2     # ENOENT


# -- asyncio ---------------------------------------------------------------------------------------

def test_close_after_the_loop(z, part):
    """Of a socket that waited in it."""
    import asyncio

    context = part("asyncio").Context()
    pull = context.socket(z.PULL)
    pull.bind("inproc://closed-loop")
    loop = asyncio.new_event_loop()

    async def start():
        return pull.recv(), pull.poll()
    waiting = loop.run_until_complete(start())
    loop.close()
    pull.close()
    assert pull.closed and waiting
    context.term()
