"""A process has few descriptors left, or none: each call says what to do, or waits, and the same
call works once there are some. Each test is a child of its own."""

import subprocess
import sys
import textwrap

import pytest

HEAD = """
import asyncio, contextlib, os, resource, signal, sys, threading
import mqcore as mq
from mqcore import cluster
from mqcore.testing import until

signal.alarm(60)
KEY = cluster.Key.generate()
LIMIT = 30.0
MOST = resource.getrlimit(resource.RLIMIT_NOFILE)


class Echo:
    def request(self, req):
        return req.body

    async def tunnel(self, tun):
        async for message in tun:
            await tun.asend(message)


@contextlib.contextmanager
def left(number):
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, MOST[1]))
    taken = []
    with contextlib.suppress(OSError):
        while True:
            taken.append(os.dup(0))
    for _ in range(number):
        os.close(taken.pop())
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, MOST)
        for one in taken:
            os.close(one)


def refused(error):
    assert error.errno == 24 and "ulimit -n" in str(error), error
    assert str(error).count("Too many open files") == 1, error
    return True
"""
JOINS = """
    with cluster.join(KEY, udp={udp}) as seed, seed.serve("echo", Echo()):
        for number in range(12):
            joined, node = cluster.join(KEY, udp={udp}, seeds=[seed.url]), None
            with left(number):
                try:
                    node = joined.__enter__()
                except OSError as error:
                    assert refused(error)
            if node is not None:
                node.wait_members("echo", timeout=LIMIT)
                assert node.request("echo", b"it", timeout=LIMIT) == b"it"
                joined.__exit__()
            until(lambda: len(seed.members()) == 1)
    assert node is not None
"""
AWAITED = """
    async def main(seed):
        for number in range(8):
            node, entered = cluster.ajoin(KEY, udp={udp}, listen={listen!r}, seeds=[seed]), False
            with left(number):
                try:
                    await node.__aenter__()
                    entered = True
                except OSError as error:
                    assert refused(error) and node.ended
            if entered:
                assert "127.0.0.1" not in node.url or {listen!r}.count("127.0.0.1")
                await node.await_members("echo", timeout=LIMIT)
                assert await node.arequest("echo", b"it", timeout=LIMIT) == b"it"
                with left(0):
                    assert await node.adrain(LIMIT)
        assert entered

    with cluster.join(KEY, udp=False) as seed, seed.serve("echo", Echo()):
        {run}
"""


def run(program):
    child = subprocess.run([sys.executable, "-c", HEAD + textwrap.dedent(program)],
                           capture_output=True, text=True)
    assert child.returncode == 0, (child.returncode, child.stdout, child.stderr)
    assert "never awaited" not in child.stderr
    return child.stdout


@pytest.mark.parametrize("udp", [False, True])
def test_a_node_joins_whole_or_not_at_all(udp):
    run(JOINS.format(udp=udp))


@pytest.mark.parametrize("start", ["asyncio.run(main(seed.url))",
                                   "import trio; trio.run(main, seed.url)"])
def test_a_node_joins_in_a_loop_whole_or_not_at_all(start):
    run(AWAITED.format(udp=True, listen="tcp://127.0.0.1:0", run=start))


def test_the_address_to_give_to_others_is_not_guessed():
    assert run("""
        from mqcore.cluster.pulse import reachable

        with left(0):
            try:
                print(reachable("tcp://*:7400", ()))
            except OSError as error:
                print(error.strerror)
    """) == "Too many open files\n"


def test_a_place_on_the_network_that_cannot_be_taken_at_present():
    """Nor would the node look for others later."""
    assert run("""
        import mqcore.cluster.beacon as beacon

        def scarce(self):
            raise OSError(24, "Too many open files")

        real, beacon.Where.open = beacon.Where.open, scarce
        try:
            cluster.join(KEY, seeds=["lan"], udp=False).__enter__()
        except OSError as error:
            print(refused(error))
        beacon.Where.open = real
        with left(0):
            try:
                beacon.is_ours("127.0.0.1")
            except beacon.Refused as refusal:
                print(refusal)
        print(beacon.is_ours("127.0.0.1"))
    """) == "True\nbusy\nTrue\n"


