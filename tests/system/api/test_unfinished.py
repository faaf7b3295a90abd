"""Messages that have begun to arrive and are not complete lie outside the marks: max_unfinished
bounds what all peers of a socket have begun together."""

import struct
import threading

import pytest
from rawws import BINARY, RawWs, ws
from rawzmtp import RawPeer, frame
from waiting import until

MOST = 1 << 20
PIECE = 500_000     # three of them are too much
LATER = 128 << 10   # of a large message, as much may wait in the kernel
REASON = "the messages that peers have begun to send exceed max_unfinished"


class Zmtp:
    pattern, url = "PUSH", "tcp://127.0.0.1:0"

    def connect(self, url):
        peer = RawPeer.connect(url)
        peer.shake("PUSH")
        return peer

    def begin(self, peer):
        peer.sock.sendall(b"\2" + struct.pack(">Q", 10 * MOST) + bytes(PIECE))


class Parts(Zmtp):
    """Whole parts of a message whose last part does not come."""

    def begin(self, peer):
        peer.sock.sendall(frame(bytes(PIECE // 4), 1) * 4)


class Empty(Zmtp):
    """A part takes room even if it is empty."""

    def begin(self, peer):
        peer.sock.sendall(frame(b"", 1) * (PIECE // 64))


class Sp(Zmtp):
    def connect(self, url):
        peer = RawPeer.connect(url)
        peer.say(b"\0SP\0\0\x50\0\0")
        assert peer.hear(8)[:4] == b"\0SP\0"
        return peer

    def begin(self, peer):
        peer.sock.sendall(struct.pack(">Q", 10 * MOST) + bytes(PIECE))


class Web(Zmtp):
    url = "ws://127.0.0.1:0"

    def connect(self, url):
        peer = RawWs.dial(url)
        peer.shake("PUSH")
        return peer

    def begin(self, peer):
        whole = ws(b"\0" + bytes(2 * PIECE), BINARY, key=b"abcd")
        peer.sock.sendall(whole[:PIECE])


WIRES = [Zmtp(), Parts(), Empty(), Sp(), Web()]


def total(pull):
    return pull._begun()


@pytest.fixture(params=WIRES, ids=lambda wire: type(wire).__name__)
def wire(request):
    return request.param


def test_the_peer_that_goes_beyond_it_ends_its_connection(ctx, wire):
    with ctx.socket("pull", bind=wire.url, max_unfinished=MOST) as pull, pull.events() as events:
        url = pull.endpoints[0].url
        peers = [wire.connect(url) for _ in range(3)]
        pull.wait_peers(3, 10)
        for n, peer in enumerate(peers[:2], 1):
            wire.begin(peer)
            until(lambda n=n: total(pull) >= n * (PIECE - LATER - 100))
        wire.begin(peers[2])
        assert peers[2].ended()
        until(lambda: len(pull.peers()) == 2)
        assert pull.stats().broken_peers == 1 and total(pull) <= MOST
        while (event := events.get(5)).kind != "Disconnected":
            pass
        assert event.reason == REASON
        for peer in peers:
            peer.close()
        until(lambda: total(pull) == 0)


def test_one_alone_always_fits(ctx):
    with ctx.socket("pull", bind="tcp://127.0.0.1:0", max_unfinished=0) as pull:
        push = ctx.socket("push", connect=pull.endpoints[0].url)
        for _ in range(3):
            push.send(bytes(5 * MOST))
            assert len(pull.recv(timeout=20)) == 5 * MOST
            push.send_parts([bytes(MOST)] * 5)
            assert len(pull.recv_parts(timeout=20)) == 5
        until(lambda: total(pull) == 0)     # counted after the message is there to be received
        assert pull.stats().broken_peers == 0


def test_small_ones_do_not_count(ctx):
    with ctx.socket("pull", bind="tcp://127.0.0.1:0", max_unfinished=0) as pull:
        peers = [Zmtp().connect(pull.endpoints[0].url) for _ in range(5)]
        for peer in peers:
            peer.say(frame(bytes(60_000), 1))
        until(lambda: pull.stats().peers and all(
            p.read == 0 and p.bytes_in > 60_000 for p in pull.stats().peers.values()))
        for peer in peers:
            peer.say(frame(b"end"))
        assert [len(pull.recv(timeout=5)) for _ in peers] == [60_003] * 5
        assert pull.stats().broken_peers == 0
        for peer in peers:
            peer.close()


def test_it_can_be_changed_and_switched_off(ctx):
    with ctx.socket("pull", bind="tcp://127.0.0.1:0", max_unfinished=None) as pull:
        assert pull.max_unfinished is None
        peers = [Zmtp().connect(pull.endpoints[0].url) for _ in range(4)]
        for n, peer in enumerate(peers[:3], 1):
            Zmtp().begin(peer)
            until(lambda n=n: total(pull) >= n * (PIECE - LATER))
        pull.max_unfinished = MOST
        Zmtp().begin(peers[3])
        assert peers[3].ended()
        for peer in peers:
            peer.close()


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "ipc://*", "shm://*", "ws://127.0.0.1:0"])
def test_peers_that_finish_what_they_begin_are_never_over_it(ctx, url):
    """Each waits for its turn, so that one large message is under way at a time."""
    with ctx.socket("router", bind=url, max_unfinished=MOST) as router:
        dealers = [ctx.socket("dealer", connect=router.endpoints[0].url) for _ in range(3)]
        turn = threading.Lock()

        def work(dealer):
            for _ in range(10):
                with turn:
                    dealer.send(bytes(3 * MOST))
                    dealer.recv(timeout=20)
        threads = [threading.Thread(target=work, args=(dealer,)) for dealer in dealers]
        for thread in threads:
            thread.start()
        for _ in range(30):
            who, body = router.recv_parts(timeout=20)
            assert len(body) == 3 * MOST
            until(lambda: total(router) == 0)
            router.send_parts([who, b"done"])
        for thread in threads:
            thread.join()
        assert router.stats().broken_peers == 0
