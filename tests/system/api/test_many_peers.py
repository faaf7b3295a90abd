"""One socket and many peers, made of plain sockets: who waits for whom, and what idle ones cost."""

from pathlib import Path

import pytest
from rawzmtp import RawPeer, frame
from waiting import until

import mqcore as mq


@pytest.fixture
def pull():
    """Nothing is found by a tick: it comes too late for the test."""
    with mq.Context(lead_tick=30.0, linger=0) as context:
        with context.socket("pull", bind="tcp://127.0.0.1:0", recv_hwm=None) as s:
            yield s


def connect(s, n: int) -> list[RawPeer]:
    before = len(s.stats().peers)
    peers = [RawPeer.connect(s.endpoints[0].url) for _ in range(n)]
    for peer in peers:
        peer.shake("PUSH")
    s.wait_peers(before + n, 10)
    return peers


def close(peers) -> None:
    for peer in peers:
        peer.sock.close()


def read(s) -> int:
    return sum(peer.read for peer in s.stats().peers.values())


@pytest.mark.parametrize("take", [
    pytest.param(lambda s, n: [s.recv(timeout=0) for _ in range(n)], id="recv"),
    pytest.param(lambda s, n: s.recv_many(n, timeout=0), id="recv_many"),
])
def test_a_backlog_of_one_does_not_hide_the_others(pull, take):
    """Who receives from a backlog never comes to lead: somebody else must look at the quiet."""
    flooder, quiet = peers = connect(pull, 2)
    with pytest.raises(mq.RecvTimeout):
        pull.recv(timeout=0.01)           # has led: only callers that lead look from here on
    flooder.say(frame(b"flood") * 4000)
    assert pull.recv(timeout=10) == b"flood"
    assert read(pull) >= 1000
    quiet.say(frame(b"quiet"))
    got = take(pull, 100)
    until(lambda: any(p.read == 1 for p in pull.stats().peers.values()))
    got += take(pull, 2)
    assert got.count(b"quiet") == 1       # within one turn of both
    close(peers)


def system_calls(s, peer: RawPeer, count: int) -> int:
    """Reads of this process while one peer's messages are received one by one."""
    def reads() -> int:
        return int(Path("/proc/self/io").read_text().split("syscr: ")[1].split()[0])

    before = reads()
    for i in range(count):
        peer.say(frame(b"%d" % i))
        assert s.recv(timeout=10) == b"%d" % i
    return reads() - before


def test_idle_peers_cost_a_message_nothing(pull):
    first = connect(pull, 1)
    alone = system_calls(pull, first[0], 50)
    rest = connect(pull, 200)
    assert system_calls(pull, first[0], 50) < alone + 50     # one look at each would be 10,000
    close(first + rest)
