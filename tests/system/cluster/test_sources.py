"""Who sends next over a link, and how much may be on its way: sources.py and window.py."""

import pytest

from mqcore.cluster import frames
from mqcore.cluster.errors import MalformedFrame
from mqcore.cluster.sources import Sources
from mqcore.cluster.window import LEAST, PERIOD, REPORT, TARGET, WINDOW, Window


class Wire:
    """Sources whose messages are taken in the order in which they were sent."""

    def __init__(self):
        self.now = 0.0
        self.window = Window(lambda: self.now)
        self.sources = Sources(self.window, self.later, lambda: False)
        self.due = False
        self.sent = []

    def source(self, name, size, count=10**9):
        left = [count]

        def send():
            left[0] -= 1
            self.window.reserve(size)
            self.window.spend(size)
            self.sent.append((name, size))
            return left[0] > 0

        return send

    def later(self):
        self.due = True

    def run(self):
        """What a loop does."""
        while self.due:
            self.due = False
            self.sources.feed()

    def close(self):
        """Nothing goes until open()."""
        self.window.unacked += WINDOW

    def open(self):
        self.window.unacked -= WINDOW
        self.sources.feed()
        self.run()

    def carry(self, size):
        """The receiver takes as much, by and by."""
        taken = 0
        while taken < size and self.window.unacked:
            step = min(REPORT, self.window.unacked)
            self.window.took(step, self.now)
            taken += step
            self.sources.feed()
            self.run()

    def bytes_of(self, kind):
        return sum(size for name, size in self.sent if name.startswith(kind))


@pytest.fixture
def wire():
    return Wire()


@pytest.mark.parametrize("tunnels", [1, 2, 500])
@pytest.mark.parametrize("size", [100, 30_000])
def test_cut_frames_get_half_however_many_tunnels_there_are(wire, tunnels, size):
    wire.close()
    for number in range(tunnels):
        wire.sources.enter(wire.source(f"tunnel {number}", size))
    wire.sources.cut.waiting.append(wire.source("cut", frames.PART))
    wire.open()
    wire.carry(8 << 20)
    assert abs(wire.bytes_of("cut") - wire.bytes_of("tunnel")) <= frames.PART + size


def test_who_had_the_link_alone_owes_nothing_to_the_other_kind(wire):
    wire.sources.enter(wire.source("tunnel", 10_000))
    wire.carry(4 << 20)
    before = len(wire.sent)
    wire.sources.cut.waiting.append(wire.source("cut", frames.PART))
    wire.sources.feed()
    wire.carry(2 << 20)
    del wire.sent[:before]
    assert abs(wire.bytes_of("cut") - wire.bytes_of("tunnel")) <= frames.PART + 10_000


def test_tunnels_share_their_half(wire):
    wire.close()
    sizes = {"tunnel a": 32_000, "tunnel b": 100, "tunnel c": 5_000}
    for name, size in sizes.items():
        wire.sources.enter(wire.source(name, size))
    wire.sources.cut.waiting.append(wire.source("cut", frames.PART))
    wire.open()
    wire.carry(16 << 20)
    amounts = [wire.bytes_of(name) for name in sizes]
    assert max(amounts) - min(amounts) < 100_000 < min(amounts) / 10


def test_all_that_was_entered_is_sent(wire):
    for number in range(50):
        wire.sources.enter(wire.source(f"tunnel {number}", 7_000, count=40))
        wire.sources.cut.waiting.append(wire.source("cut", frames.PART, count=5))
    wire.sources.feed()
    wire.carry(1 << 30)
    assert not len(wire.sources) and not wire.window.unacked
    assert len(wire.sent) == 50 * 45


def test_who_withdraws_is_not_asked_again(wire):
    wire.close()
    staying, going = wire.source("tunnel a", 1), wire.source("tunnel b", 1)
    for source in (staying, going):
        wire.sources.enter(source)
    wire.sources.withdraw(going)
    wire.open()
    assert {name for name, _ in wire.sent} == {"tunnel a"} and len(wire.sources) == 1


@pytest.mark.parametrize("kind", ["tunnel", "cut"])
def test_those_that_come_and_go_leave_a_long_one_its_share(wire, kind):
    """Each time that one is over, the next one begins: as soon as it can, or at the next turn."""
    places = 30
    started = 0

    def begin():
        nonlocal started
        started += 1
        short = wire.source(f"short {started}", 30_000, count=1)

        def send():
            ends.append(send)
            return short()

        (wire.sources.enter if kind == "tunnel" else wire.sources.enter_cut)(send)

    ends = []
    wire.close()
    long = wire.source("long", 30_000)
    (wire.sources.enter if kind == "tunnel" else wire.sources.enter_cut)(long)
    for _ in range(places):
        begin()
    wire.open()
    for _ in range(1000):
        wire.carry(REPORT)
        while ends:
            if kind == "tunnel":
                wire.sources.withdraw(ends[-1])
            ends.pop()
            begin()
    fair = wire.bytes_of("short") / places
    assert started > 500 and fair / 2 < wire.bytes_of("long") < 2 * fair


