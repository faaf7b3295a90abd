"""upgrade=True: tcp and ipc between two sockets of one machine become shared memory if both ask."""

import contextlib
import errno
import os
import socket
import struct

import pytest
from namespaces import inside
from programs import Program
from waiting import until

import mqcore as mq
from mqcore.control import shortcut
from mqcore.spi import registry
from mqcore.spi.credentials import Credentials

LIMIT = 20
FAST = {"reconnect": 0.01, "reconnect_max": 0.05}

SINK = """
import sys
import mqcore as mq
with mq.Pull(bind=sys.argv[1], upgrade=True) as s:
    print(s.endpoints[0].url, flush=True)
    while True:
        print(s.recv(timeout=20).decode(), flush=True)
"""


def wires(sock):
    return [peer.wire for peer in sock.peers()]


def names():
    """The abstract names that listeners of this process have beside their own."""
    ours = set()
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            ours.add(os.readlink(f"/proc/self/fd/{fd}"))
    with open("/proc/net/unix") as table:
        rows = [line.split() for line in table if shortcut.PREFIX in line]
    return {row[-1] for row in rows if f"socket:[{row[-2]}]" in ours}


def shortcut_of(url):
    """The name of the shortcut of this tcp address, for bind()."""
    host, _, port = url.partition("://")[2].rpartition(":")
    return "\0" + shortcut.address_of(f"tcp/{host}%0:{port}")[1:]


def meet(ctx, url, pattern="push", other="pull", *, there=None, ours=None):
    """Two connected sockets: (the one that connects, the bound one, its endpoint)."""
    bound = ctx.socket(other, **({"upgrade": True} if there is None else there))
    endpoint = bound.bind(url)
    s = ctx.socket(pattern, **({"upgrade": True} if ours is None else ours), **FAST)
    s.connect(endpoint.url.replace("[::]", "127.0.0.1").replace("0.0.0.0", "127.0.0.1"))
    s.wait_peers(1, LIMIT)
    bound.wait_peers(1, LIMIT)
    return s, bound, endpoint


@pytest.fixture
def start():
    """start(url): a sink, which is killed in the end, and its endpoint's URL."""
    running = []

    def start(url):
        program = Program("-c", SINK, url)
        running.append(program)
        return program, program.line()

    yield start
    for program in running:
        program.process.kill()
        program.kill()


@pytest.mark.parametrize("url", [
    "tcp://127.0.0.1:0", "tcp://127.0.0.2:0", "tcp://[::1]:0", "tcp://localhost:0", "tcp://*:0",
    "tcp://0.0.0.0:0", "tcp://lo:0", "ipc://*", "ipc://@upgrade"])
def test_the_link_is_shared_memory_and_all_else_stays(ctx, url):
    s, bound, endpoint = meet(ctx, url)
    assert wires(s) == wires(bound) == ["shm"]
    assert endpoint.url.startswith(url.partition("://")[0])
    assert s.peers()[0].endpoint == s.endpoints[0].url
    assert bound.peers()[0].endpoint == endpoint.url
    assert s.peers()[0].pid == os.getpid()
    for i in range(200):
        s.send_parts([b"%d" % i, bytes(i * 97)], timeout=LIMIT)
    for i in range(200):
        assert bound.recv_parts(timeout=LIMIT) == [b"%d" % i, bytes(i * 97)]
    assert list(bound.stats().peers.values())[0].read == 200


def test_in_the_url_and_per_endpoint(ctx):
    bound, s = ctx.socket("rep"), ctx.socket("req")
    url = bound.bind("tcp://127.0.0.1:0?upgrade=1").url
    s.connect(url, upgrade=True)
    s.send(b"?", timeout=LIMIT)
    assert bound.recv(timeout=LIMIT) == b"?"
    assert wires(bound) == ["shm"]


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "ipc://*"])
@pytest.mark.parametrize("there, ours", [(True, False), (False, True), (False, False)])
def test_one_side_alone_changes_nothing(ctx, url, there, ours):
    before = names()
    s, bound, _ = meet(ctx, url, there={"upgrade": there}, ours={"upgrade": ours})
    assert wires(s) == wires(bound) == ["zmtp/3.1"]
    assert len(names() - before) == there
    s.send(b"x", timeout=LIMIT)
    assert bound.recv(timeout=LIMIT) == b"x"


