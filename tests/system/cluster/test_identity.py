"""A node's identity in a file: kept over restarts, made once, used by one node at a time."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest
from echoing import Echo

from mqcore import cluster
from mqcore.cluster.identity import FORMAT, Identity
from mqcore.errors import Error

LIMIT = 50.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "node.identity"


def test_a_node_keeps_its_id(run, key, path):
    async def main():
        ids = []
        for _ in range(2):
            async with cluster.ajoin(key, identity=path) as net:
                ids.append(net.id)
                with pytest.raises(cluster.IdentityError, match="in use by another node"):
                    async with cluster.ajoin(key, identity=str(path)):
                        raise AssertionError("two nodes have one identity")
        assert ids[0] == ids[1] == Identity.id_in(path)
        async with cluster.ajoin(key) as net:
            assert net.id != ids[0]

    run(main)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert set(os.listdir(path.parent)) == {path.name, "test.key"}


def test_a_failed_join_frees_it(once, key, path):
    async def main():
        with pytest.raises(Error):
            async with cluster.ajoin(key, identity=path, listen="tcp://192.0.2.1:1"):
                raise AssertionError("it listens at an address of others")
        async with cluster.ajoin(key, identity=path) as net:
            assert net.id == Identity.id_in(path)

    once(main)


def test_one_of_many_makes_it(path):
    def take(_):
        try:
            return Identity.take(path)
        except cluster.IdentityError as error:
            assert "in use" in error.text
            return None

    with ThreadPoolExecutor(16) as pool:
        taken = [one for one in pool.map(take, range(64)) if one is not None]
    assert len(taken) == 1 and os.listdir(path.parent) == [path.name]
    taken[0].release()
    taken[0].release()
    Identity.take(path).release()


@pytest.mark.parametrize(("content", "says"), [
    (b"", "is no identity"), (b"\0\xff", "is no identity"), (FORMAT.encode(), "is no identity"),
    (FORMAT.encode() + b"\n" + b"0" * 63, "is no identity"),
    (FORMAT.encode() + b"\n" + b"x" * 64, "is no identity"),
    (b"mqcore-cluster-key 1\n" + b"0" * 64, "is no identity")])
def test_what_is_no_identity(path, content, says):
    path.write_bytes(content)
    path.chmod(0o600)
    for _ in range(2):          # the lock is free after each
        with pytest.raises(cluster.IdentityError, match=says) as caught:
            Identity.take(path)
    assert caught.value.path == str(path) and path.read_bytes() == content


def test_files_that_cannot_be_used(path, tmp_path):
    Identity.take(path).release()
    path.chmod(0o640)
    with pytest.raises(cluster.IdentityError, match="open to other users"):
        Identity.take(path)
    with pytest.raises(cluster.IdentityError, match="no plain file"):
        Identity.take(tmp_path)
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(cluster.IdentityError, match="no plain file"):
        Identity.take(tmp_path / "fifo")
    with pytest.raises(cluster.IdentityError, match="cannot make the identity"):
        Identity.take(tmp_path / "nowhere" / "node.identity")
    with pytest.raises(cluster.IdentityError, match="cannot read the identity"):
        Identity.id_in(tmp_path / "nothing")


@pytest.mark.parametrize("wrong", [5, b"path", ""])
def test_what_is_no_path(key, wrong):
    with pytest.raises(TypeError, match="identity="):
        cluster.ajoin(key, identity=wrong)


def test_a_ban_holds_over_a_restart(once, key, path):
    async def main():
        async with cluster.ajoin(key, identity=path) as bad:
            banned = key.banning(bytes.fromhex(bad.id))
        async with cluster.ajoin(banned) as good, good.aserve("echo", Echo()):
            for _ in range(2):
                with pytest.raises(cluster.KeyRejected) as caught:
                    async with cluster.ajoin(key, seeds=[good.url], identity=path):
                        raise AssertionError("a banned node has joined")
                assert caught.value.why == "banned"
            async with cluster.ajoin(key, seeds=[good.url]) as other:
                assert await other.arequest("echo", b"a", timeout=LIMIT) == b"a"

    once(main)


@pytest.mark.parametrize("how", ["killed", "left"])
def test_a_restarted_member_is_the_same_member(once, key, nodes, path, how):
    """At once, from another address, with the services it has now."""
    async def main():
        async with cluster.ajoin(key) as net:
            nodes.urls = [net.url]
            for name in ("one", "two", "three"):
                program = await net.loop.in_pool(nodes, "--identity", path, "--name", name)
                [member] = await net.await_members(name, timeout=LIMIT)
                assert member.id == Identity.id_in(path) and member.url == nodes.urls[-1]
                assert list(member.services) == [name]
                assert await net.arequest(name, b"echo x", timeout=LIMIT) == b"x"
                if how == "killed":
                    program.process.kill()
                else:
                    program.process.stdin.close()
                await net.loop.in_pool(program.process.wait)
            assert await net.until(lambda: not net.members("three"), LIMIT)

    once(main)


def test_two_nodes_with_copies_of_one_identity(once, key, path):
    """No lock reaches another machine: the nodes find out when they meet."""
    async def main():
        copy = path.with_name("copy")
        Identity.take(copy).release()
        path.write_bytes(copy.read_bytes())
        path.chmod(0o600)
        async with cluster.ajoin(key, identity=path) as one:
            events = one.events()
            async with cluster.ajoin(key, identity=copy, seeds=[one.url]) as two:
                assert one.id == two.id
                while (event := await events.anext(LIMIT)).kind != "trouble":
                    pass
                assert "another node has this node's identity" in event.reason
                assert event.url == two.url

    once(main)
