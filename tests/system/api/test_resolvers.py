"""dns:// and file:// at real sockets: who is connected, what becomes of messages, every kind of
end."""

import contextlib
import os
import re
import signal
import socket

import pytest
from waiting import until

import mqcore as mq
from mqcore.spi import registry
from mqcore.spi.filter import FilterSession, StreamFilter
from mqcore.testing import installed


class Peers:
    """A file of URLs that is replaced as a whole."""

    def __init__(self, folder):
        self.path = folder / "peers"
        self.url = f"file://{self.path}"
        self.fresh = folder / "fresh"

    def say(self, *lines):
        self.fresh.write_text("".join(f"{line}\n" for line in lines))
        self.fresh.rename(self.path)
        return self


@pytest.fixture
def peers(tmp_path):
    return Peers(tmp_path)


@pytest.fixture
def pulls(ctx):
    return [ctx.socket("pull", bind="tcp://127.0.0.1:0") for _ in range(3)]


def url_of(sock):
    return sock.endpoints[0].url


def members(endpoint):
    return [member.url for member in endpoint.members]


# -- following a file ------------------------------------------------------------------------------


def test_it_follows_a_file(ctx, peers, pulls):
    a, b, c = map(url_of, pulls)
    peers.say("# two of them", "", a, f"  {b}  # the second")
    push = ctx.socket("push")
    events = push.events()
    endpoint = push.connect(peers.url, wait=10)
    push.wait_peers(2, 10)
    assert endpoint.state == "connected" and members(endpoint) == [a, b]
    assert str(endpoint) == peers.url and push.endpoints == (endpoint,)
    assert {peer.endpoint for peer in push.peers()} == {a, b}
    peers.say(c, b)
    until(lambda: {peer.endpoint for peer in push.peers()} == {b, c})
    assert members(endpoint) == [c, b]
    found = [event for event in (events.get(1) for _ in range(len(events)))
             if event.kind == "Resolved"]
    assert [(e.endpoint, e.added, e.removed, e.reason) for e in found] == [
        (peers.url, (a, b), (), "2 addresses"), (peers.url, (c,), (a,), "2 addresses")]
    assert str(found[1]) == f"Resolved {peers.url}: 2 addresses (+ {c}, - {a})"
    events.close()


def test_a_file_that_comes_later_and_goes_again(ctx, peers, pulls):
    a = url_of(pulls[0])
    push = ctx.socket("push")
    events = push.events()
    endpoint = push.connect(peers.url)
    event = events.get(10)
    assert event.kind == "ResolveFailed" and "No such file" in event.reason
    push.send(b"early", timeout=10)  # it may bring a peer: the message waits
    peers.say(a)
    assert pulls[0].recv(timeout=10) == b"early"
    assert endpoint.error is None
    peers.path.unlink()
    until(lambda: endpoint.error is not None and "No such file" in str(endpoint.error))
    assert endpoint.state == "connected" and members(endpoint) == [a]
    push.send(b"still")
    assert pulls[0].recv(timeout=10) == b"still"
    events.close()


def test_a_malformed_file_is_told_of_with_its_line(ctx, peers, pulls):
    a = url_of(pulls[0])
    push = ctx.socket("push")
    endpoint = push.connect(peers.say(a).url, wait=10)
    events = push.events()
    for bad, why in [("nonsense", "line 2: .*no '://'"), ("tcp://127.0.0.1", "a port is missing"),
                     ("tpc://x:1", "no transport 'tpc'"), ("dns://x:1", "a resolver.s URL"),
                     (f"{a}?prio=99", "prio")]:
        peers.say("# two", bad)
        event = events.get(10)
        while event.kind != "ResolveFailed":
            event = events.get(10)
        assert re.search(why, event.reason), event.reason
        assert members(endpoint) == [a]
    events.close()