@pytest.mark.parametrize("pattern, other, options, wire", [
    ("push", "pull", {"wire": "sp"}, "sp"),
    ("push", "pull", {"security": mq.security.Plain("u", "p")}, "zmtp/3.1"),
    ("bus", "bus", {}, "sp"),
])
def test_links_that_stay_as_they_are(ctx, pattern, other, options, wire):
    there = dict(options)
    if "security" in options:
        there["security"] = mq.security.Plain(allow={"u": "p"})
    s, bound, _ = meet(ctx, "tcp://127.0.0.1:0", pattern, other,
                       there={"upgrade": True, **there}, ours={"upgrade": True, **options})
    assert wires(s)[0].startswith(wire), wires(s)
    s.send(b"x", timeout=LIMIT)
    assert bound.recv(timeout=LIMIT) == b"x"


@pytest.mark.parametrize("url", ["ws://127.0.0.1:0", "inproc://upgrade", "shm://@upgrade"])
def test_where_it_has_no_effect(ctx, url):
    s, bound, _ = meet(ctx, url)
    s.send(b"x", timeout=LIMIT)
    assert bound.recv(timeout=LIMIT) == b"x"


def test_a_source_address_is_kept(ctx):
    bound = ctx.socket("pull", upgrade=True)
    port = bound.bind("tcp://127.0.0.1:0").url.rpartition(":")[2]
    s = ctx.socket("push", connect=f"tcp://127.0.0.3;127.0.0.1:{port}", upgrade=True)
    bound.wait_peers(1, LIMIT)
    assert bound.peers()[0].address.startswith("tcp://127.0.0.3:")
    s.close()


def test_a_server_that_is_killed_and_comes_again(ctx, start):
    """Neither the port nor the name of the shortcut is left behind, and the new one is found at
    its first port, as over tcp."""
    first, url = start("tcp://127.0.0.1:0")
    s = ctx.socket("push", connect=url, upgrade=True, **FAST)
    for round_ in range(3):
        s.wait_peers(1, LIMIT)
        assert wires(s) == ["shm"]
        s.send(b"%d" % round_, timeout=LIMIT)
        assert first.line() == str(round_)
        first.process.kill()
        first.process.wait()
        until(lambda: not s.peers())
        first, again = start(url)
        assert again == url


def test_a_port_that_another_program_takes_over(ctx):
    """What listens there decides: a socket without the option gets tcp, whatever was there."""
    s, bound, endpoint = meet(ctx, "tcp://127.0.0.1:0")
    bound.close()
    plain = ctx.socket("pull", bind=endpoint.url)
    plain.wait_peers(1, LIMIT)
    assert wires(plain) == ["zmtp/3.1"]
    s.send(b"x", timeout=LIMIT)
    assert plain.recv(timeout=LIMIT) == b"x"


def test_unbind_frees_the_name(ctx):
    before = names()
    s, bound, endpoint = meet(ctx, "tcp://127.0.0.1:0")
    bound.unbind(endpoint)
    assert names() == before
    bound.bind(endpoint.url)
    s.wait_peers(1, LIMIT)
    assert wires(s) == ["shm"]


def test_a_bind_that_fails_leaves_no_name(ctx):
    before = names()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        bound = ctx.socket("pull", upgrade=True)
        with pytest.raises(mq.AddressInUse):
            bound.bind(f"tcp://127.0.0.1:{other.getsockname()[1]}")
    assert names() == before


def test_a_port_that_is_free_in_one_family_only(ctx, monkeypatch):
    """bind() tries another port; the names of the first one go with it."""
    before = names()
    made = socket.socket.bind
    refused = []

    def bind(self, address):
        if self.family == socket.AF_INET6 and len(refused) < 3:
            refused.append(address)
            raise OSError(errno.EADDRINUSE, "taken")
        return made(self, address)

    monkeypatch.setattr("mqcore.base.native.socket.socket.bind", bind)
    bound = ctx.socket("pull", upgrade=True)
    port = bound.bind("tcp://lo:0").url.rpartition(":")[2]
    assert len(refused) == 3
    assert {name.rpartition(":")[2] for name in names() - before} == {port}


def test_a_name_that_is_taken(ctx, caplog):
    """The socket is bound without it, and says so."""
    with socket.socket(socket.AF_UNIX) as squatter, socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{port.getsockname()[1]}"
        port.close()
        squatter.bind(shortcut_of(f"tcp://{where}"))
        bound = ctx.socket("pull", upgrade=True)
        bound.bind(f"tcp://{where}")
        assert "no shared memory for a listener with upgrade=True" in caplog.text
        s = ctx.socket("push", connect=f"tcp://{where}", upgrade=True)
        bound.wait_peers(1, LIMIT)
        assert wires(bound) == ["zmtp/3.1"]
        s.send(b"x", timeout=LIMIT)
        assert bound.recv(timeout=LIMIT) == b"x"


