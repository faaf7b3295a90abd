"""Random programs for a pattern: one socket of it, bound, and partners that come, go and talk.

Every part of a message tells whose message it is, its number, and which of how many parts: so a
receiver sees at once a part that is lost, doubled or of another message.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import mqcore as mq
from mqcore.testing.suite import LIMIT
from mqcore.testing.traffic import heard, laws
from mqcore.testing.watch import until

MOST = 4  # partners at a time
SETTLED = 5.0  # seconds for what takes milliseconds; each failing example waits as long
STEPS = ("come", "come_ready", "leave", "leave_gently", "say", "say", "burst", "hear", "hear",
         "tell", "tell", "listen", "listen")
#: (step, which partner, how many parts)
PROGRAMS = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, MOST - 1), st.integers(1, 4)),
                    min_size=4, max_size=30)
EXPECTED = (mq.Timeout, mq.StateError, mq.PeerError)  # no peer, wrong state, peer disconnected


def message(who: int, number: int, count: int) -> list[bytes]:
    size = (0, 40, 300, 9000)[number % 4]
    return [b"mq %d %d %d %d " % (who, number, k, count) + bytes(size) for k in range(count)]


class Churn:
    """0 is the pattern's socket; partners have numbers from 1, never used twice."""

    def __init__(self, suite: Any, make: Any, url: str) -> None:
        self.suite = suite
        self.make = make
        self.near = make(suite.pattern, send_hwm=6, recv_hwm=6)
        self.url = self.near.bind(url).url
        self.fars: dict[int, Any] = {}
        self.has = suite.has()
        self.next = 1
        self.sent: dict[int, int] = {0: 0}
        self.seen: set[tuple[int, int, int]] = set()  # (receiver, sender, number)
        self.latest: dict[tuple[int, int], int] = {}

    # -- steps -------------------------------------------------------------------------------------

    def run(self, step: str, which: int, parts: int) -> None:
        numbers = list(self.fars)
        who = numbers[which % len(numbers)] if numbers else 0
        if step.startswith("come"):
            if len(self.fars) < MOST:
                self.come(wait=step == "come_ready")
        elif step.startswith("leave"):
            if who:
                self.leave(self.fars.pop(who), first_disconnect=step == "leave_gently")
        elif step == "say":
            self.say(0, self.near, parts)
        elif step == "burst":
            for _ in range(10):
                self.say(0, self.near, parts)
        elif step == "hear":
            self.hear(0, self.near)
        elif who and step == "tell":
            self.say(who, self.fars[who], parts)
        elif who:
            self.hear(who, self.fars[who])
        self.check()

    def leave(self, far: Any, first_disconnect: bool = False) -> None:
        if first_disconnect:
            far.disconnect(self.url)
            laws(far)
        far.close(0)

    def come(self, wait: bool) -> None:
        far = self.make(self.suite.partner, send_hwm=6, recv_hwm=6, reconnect=0.01,
                        reconnect_max=0.05)
        self.fars[self.next] = far
        self.sent[self.next] = 0
        self.next += 1
        far.connect(self.url)
        if wait and ("exclusive" not in self.has or len(self.fars) == 1):
            far.wait_peers(1, LIMIT)

    def say(self, who: int, sock: Any, parts: int) -> None:
        if "sends" not in self.suite.has(sock.pattern):
            return
        number = self.sent[who]
        if self.suite.alone:
            parts = 1
        try:
            if "addresses" in self.suite.has(sock.pattern):
                peers = sock.peers()
                if not peers:
                    return
                sock.send_to(peers[number % len(peers)], *message(who, number, parts), timeout=0)
            else:
                sock.send_parts(message(who, number, parts), timeout=0)
        except EXPECTED:
            return
        self.sent[who] += 1

    def hear(self, who: int, sock: Any) -> bool:
        if "receives" not in self.suite.has(sock.pattern):
            return False
        try:
            parts = heard(sock, 0)
        except EXPECTED:
            return False
        self.take(who, parts)
        return True

    # -- what must hold ----------------------------------------------------------------------------

    def take(self, receiver: int, parts: list[bytes]) -> None:
        words = [part.split(b" ")[1:5] for part in parts]
        sender, number, _, count = (int(word) for word in words[0])
        assert parts == message(sender, number, count), "not whole, or mixed with another"
        assert (sender == 0) != (receiver == 0), "a message came back to its own side"
        assert number < self.sent[sender], "it was never taken"
        assert (receiver, sender, number) not in self.seen, "it came twice"
        self.seen.add((receiver, sender, number))
        if "fans-out" not in self.suite.has(self.name(sender)):
            takers = [key for key in self.seen if key[1:] == (sender, number)]
            assert len(takers) == 1, "two got it"
        if sender or "reroutes" not in self.has:
            assert self.latest.get((receiver, sender), -1) < number, "out of order"
            self.latest[receiver, sender] = number

    def name(self, who: int) -> str:
        return str(self.suite.partner if who else self.suite.pattern)

    def check(self) -> None:
        for sock in (self.near, *self.fars.values()):
            laws(sock)

    # -- the end -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """All who are left read until nothing is on its way: what one end has written, the other
        has read."""
        if "exclusive" in self.has:
            for who in list(self.fars)[1:]:
                self.fars.pop(who).close(0)

        def quiet() -> bool:
            more = self.hear(0, self.near)
            for who, far in self.fars.items():
                more |= self.hear(who, far)
            return not more and self.met() and self.balanced()
        until(quiet, SETTLED)
        self.check()

    def met(self) -> bool:
        """Whether departed peers are gone and new ones are connected."""
        return len(self.near.peers()) == len(self.fars)

    def balanced(self) -> bool:
        present = self.near.peers()
        near = [account for peer, account in self.near.stats().peers.items() if peer in present]
        far = [account for sock in self.fars.values()
               for peer, account in sock.stats().peers.items() if peer in sock.peers()]
        return all(sum(getattr(p, out) for p in one) == sum(getattr(p, inn) for p in other)
                   and not any(p.queued_out for p in one)
                   for one, other, out, inn in ((near, far, "written", "read"),
                                                (far, near, "written", "read")))

    def close(self) -> None:
        for sock in (*self.fars.values(), self.near):
            sock.close(0)