def test_an_empty_file_is_an_empty_set(ctx, peers, pulls):
    push = ctx.socket("push")
    endpoint = push.connect(peers.say(url_of(pulls[0])).url, wait=10)
    peers.say("# nobody today")
    until(lambda: not push.peers())
    until(lambda: endpoint.state == "waiting")
    assert endpoint.members == () and "stands for no address" in str(endpoint.error)
    assert "stands for no endpoint" in push.explain()
    with pytest.raises(mq.WaitTimeout, match="stands for no endpoint"):
        push.wait_peers(1, 0)


def test_messages_queued_for_one_that_vanishes_go_to_another(ctx, peers):
    """As disconnect() does: only what the kernel had begun to take is lost, and counted."""
    slow = ctx.socket("pull", bind="tcp://127.0.0.1:0", recv_hwm=1, recv_buffer=4096)
    push = ctx.socket("push", send_buffer=4096)
    push.connect(peers.say(url_of(slow)).url, wait=10)
    count, body = 200, bytes(20_000)
    for i in range(count):
        push.send(b"%d " % i + body)
    fresh = ctx.socket("pull", bind="tcp://127.0.0.1:0")
    peers.say(url_of(fresh))
    until(lambda: url_of(fresh) in [p.endpoint for p in push.peers()])
    got = []

    def all_of_them():
        for sock in (slow, fresh):
            with contextlib.suppress(mq.RecvTimeout):
                while True:
                    got.append(int(sock.recv(timeout=0).split()[0]))
        return len(got) + sum(push.stats().total.dropped_out.values()) == count
    until(all_of_them)
    assert len(set(got)) == len(got) >= count - 1
    assert fresh.stats().received > 0


# -- what is given to connect() --------------------------------------------------------------------


def test_options_are_for_every_member_unless_its_url_says_otherwise(ctx, peers, pulls):
    a, b, _ = map(url_of, pulls)
    peers.say(a, f"{b}?prio=2")
    push = ctx.socket("push")
    push.connect(f"{peers.url}?refresh=77&prio=5&heartbeat=3", heartbeat_timeout=9, wait=10)
    push.wait_peers(2, 10)
    assert {peer.endpoint: peer.prio for peer in push.peers()} == {a: 5, b: 2}
    links = push._links
    connectors = [links.nodes[member] for member in push.endpoints[0].members]
    assert [c.options["heartbeat"] for c in connectors] == [3.0, 3.0]
    assert [c.options["heartbeat_timeout"] for c in connectors] == [9.0, 9.0]


def test_mistakes_are_told_at_the_call(ctx, peers):
    push = ctx.socket("push")
    for call, kind, text in [
        (lambda: push.bind("dns://localhost:5"), mq.AddressError, "connected to and not bound"),
        (lambda: push.bind(peers.url), mq.AddressError, "file:// is a resolver's"),
        (lambda: push.connect("dns://localhost"), mq.AddressError, "a port is missing"),
        (lambda: push.connect("dns://a;b:5"), mq.AddressError, "no source address"),
        (lambda: push.connect("file://peers.txt"), mq.AddressError, "must start at the root"),
        (lambda: push.connect("file:///tmp/"), mq.AddressError, "a file's name is missing"),
        (lambda: push.connect(f"{peers.url}?refrsh=5"), mq.OptionError, "did you mean 'refresh'"),
        (lambda: push.connect(peers.url, refresh=0), mq.OptionError, "refresh"),
        (lambda: push.connect(peers.url, prio=99), mq.OptionError, "prio"),
        (lambda: push.connect("tcp://127.0.0.1:5", refresh=5), mq.OptionError, "refresh"),
    ]:
        with pytest.raises(kind, match=text):
            call()
    assert push.endpoints == ()
    with pytest.raises(mq.UnknownTransport, match="installed: .*dns.*file.*tcp"):
        push.connect("dsn://localhost:5")


class Turned(FilterSession):
    """Every byte the other way round."""

    def receive(self, data):
        return bytes(255 - byte for byte in data)

    def send(self, data):
        self._passing += self.receive(data)