def test_an_identity_cannot_be_read(tmp_path):
    run(f"""
        with cluster.join(KEY, udp=False, identity={str(tmp_path / "it")!r}) as node:
            known = node.id

        async def main():
            with left(0):
                try:
                    await cluster.ajoin(KEY, identity={str(tmp_path / "it")!r}).__aenter__()
                except cluster.ClusterError as error:
                    assert "ulimit -n" in str(error)
            async with cluster.ajoin(KEY, identity={str(tmp_path / "it")!r}) as node:
                assert node.id == known

        asyncio.run(main())
    """)


def test_what_a_node_has_begun_goes_on():
    run("""
        with cluster.join(KEY, udp=False) as one, cluster.join(
                KEY, udp=False, seeds=[one.url]) as two, left(0):
            with one.serve("echo", Echo()), two.subscribe("a.>") as feed:
                two.wait_members("echo", timeout=LIMIT)
                assert two.request("echo", b"it", timeout=LIMIT) == b"it"
                assert one.publish("a.b", b"it") == 1
                assert feed.recv(timeout=LIMIT).body == b"it"
                with two.tunnel("echo", timeout=LIMIT) as tunnel:
                    tunnel.send(b"it")
                    assert tunnel.recv(timeout=LIMIT) == b"it"
            assert two.drain(LIMIT)
    """)


def test_an_adopted_socket_is_asked_nothing_whose_answer_could_not_be_awaited():
    """Another member takes the request, if there is one."""
    run("""
        asked = []

        def serve():
            with contextlib.suppress(mq.SocketClosed):
                while True:
                    message = rep.recv_msg()
                    asked.append(bytes(message))
                    message.reply(b"adopted")

        with cluster.join(KEY, udp=False) as node, cluster.join(
                KEY, udp=False, seeds=[node.url]) as other, mq.Rep(
                bind="tcp://127.0.0.1:0") as rep, node.adopt("old", rep.endpoints[0].url):
            thread = threading.Thread(target=serve)
            thread.start()
            other.wait_members("old", timeout=LIMIT)
            assert other.request("old", b"one", timeout=LIMIT) == b"adopted"
            until(lambda: not node.adopted.copy().pop().socket._wakers)
            with left(0):
                try:
                    other.request("old", b"two", timeout=LIMIT)
                except cluster.Overloaded:
                    print("overloaded")
                with other.serve("old", Echo()):
                    node.wait_members("old", 2, timeout=LIMIT)
                    until(lambda: not node.adopted.copy().pop().socket._wakers)
                    for _ in range(10):
                        assert node.request("old", b"two", timeout=LIMIT) == b"two"
            assert asked == [b"one"]
            assert other.request("old", b"three", timeout=LIMIT) == b"adopted"
            rep.close()
            thread.join()
    """)


def test_a_gateway_and_an_adopted_socket():
    run("""
        from mqcore.cluster import adopt

        adopt.READY = 0.1       # seconds that adopt() waits for the socket
        federation = cluster.Key.generate()
        with cluster.join(KEY, udp=False) as node, mq.Rep(bind="tcp://127.0.0.1:0") as rep:
            url = rep.endpoints[0].url
            threading.Thread(target=lambda: rep.recv_msg().reply(b"answer"), daemon=True).start()
            with left(0):
                try:
                    node.federate("west", federation, udp=False).start()
                except OSError as error:
                    assert error.errno == 24
                assert not node.gateways
            with left(0):
                try:
                    adopted = node.adopt("old", url, reconnect_max=0.1)
                except mq.Error as error:
                    assert "ulimit" in str(error)
                    adopted = None
            adopted = adopted or node.adopt("old", url, reconnect_max=0.1)
            node.wait_members("old", timeout=LIMIT)
            assert node.request("old", b"it", timeout=LIMIT) == b"answer"
            adopted.close()
            with node.federate("west", federation, udp=False) as gateway:
                assert gateway in node.gateways
    """)
