"""TCP's congestion control: the option, and what links within one machine use."""

import errno
import socket

import pytest
from mqcore.transports import tcp
from namespaces import inside, sh
from own_sockets import our_connections

import mqcore as mq
from mqcore.spi.inet import is_ours


def algorithm(sock):
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()


with socket.socket() as plain:
    SYSTEM = algorithm(plain)


def used(url):
    """By each end of the connections to this address."""
    with our_connections(int(url.rpartition(":")[2])) as socks:
        return [algorithm(sock) for sock in socks]


def linked(ctx, bind, connect="", **options):
    pull, push = ctx.socket("pull", **options), ctx.socket("push", **options)
    url = pull.bind(bind).url
    push.connect((connect or bind).replace(":0", url[url.rindex(":"):]), wait=10)
    pull.wait_peers(1, 10)
    return url


@pytest.mark.parametrize(("bind", "connect"), [
    ("tcp://127.0.0.1:0", ""), ("tcp://*:0", "tcp://127.0.0.1:0"), ("ws://127.0.0.1:0", "")])
def test_nothing_sends_by_the_clock_within_one_machine(ctx, monkeypatch, bind, connect):
    assert not any(name.startswith("bbr") for name in used(linked(ctx, bind, connect)))
    monkeypatch.setattr(tcp, "PACES", SYSTEM.encode())  # as if the system's algorithm did
    assert used(linked(ctx, bind, connect)) == ["reno"] * 2


def test_the_system_s_algorithm_is_kept_if_it_does_not_pace(ctx, monkeypatch):
    monkeypatch.setattr(tcp, "PACES", b"no such name")
    assert used(linked(ctx, "tcp://127.0.0.1:0")) == [SYSTEM] * 2


def test_the_option_decides(ctx, monkeypatch):
    monkeypatch.setattr(tcp, "PACES", SYSTEM.encode())
    assert used(linked(ctx, "tcp://127.0.0.1:0", congestion_control=SYSTEM)) == [SYSTEM] * 2
    assert used(linked(ctx, "tcp://127.0.0.1:0", congestion_control="reno")) == ["reno"] * 2


def test_a_peer_on_another_machine_gets_the_system_s(ctx, monkeypatch, network):
    name, _, here, _ = network
    monkeypatch.setattr(tcp, "PACES", SYSTEM.encode())
    pull = ctx.socket("pull")
    url = pull.bind(f"tcp://{here}:0").url
    with inside(name, f"""
            import mqcore as mq
            push = mq.Push(connect="{url}")
            push.send(b"from elsewhere")
            print("ready", flush=True)
            input()
            """):
        assert pull.recv(timeout=10) == b"from elsewhere"
        assert used(url) == [SYSTEM]


@pytest.mark.parametrize("name", ["nosuch", "x" * 300, "reno\0x", "reno\ud800"])
def test_an_algorithm_that_is_not_there(ctx, name):
    sock = ctx.socket("pull", congestion_control=name)
    with pytest.raises(mq.BindError, match="congestion_control=.*no such algorithm.*sysctl") as e:
        sock.bind("tcp://127.0.0.1:0")
    assert e.value.errno == errno.ENOENT
    with pytest.raises(mq.ConnectTimeout, match="no such algorithm.*sysctl.*available"):
        sock.connect("tcp://127.0.0.1:9", wait=0.5)


def test_an_algorithm_that_this_process_may_not_choose():
    class Refusing:
        def setsockopt(self, *_):
            raise PermissionError(errno.EPERM, "Operation not permitted")

    with pytest.raises(mq.BindError, match="may not choose it.*tcp_allowed_congestion_control"):
        tcp._set_congestion_control(Refusing(), {"congestion_control": "cubic"})


def test_which_addresses_are_of_this_machine(network):
    _, device, here, there = network
    first, second = "169.254.78.1", "169.254.78.77"
    for address in (first, second):     # the kernel reaches the second from the first
        sh("address", "add", f"{address}/24", "dev", device)
    ours = ("127.0.0.1", "127.0.0.2", "0.0.0.0", here, first, second)
    assert [host for host in (*ours, there, "203.0.113.254") if is_ours((host, 1))] == list(ours)
    mapped = [f"::ffff:{host}" for host in ours]
    assert [host for host in (*mapped, f"::ffff:{there}") if is_ours((host, 1, 0, 0))] == mapped