class Turning(StreamFilter):
    name = "turned"

    def open(self, own, role, options):
        return Turned()


def test_filters_before_it_are_every_members(ctx, peers):
    with installed("filter", Turning()):
        pull = ctx.socket("pull", bind="turned+tcp://127.0.0.1:0")
        plain = url_of(pull).removeprefix("turned+")
        push = ctx.socket("push")
        endpoint = push.connect(f"turned+{peers.say(plain).url}", wait=10)
        assert members(endpoint) == [url_of(pull)]
        assert str(endpoint) == f"turned+{peers.url}"
        push.send(b"x")
        assert pull.recv(timeout=10) == b"x"
        with pytest.raises(mq.UnknownTransport, match="no filter 'turnd' is installed"):
            push.connect(f"turnd+{peers.url}")
        push.close()
        pull.close()


def test_inproc_members(ctx, peers):
    pull = ctx.socket("pull", bind="inproc://one")
    push = ctx.socket("push")
    endpoint = push.connect(peers.say("inproc://one").url, wait=10)
    push.send(b"x")
    assert pull.recv(timeout=10) == b"x"
    peers.say()
    until(lambda: not push.peers())
    assert endpoint.members == ()


# -- dns -------------------------------------------------------------------------------------------


def test_a_name_of_this_machine(ctx, pulls):
    port = url_of(pulls[0]).rpartition(":")[2]
    push = ctx.socket("push")
    endpoint = push.connect(f"dns://localhost:{port}?family=4", wait=10)
    assert members(endpoint) == [f"tcp://127.0.0.1:{port}"]
    push.send(b"x")
    assert pulls[0].recv(timeout=10) == b"x"


REAL = socket.getaddrinfo


def records(*addresses):
    """getaddrinfo that knows a name of these."""
    def answer(host, port, *args, **kw):
        if host != "group.test":
            return REAL(host, port, *args, **kw)
        return [(socket.AF_INET6 if ":" in a else socket.AF_INET, socket.SOCK_STREAM, 6, "",
                 (a, port, 0, 0) if ":" in a else (a, port)) for a in addresses]
    return answer


def test_every_record_is_a_peer_of_both_families(ctx, monkeypatch):
    try:
        six = ctx.socket("pull", bind="tcp://[::1]:0")
    except mq.BindError:
        pytest.skip("this machine has no IPv6 loopback")
    port = url_of(six).rpartition(":")[2]
    four = ctx.socket("pull", bind=f"tcp://127.0.0.1:{port}")
    other = ctx.socket("pull", bind=f"tcp://127.0.0.2:{port}")
    monkeypatch.setattr(socket, "getaddrinfo", records("::1", "127.0.0.1", "::1"))
    push = ctx.socket("push")
    endpoint = push.connect(f"dns://group.test:{port}?refresh=0.1")
    push.wait_peers(2, 10)
    assert members(endpoint) == [f"tcp://[::1]:{port}", f"tcp://127.0.0.1:{port}"]
    monkeypatch.setattr(socket, "getaddrinfo", records("127.0.0.2", "::1"))
    until(lambda: {p.endpoint for p in push.peers()} == {url_of(six), url_of(other)})
    four.wait_peers(0, 10)

    def down(*args, **kw):
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", down)
    until(lambda: endpoint.error is not None)
    assert "Temporary failure" in str(endpoint.error) and len(endpoint.members) == 2
    assert len(push.peers()) == 2
    only = ctx.socket("push")
    monkeypatch.setattr(socket, "getaddrinfo", records("127.0.0.1"))
    lonely = only.connect(f"dns://group.test:{port}?family=6&reconnect=0.01")
    until(lambda: "no address of IPv6" in str(lonely.error))


def test_a_number_needs_no_look_up(ctx, pulls, monkeypatch):
    plugin = registry.resolver("dns")
    assert not plugin.may_block("127.0.0.1:5") and plugin.may_block("a.example:5")
    push = ctx.socket("push")
    at = url_of(pulls[0])
    endpoint = push.connect(at.replace("tcp", "dns"), wait=10)
    assert members(endpoint) == [at]