def squat(ctx, **options):
    """A bound socket whose name somebody else has taken, who listens there."""
    bound = ctx.socket("pull")
    url = bound.bind("tcp://127.0.0.1:0").url
    squatter = socket.socket(socket.AF_UNIX)
    squatter.bind(shortcut_of(url))
    squatter.listen()
    return bound, url, squatter


def test_another_users_name_is_passed_by_at_once(ctx, monkeypatch):
    bound, url, squatter = squat(ctx)
    with squatter:
        monkeypatch.setattr(shortcut, "credentials",
                            lambda sock: Credentials(1, os.geteuid() + 1, 0))
        s = ctx.socket("push", connect=url, upgrade=True, reconnect=None)
        s.wait_peers(1, LIMIT)
        assert wires(s) == ["zmtp/3.1"]
    bound.close()


@pytest.mark.parametrize("how", ["closes", "nonsense", "refuses", "silent"])
def test_a_name_behind_which_something_else_answers(ctx, how):
    """The same attempt goes on to the port: `reconnect` and `reconnect_stop` are about the peer."""
    bound, url, squatter = squat(ctx)
    with squatter, contextlib.ExitStack() as stack:
        s = ctx.socket("push", upgrade=True, handshake_timeout=0.2, reconnect=None)
        s.connect(url)
        near, _ = squatter.accept()
        stack.enter_context(near)
        if how == "closes":
            near.close()
        elif how == "nonsense":
            near.send(b"SSH-2.0-OpenSSH_9.2p1 Debian-2")
        elif how == "refuses":
            near.send(struct.pack("<8sII", b"MQSHM\r\n\0", 1, 2) + b"no")
        s.wait_peers(1, LIMIT)
        assert wires(s) == ["zmtp/3.1"]
        s.send(b"x", timeout=LIMIT)
        assert bound.recv(timeout=LIMIT) == b"x"
        assert s.stats().reconnects == 0


def test_the_event_says_why_there_is_no_shared_memory(ctx):
    bound, url, squatter = squat(ctx)
    s = ctx.socket("push", upgrade=True, reconnect=None)
    with squatter, s.events() as events:
        s.connect(url)
        near, _ = squatter.accept()
        with near:
            near.send(struct.pack("<8sII", b"MQSHM\r\n\0", 1, 2) + b"no")
            s.wait_peers(1, LIMIT)
        kinds = iter(events)
        reasons = [next(kinds).reason for _ in range(2)]    # Connecting, and Connecting again
    assert reasons[0] == "" and "the peer refused: no" in reasons[1]
    assert s.stats().failed_handshakes == bound.stats().failed_handshakes == 0


@pytest.mark.parametrize("peer_uid", [-1, 12345])
def test_only_the_same_user_is_admitted(ctx, peer_uid):
    """`peer_uid` is about shm://, where the program chose a name for other users."""
    s, _, _ = meet(ctx, "tcp://127.0.0.1:0", there={"upgrade": True, "peer_uid": peer_uid},
                   ours={"upgrade": True, "peer_uid": peer_uid})
    assert wires(s) == ["shm"]
    assert [node.options["peer_uid"] for node in s._links.nodes.values()] == [None]


@pytest.mark.parametrize("url", ["tcp://*:0", "tcp://0.0.0.0:0"])
def test_the_url_that_bind_returns(ctx, url):
    bound = ctx.socket("pull", upgrade=True)
    s = ctx.socket("push", connect=bound.bind(url).url, upgrade=True)
    s.wait_peers(1, LIMIT)
    assert wires(s) == ["shm"]


def test_a_file_that_may_not_be_opened(ctx, tmp_path):
    """As over ipc; root may open every file, so this asks as another user."""
    bound = ctx.socket("pull", bind=f"ipc://{tmp_path}/s", upgrade=True)
    target = registry.transport("ipc")
    os.chmod(tmp_path / "s", 0)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.chmod(tmp_path, 0o755)
                os.setuid(65534)
            status = target.local_names(f"{tmp_path}/s", {}) != []
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    bound.close()


def test_a_peer_that_does_not_fit_says_so_once(ctx):
    bound = ctx.socket("pub", upgrade=True)
    s = ctx.socket("push", upgrade=True, reconnect_stop=["handshake"], **FAST)
    endpoint = s.connect(bound.bind("tcp://127.0.0.1:0").url)
    until(lambda: endpoint.state == "stopped")
    assert isinstance(endpoint.error, mq.HandshakeFailed)
    assert s.stats().failed_handshakes == 1


