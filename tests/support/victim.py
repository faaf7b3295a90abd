"""A listening socket, and what broken peers must not do to it (tests/hostile/bad_input)."""


import pytest
from rawzmtp import (
    PEER_OF,
    RawPeer,
    command,
    message,
)
from waiting import until

import mqcore as mq

LIMIT = 60
PATTERNS = list(PEER_OF)
every = pytest.mark.parametrize("pattern", PATTERNS)


class Victim:
    """A listening socket of one pattern, its events, and a way to see that it still serves."""

    def __init__(self, ctx, pattern, where="tcp://127.0.0.1:0", **options):
        self.pattern = pattern
        self.s = ctx.socket(pattern, recv_timeout=LIMIT, send_timeout=LIMIT,
                            **{"handshake_timeout": 5.0, **options})
        if pattern == "sub":
            self.s.subscribe(b"")
        if pattern == "dish":
            self.s.join("group")
        self.url = self.s.bind(where).url
        self.events = self.s.events()

    def raw(self, shaken=False):
        peer = RawPeer.connect(self.url)
        if shaken:
            before = len(self.s.peers())
            peer.shake(PEER_OF[self.pattern])
            self.s.wait_peers(before + 1, LIMIT)
        return peer

    def why(self, *kinds):
        """The reason of the next event of these kinds."""
        while True:
            event = self.events.get(LIMIT)
            if event.kind in (kinds or ("HandshakeFailed", "Disconnected")):
                return event.reason

    def serves(self):
        """A good peer is served, from handshake to message."""
        until(self._served)

    def _served(self):
        try:
            self._serve()
        except (ConnectionError, EOFError):
            if self.pattern not in ("pair", "req"):
                raise
            return False    # a PAIR that has not yet seen the bad one leave, an abandoned REQ
        return True

    def _serve(self):
        with RawPeer.connect(self.url) as peer:
            n = max([p.id for p in self.s.peers()], default=0)
            peer.shake(PEER_OF[self.pattern])
            until(lambda: any(p.id > n for p in self.s.peers()))
            getattr(self, "_" + self.pattern)(peer)

    def drain(self, last):
        while True:
            got = self.s.recv_parts()
            if got[-1] == last:
                return got

    def _pull(self, peer):
        peer.say(message(b"good"))
        self.drain(b"good")

    _sub = _xsub = _pull

    def _push(self, peer):
        while True:         # others may get some
            self.s.send(b"good")
            peer.sock.settimeout(0.02)
            try:
                assert peer.parts() == [b"good"]
                return
            except TimeoutError:
                pass

    def _pair(self, peer):
        peer.say(message(b"good"))
        self.drain(b"good")
        self.s.send(b"good")
        assert peer.parts() == [b"good"]

    def _dealer(self, peer):
        self._pull(peer)
        self._push(peer)

    def _router(self, peer):
        peer.say(message(b"good"))
        self.s.send_to(self.drain(b"good")[0], b"good")
        assert peer.parts() == [b"good"]

    def _rep(self, peer):
        peer.say(message(b"", b"good"))
        while True:
            m = self.s.recv_msg()
            try:
                m.reply(b"re " + m.body)
            except mq.NoSuchPeer:       # the bad one has asked, too, and has left
                pass
            if m.body == b"good":
                break
        assert peer.parts() == [b"", b"re good"]

    def _req(self, peer):
        peer.sock.settimeout(0.02)
        while True:
            self.s.send(b"good")
            try:
                parts = peer.parts()
            except TimeoutError:
                continue
            if parts == [b"", b"good"]:
                break
        peer.say(message(b"", b"answer"))
        assert self.s.recv() == b"answer"

    def _pub(self, peer):
        peer.say(message(b"\1good topic"))
        self.s.wait_subscribers(b"good topic", 1, LIMIT)
        self.s.send(b"good topic")
        assert peer.parts() == [b"good topic"]

    _xpub = _pub

    def _radio(self, peer):
        peer.say(command(b"JOIN", b"group"))
        self.s.wait_subscribers("group", 1, LIMIT)
        self.s.send(b"good", group="group")
        assert peer.parts() == [b"group", b"good"]

    def _dish(self, peer):
        peer.say(message(b"group", b"good"))
        self.drain(b"good")