# -- ends ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["endpoint", "text", "object"])
def test_disconnecting_ends_the_whole_set(ctx, peers, pulls, how):
    push = ctx.socket("push")
    endpoint = push.connect(peers.say(*map(url_of, pulls)).url, wait=10)
    push.wait_peers(3, 10)
    each = endpoint.members
    with pytest.raises(mq.AddressError, match=f"endpoints: {peers.url}"):
        push.disconnect(each[0].url)
    {"endpoint": endpoint.close, "text": lambda: push.disconnect(peers.url),
     "object": lambda: push.disconnect(endpoint)}[how]()
    assert push.peers() == [] and push.endpoints == () and endpoint.state == "closed"
    assert all(member.state == "closed" for member in each)
    endpoint.close()
    peers.say(url_of(pulls[0]))
    assert push.peers() == []


def test_a_member_closed_alone(ctx, peers, pulls):
    a, b, _ = map(url_of, pulls)
    push = ctx.socket("push")
    endpoint = push.connect(peers.say(a, b).url)
    push.wait_peers(2, 10)
    endpoint.members[0].close()
    assert [peer.endpoint for peer in push.peers()] == [b]
    peers.say(b)
    until(lambda: members(endpoint) == [b])
    peers.say(b, a)
    push.wait_peers(2, 10)


def test_closing_the_socket_delivers_to_the_members(ctx, peers, pulls):
    push = ctx.socket("push")
    push.connect(peers.say(url_of(pulls[0])).url, wait=10)
    for i in range(100):
        push.send(b"%d" % i)
    assert push.close(linger=10)
    assert [int(pulls[0].recv(timeout=10)) for _ in range(100)] == list(range(100))


def test_closing_during_a_look_up_that_hangs(ctx, monkeypatch):
    import threading

    inside, go = threading.Event(), threading.Event()

    def hang(*args, **kw):
        inside.set()
        assert go.wait(20)
        raise socket.gaierror(socket.EAI_NONAME, "Name unknown")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    push = ctx.socket("push")
    push.connect("dns://group.test:5")
    assert inside.wait(20)
    try:
        assert push.close(0)
    finally:
        go.set()


def test_a_forked_child_lets_go_of_the_watch(ctx, peers, pulls):
    push = ctx.socket("push")
    endpoint = push.connect(peers.say(url_of(pulls[0])).url, wait=10)

    def watches():
        links = []
        for name in os.listdir("/proc/self/fd"):
            try:
                links.append(os.readlink(f"/proc/self/fd/{name}"))
            except OSError:
                pass
        return sum("inotify" in link for link in links)

    before = watches()
    assert before >= 1
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        status = 1
        try:
            endpoint.close()
            status = 0 if watches() == before - 1 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    peers.say(url_of(pulls[1]))
    until(lambda: [peer.endpoint for peer in push.peers()] == [url_of(pulls[1])])


def test_explain_names_each(ctx, peers, pulls):
    push = ctx.socket("push")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        dead = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
        push.connect(peers.say(url_of(pulls[0]), dead).url, wait=10)
        alive = f"  connected to {url_of(pulls[0])}"
        text = until(lambda: (said := push.explain()) and alive in said
                     and "nobody listens" in said and said)
    assert f"{peers.url} stands for 2 endpoints" in text and f"connected to {dead}" in text


@pytest.mark.parametrize("name", ["asyncio", "trio"])
def test_awaiting_the_set(ctx, peers, pulls, name):
    peers.say(url_of(pulls[0]))
    push = ctx.socket("push")

    async def main():
        endpoint = await push.aconnect(peers.url, wait=10)
        assert endpoint.state == "connected"
        await endpoint.await_ready(10)

    if name == "trio":
        import trio

        trio.run(main)
    else:
        import asyncio

        asyncio.run(main())