def test_the_first_address_of_a_name_comes_first(ctx):
    """With and without a shortcut: the shortcut of the second one is not tried before it."""
    first = ctx.socket("pull", bind="tcp://127.0.0.1:0")
    port = first.endpoints[0].url.rpartition(":")[2]
    second = ctx.socket("pull", bind=f"tcp://[::1]:{port}", upgrade=True)
    s = ctx.socket("push", connect=f"tcp://lo:{port}", upgrade=True)
    s.send(b"x", timeout=LIMIT)
    assert first.recv(timeout=LIMIT) == b"x"
    assert not second.peers()


def test_an_address_whose_peer_ends_every_link_is_not_the_only_one(ctx):
    first = ctx.socket("pull", bind="tcp://127.0.0.1:0", upgrade=True, max_message_size=10)
    port = first.endpoints[0].url.rpartition(":")[2]
    second = ctx.socket("pull", bind=f"tcp://[::1]:{port}", upgrade=True)
    s = ctx.socket("push", connect=f"tcp://lo:{port}", upgrade=True, **FAST)

    def arrived():
        with contextlib.suppress(mq.SendTimeout):
            s.send(bytes(100), timeout=0.1)
        with contextlib.suppress(mq.RecvTimeout):
            return second.recv(timeout=0) == bytes(100)

    until(arrived)
    assert wires(second) == ["shm"]


def test_an_abstract_name_of_the_users_own(ctx):
    s, bound, _ = meet(ctx, "ipc://@mqcore/data", there={"upgrade": True}, ours={})
    assert wires(s) == ["zmtp/3.1"]
    other = ctx.socket("push", connect="ipc://@mqcore/data", upgrade=True)
    other.send(b"x", timeout=LIMIT)
    assert bound.recv(timeout=LIMIT) == b"x"
    assert sorted(wires(bound)) == ["shm", "zmtp/3.1"]


def test_a_user_that_the_kernel_does_not_tell_from_others(ctx, monkeypatch):
    monkeypatch.setattr(shortcut, "is_anybody", lambda uid: uid == os.geteuid())
    before = names()
    s, bound, _ = meet(ctx, "tcp://127.0.0.1:0")
    assert wires(s) == wires(bound) == ["zmtp/3.1"]
    assert names() == before


def test_two_files_at_one_path_are_two_listeners(ctx, tmp_path):
    """A file that was moved and replaced: each name is of a file, not of a path."""
    first = ctx.socket("pull", upgrade=True)
    first.bind(f"ipc://{tmp_path}/s")
    os.rename(tmp_path / "s", tmp_path / "moved")
    second = ctx.socket("pull", upgrade=True)
    second.bind(f"ipc://{tmp_path}/s")
    os.symlink(tmp_path / "moved", tmp_path / "link")
    for path, bound in (("s", second), ("moved", first), ("link", first)):
        s = ctx.socket("push", connect=f"ipc://{tmp_path}/{path}", upgrade=True)
        s.send(path.encode(), timeout=LIMIT)
        assert bound.recv(timeout=LIMIT) == path.encode()
        assert set(wires(bound)) == {"shm"}


def test_a_forked_child_keeps_no_name(ctx):
    _, bound, endpoint = meet(ctx, "tcp://127.0.0.1:0")
    ours, its = socket.socketpair()
    child = os.fork()
    if child == 0:
        its.send(b"forked")
        its.recv(1)
        os._exit(0)
    with ours, its:
        assert ours.recv(10) == b"forked"       # it has closed what it inherited
        try:
            bound.close()
            again = ctx.socket("pull", upgrade=True)
            again.bind(endpoint.url)    # the child would still hold the port, and the name
            again.wait_peers(1, LIMIT)
            assert wires(again) == ["shm"]
        finally:
            ours.send(b"x")
            os.waitpid(child, 0)


def test_another_machine_is_reached_over_tcp(ctx, network):
    """Also if a socket of ours listens at all addresses, on the same port."""
    name, _, here, there = network
    with inside(name, f"""
            import mqcore as mq
            pull = mq.Pull(bind="tcp://{there}:5556", upgrade=True)
            print("ready", flush=True)
            print([pull.recv(timeout=20), pull.peers()[0].wire], flush=True)
            """) as program:
        ours = ctx.socket("pull", bind="tcp://*:5556", upgrade=True)
        s = ctx.socket("push", connect=f"tcp://{there}:5556", upgrade=True)
        s.send(b"x", timeout=LIMIT)
        assert program.stdout.readline() == "[b'x', 'zmtp/3.1']\n"
        near = ctx.socket("push", connect=f"tcp://{here}:5556", upgrade=True)
        near.send(b"y", timeout=LIMIT)
        assert ours.recv(timeout=LIMIT) == b"y"
        assert wires(ours) == ["shm"]