class Link:
    """A window over a link of so many bytes a second, which delays them by `far` seconds, and
    reports by `back`. The receiver's clock is `off` seconds ahead."""

    def __init__(self, rate, far=0.0, back=0.0, off=0.0):
        self.now, self.rate, self.far, self.back, self.off = 0.0, rate, far, back, off
        self.window = Window(lambda: self.now)
        self.free = 0.0         # when the link has carried all that was sent
        self.arriving = []      # (when, size) of reports
        self.untold = 0

    def run(self, seconds, size=10_000):
        end = self.now + seconds
        while self.now < end:
            while self.window.open:
                self.window.reserve(size)
                self.window.spend(size)
                self.free = max(self.free, self.now) + size / self.rate
                self.untold += size
                if self.untold >= REPORT:
                    taken = self.free + self.far
                    self.arriving.append((taken + self.back, taken + self.off, self.untold))
                    self.untold = 0
            self.now, at, told = self.arriving.pop(0)
            self.window.took(told, at)

    @property
    def queued(self):
        return self.free - self.now


@pytest.mark.parametrize("far", [0.0, 0.3])
def test_a_fast_link_gets_the_whole_window(far):
    link = Link(1e9, far)
    link.run(5)
    assert link.window.limit == WINDOW


def test_a_slow_link_gets_a_small_window():
    link = Link(3e5)
    link.run(20)
    assert link.window.limit <= LEAST + REPORT and link.queued < 1.1


def test_a_link_that_becomes_slow_and_fast_again():
    link = Link(1e8)
    link.run(1)
    assert link.window.limit == WINDOW
    link.rate = 2e5
    link.run(40)
    assert link.window.limit <= LEAST + REPORT
    link.rate = 1e8
    link.run(1)
    assert link.window.limit == WINDOW


@pytest.mark.parametrize("off", [-1e5, 0.0, 1e9])
def test_what_reports_wait_for_is_no_delay_and_clocks_differ(off):
    link = Link(1e8, off=off)
    link.run(5)
    link.back = 0.6
    link.run(10)
    assert link.window.limit == WINDOW
    link.back, link.rate = 0.0, 2e5
    link.run(30)
    assert link.window.limit <= LEAST + REPORT


def test_a_route_that_becomes_longer():
    link = Link(5e7, 0.01)
    link.run(10)
    link.far = 0.4
    link.run(2.5 * PERIOD)
    assert link.window.limit == WINDOW
    link.far = 0.01
    link.run(1)
    assert link.window.limit == WINDOW


def test_a_pause_in_which_the_clocks_have_drifted_apart():
    link = Link(5e7, 0.01)
    link.run(10)
    while link.window.unacked:
        link.window.took(min(REPORT, link.window.unacked), link.now)
    link.arriving.clear()
    link.now += 3 * 3600
    link.free, link.untold, link.off = link.now, 0, 1.0
    link.run(2)
    assert link.window.limit == WINDOW


@pytest.mark.parametrize("rate", [2e5, 1e6])
def test_its_own_queue_never_counts_as_the_route(rate):
    link = Link(rate)
    longest = 0.0
    for _ in range(200):
        link.run(PERIOD / 10)
        longest = max(longest, link.queued)
    assert longest < LEAST / rate + 2 * TARGET


def test_pauses_and_what_is_given_back_are_no_delay():
    link = Link(1e8)
    link.run(1)
    window = link.window
    while window.unacked:
        window.took(min(REPORT, window.unacked), link.now)
    for _ in range(100):
        window.reserve(REPORT)
        window.give_back(REPORT)
        link.now += PERIOD / 200
        window.reserve(REPORT)
        window.spend(REPORT)
        window.took(REPORT, link.now)
    assert window.limit == WINDOW and not window.unacked


def test_more_is_reported_than_was_sent():
    window = Window()
    window.reserve(10)
    window.spend(10)
    window.took(10, 0.0)
    window.reserve(10)      # and not sent
    with pytest.raises(MalformedFrame, match="more than was sent"):
        window.took(1, 0.0)
