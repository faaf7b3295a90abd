"""`mq cluster`: two terminals, every command, and what it says when something is wrong."""

import asyncio
import shlex
import subprocess
import sys

import pytest
from programs import PATIENCE, environment, mq, run, starter


@pytest.fixture
def cluster(tmp_path):
    key = tmp_path / "a.key"
    assert run(*mq("cluster", "key", "new", key))[0] == 0
    with starter() as start:
        up = start(*mq("cluster", "up", "--key", key, "--echo", "test", "--zone", "z1"))
        seed = up.line()

        def call(*words, stdin=b"", key=key):
            return run(*mq("cluster", *words, "--key", key, "--seed", seed), stdin=stdin)
        call.start = lambda *words: start(*mq("cluster", *words, "--key", key, "--seed", seed))
        call.up, call.seed, call.key = up, seed, key
        yield call


def test_calls(cluster):
    assert cluster("request", "test", "hello")[:2] == (0, b"hello\n")
    assert cluster("request", "test", stdin=b"from stdin")[:2] == (0, b"from stdin\n")
    status, out, _ = cluster("members")
    assert status == 0 and cluster.seed.encode() in out and b"z1" in out and b"test (1)" in out
    status, _, err = cluster("broadcast", "test", "x")
    assert status == 0 and "1 member(s)" in err
    status, out, _ = cluster("broadcast", "test", "x", "--survey")
    assert status == 0 and out.split()[1] == b"%d" % cluster.up.process.pid
    assert cluster("tunnel", "test", stdin=b"through")[:2] == (0, b"through")
    status, out, err = cluster.up.end()
    assert status == 143 and "joined" in err and "left" in err


def test_a_tunnel_whose_output_nobody_reads_any_more(cluster):
    """The thread that sends finds the tunnel closed, and says nothing of it."""
    line = shlex.join([sys.executable, *map(str, mq("cluster", "tunnel", "test", "--key",
                                                    cluster.key, "--seed", cluster.seed))])
    done = subprocess.run(["sh", "-c", f"{line} < /dev/zero | head -c 1000"],
                          capture_output=True, timeout=PATIENCE, env=environment())
    assert done.stdout == bytes(1000) and b"Exception in thread" not in done.stderr


def test_topics(cluster):
    watch = cluster.start("subscribe", "a.*", "-n", "1")
    assert "subscribed" in watch.line("err")
    status, _, err = cluster("publish", "a.b", "text")
    assert status == 0 and "1 node(s)" in err
    status, out, _ = watch.result()
    assert (status, out) == (0, "a.b text\n")


def test_what_is_wrong_is_said(cluster, tmp_path):
    other = tmp_path / "other.key"
    assert run(*mq("cluster", "key", "new", other))[0] == 0
    status, out, _ = cluster("doctor")
    assert status == 0 and b"linked, zone z1: test" in out
    status, out, _ = cluster("doctor", key=other)
    assert status == 1 and b"the key is wrong" in out and b"Traceback" not in out
    status, _, err = cluster("request", "nobody", "x", "--timeout", "0.2")
    assert status == 3 and "0 of 1 members of 'nobody'" in err
    status, _, err = cluster("members", key=tmp_path / "none")
    assert status == 1 and "cannot read the key" in err


def test_arguments_that_are_no_ids_and_no_addresses(tmp_path):
    key = tmp_path / "a.key"
    assert run(*mq("cluster", "key", "new", key))[0] == 0
    for node in ("zz", "abcd", "0" * 31):
        status, _, err = run(*mq("cluster", "key", "ban", key, node))
        assert status == 1 and "32 hex digits" in err and "fromhex" not in err
    for what in ("nonsense", "=tcp://127.0.0.1:1", "old="):
        status, _, err = run(*mq("cluster", "up", "--key", key, "--adopt", what))
        assert status == 2 and "NAME=URL" in err


def test_keys(tmp_path):
    key = tmp_path / "a.key"

    def change(*words):
        status, out, err = run(*mq("cluster", "key", *words))
        return status, [line.split()[:2] for line in out.decode().splitlines()], err

    status, [[word, first]], _ = change("new", key)
    assert (status, word) == (0, "offer")
    assert change("new", key)[0] == 1       # not overwritten
    _, [_, [_, second]], hint = change("add", key)
    assert f"offer {key} {second}" in hint
    assert change("offer", key, second)[1] == [["offer", second], ["accept", first]]
    assert change("drop", key, first)[1] == [["offer", second]]
    assert change("ban", key, "ab" * 16)[1][1] == ["ban", "ab" * 16]
    assert change("pardon", key, "ab" * 16)[1] == change("show", key)[1] == [["offer", second]]
    status, _, err = change("drop", key, "12345678")
    assert status == 1 and "has no secret" in err


def test_a_binding_of_iris_calls_through_the_relay(cluster):
    from relay_client import VERSION, Client, Hello, Replied, Request, Welcome

    port = int(cluster.start("relay", "--port", "0").line())

    async def main():
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        client.send(Hello("iris-client-magic", VERSION, ""))
        assert await client.get() == Welcome("iris-relay-magic", VERSION)
        client.send(Request(7, "test", b"hello", 5000))
        assert await client.get() == Replied(7, b"hello")
        client.writer.close()
        await client.writer.wait_closed()

    asyncio.run(main())


def test_an_identity(cluster, tmp_path):
    file = tmp_path / "node.identity"
    up = cluster.start("up", "--identity", file)
    up.line()
    status, out, _ = run(*mq("cluster", "identity", file))
    assert status == 0 and len(bytes.fromhex(out.decode())) == 16
    assert cluster.start("up", "--identity", file).result()[0] == 1
    status, _, err = cluster("up", "--identity", file)
    assert status == 1 and b"in use by another node" in err.encode() and "Traceback" not in err
    assert up.end()[0] == 143
    assert run(*mq("cluster", "identity", tmp_path / "none"))[0] == 1


def test_gateways(cluster, tmp_path):
    other, federation = tmp_path / "other.key", tmp_path / "federation.key"
    for file in (other, federation):
        assert run(*mq("cluster", "key", "new", file))[0] == 0
    with starter() as start:
        up = start(*mq("cluster", "up", "--key", other, "--echo", "far"))
        seed = up.line()
        far = start(*mq("cluster", "gateway", "--key", other, "--seed", seed, "--name", "there",
                        "--federation-key", federation, "--export", "f*"))
        here = cluster.start("gateway", "--name", "here", "--federation-key", federation,
                             "--federation-seed", far.line(), "--import", "far@there",
                             "--requests", "100", "--bytes", "1e6", "--in-flight", "5")
        here.line()
        assert cluster("request", "far@there", "hello")[:2] == (0, b"hello\n")
        assert here.end()[0] == 143 and far.end()[0] == 143
    status, _, err = cluster("gateway", "--name", "a b", "--federation-key", federation)
    assert status == 1 and "a cluster's name has" in err
