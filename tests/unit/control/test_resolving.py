"""The follower of a resolver's URL, with a scripted resolver and a clock moved by hand."""

import errno
import os
import select
import socket
import threading

import pytest

from mqcore.control.endpoint import Endpoint
from mqcore.control.loop import ControlLoop
from mqcore.control.resolving import Follower
from mqcore.errors import AddressError, ConnectTimeout, HandshakeFailed, PeerError, SocketClosed
from mqcore.spi.resolver import Resolver
from mqcore.spi.url import parse

A, B, C = "tcp://10.0.0.1:5", "tcp://10.0.0.2:5", "tcp://10.0.0.3:5"


class Scripted(Resolver):
    """Answers what `says` holds; raises it if it is an exception, calls it if it can be called."""

    scheme = "scripted"

    def __init__(self):
        self.says = ()
        self.asked = 0
        self.blocks = False
        self.watches = []

    def check(self, address):
        if address == "bad":
            raise AddressError("this name is bad", position=1)

    def may_block(self, address):
        return self.blocks

    def look_up(self, address, options):
        assert address == "name" and options["refresh"] in (30.0, None)
        self.asked += 1
        says = self.says() if callable(self.says) else self.says
        if isinstance(says, Exception):
            raise says
        return says

    def watch(self, address, options):
        return self.watches.pop(0) if self.watches else None


class Bell:
    """A watch that the test rings."""

    def __init__(self):
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.worth = True
        self.closed = 0

    def fileno(self):
        return self.fd

    def read(self):
        os.eventfd_read(self.fd)
        if isinstance(self.worth, Exception):
            raise self.worth
        return self.worth

    def close(self):
        self.closed += 1
        os.close(self.fd)

    def ring(self):
        os.eventfd_write(self.fd, 1)


class World:
    """A follower, the clock of its loop, and what it did."""

    def __init__(self, errors, **options):
        self.now = 100.0
        self.loop = ControlLoop(clock=lambda: self.now,
                                on_error=lambda error, source: errors.append(error))
        self.loop.start()
        self.resolver = Scripted()
        self.options = {"refresh": 30.0, "reconnect": 1.0, "reconnect_max": 3.0,
                        "connect_timeout": 10.0, **options}
        self.did = []     # ("join" or "leave", url), in order
        self.events = []  # (name, reason, added, removed)
        self.refuses = {}
        self.cannot = {}

    def begin(self, *says):
        self.resolver.says = says[0] if says and callable(says[0]) else says
        self.follower = Follower(
            self.loop, self.resolver, parse("scripted://name"), self.options, check=self.check,
            join=self.join, leave=self.leave, tell=self.tell, rng=lambda: 1.0)
        self.endpoint = self.follower.endpoint
        self.follower.start()
        self.settle()
        return self

    def check(self, url):
        if url in self.refuses:
            raise self.refuses[url]

    def join(self, url):
        if url in self.cannot:
            raise self.cannot[url]
        self.did.append(("join", url))
        return Endpoint(url, "connect")

    def leave(self, endpoint):
        self.did.append(("leave", endpoint.url))
        endpoint.move("closed")

    def tell(self, record, reason, added=(), removed=()):
        self.events.append((record.__name__, reason, added, removed))

    def settle(self):
        """Until the control thread has done all that there is to do; a move is told by a call."""
        for _ in range(2):
            self.loop.call_wait(lambda: None)

    def later(self, seconds, *says):
        if says:
            self.resolver.says = says[0]
        self.now += seconds
        self.loop.wake()
        self.settle()

    def take(self):
        """What was done and told since the last time."""
        did, events = self.did[:], self.events[:]
        self.did.clear()
        self.events.clear()
        return did, events

    @property
    def members(self):
        return [member.url for member in self.endpoint.members]


@pytest.fixture
def world(errors):
    made = []

    def make(**options):
        made.append(World(errors, **options))
        return made[-1]

    yield make
    for one in made:
        one.follower.stop()
        one.loop.stop()
    assert errors == []


def test_the_first_answer_is_connected_in_order(world):
    w = world().begin(B, A, B)
    assert w.take() == ([("join", B), ("join", A)], [("Resolved", "2 addresses", (B, A), ())])
    assert w.members == [B, A] and str(w.endpoint) == "scripted://name"
    assert w.endpoint.state == "connecting" and w.endpoint.error is None


def test_it_follows_the_set_new_ones_first(world):
    w = world().begin(A, B)
    w.take()
    w.later(29.9, (B, C))
    assert w.take() == ([], []) and w.resolver.asked == 1
    w.later(0.1)
    assert w.take() == ([("join", C), ("leave", A)], [("Resolved", "2 addresses", (C,), (A,))])
    assert w.members == [B, C]
    kept = w.endpoint.members[0]
    w.later(30)
    assert w.take() == ([], []) and w.resolver.asked == 3
    assert w.endpoint.members[0] is kept


def test_refresh_none_asks_once(world):
    w = world(refresh=None)
    w.resolver.look_up = lambda address, options: w.take() and [A]
    w.begin()
    w.resolver.look_up = None
    w.later(1e6)
    assert [name for name, *_ in w.events] == ["Resolved"] and w.members == [A]


@pytest.mark.parametrize(("failure", "text"), [
    (OSError(errno.EIO, "Input/output error"), "cannot resolve scripted://name: Input/output"),
    (socket.gaierror(-2, "Name unknown"), "cannot resolve scripted://name: Name unknown; is the"),
    (PeerError("it sulks", hint="cheer it up"), "scripted://name: it sulks; cheer it up"),
    (ValueError("oh"), "resolving scripted://name failed: ValueError: oh"),
])
def test_a_failure_keeps_the_last_good_set(world, failure, text):
    w = world().begin(A)
    w.take()
    w.later(30, failure)
    did, ((name, reason, _, _),) = w.take()
    assert did == [] and name == "ResolveFailed" and text in reason
    assert w.members == [A] and w.endpoint.error.text in reason
    w.later(30, (A,))
    assert w.take() == ([], []) and w.endpoint.error is None


def test_pauses_after_failures_are_a_connectors(world):
    w = world().begin()
    w.later(30, OSError("no"))
    asked = w.resolver.asked
    for pause in (1, 2, 3, 3):
        w.later(pause - 0.01)
        assert w.resolver.asked == asked
        w.later(0.01)
        asked += 1
        assert w.resolver.asked == asked
    w.later(3, (A,))  # it answers: the pauses start over
    w.later(30, OSError("no"))
    asked = w.resolver.asked
    w.later(1)
    assert w.resolver.asked == asked + 1


def test_without_reconnect_the_pause_is_refresh(world):
    w = world(reconnect=None).begin()
    w.later(30, OSError("no"))
    w.later(29)
    assert w.resolver.asked == 2
    w.later(1)
    assert w.resolver.asked == 3


def test_where_nothing_will_ask_again_it_has_stopped(world):
    w = world(reconnect=None, refresh=None)
    w.begin(lambda: OSError("no"))
    assert w.endpoint.state == "stopped"
    with pytest.raises(PeerError, match="cannot resolve scripted://name: no"):
        w.endpoint.wait_ready(10)
    watched = world(reconnect=None, refresh=None)
    watched.resolver.watches = [Bell()]
    watched.begin()
    assert watched.endpoint.state == "waiting"


@pytest.mark.parametrize("says", [(A, "nonsense"), "tcp://10.0.0.9:5", 7, (A, None)])
def test_an_answer_with_a_mistake_in_it_counts_for_nothing(world, says):
    w = world()
    w.refuses = {"nonsense": AddressError("no '://' in it"), None: AddressError("no text")}
    w.begin(B)
    w.take()
    w.later(30, says)
    did, events = w.take()
    assert did == [] and [e[0] for e in events] == ["ResolveFailed"] and w.members == [B]


def test_an_empty_set_is_said(world):
    w = world().begin(A)
    w.take()
    w.later(30, ())
    assert w.take() == ([("leave", A)], [("Resolved", "no address", (), (A,))])
    assert w.endpoint.state == "waiting" and "stands for no address" in str(w.endpoint.error)
    with pytest.raises(ConnectTimeout, match="stands for no address"):
        w.endpoint.wait_ready(0)
    w.later(30, (A,))
    assert w.endpoint.state == "connecting" and w.endpoint.error is None


def test_empty_from_the_start(world):
    w = world().begin()
    assert w.take() == ([], [("Resolved", "no address", (), ())])
    assert w.endpoint.state == "waiting"


def test_one_that_cannot_be_joined_leaves_the_others(world):
    w = world()
    w.cannot = {A: OSError("used up")}
    w.begin(A, B)
    did, events = w.take()
    assert did == [("join", B)] and w.members == [B]
    assert [e[0] for e in events] == ["ResolveFailed", "Resolved"]
    w.cannot = {}
    w.later(30)
    assert w.take()[0] == [("join", A)]


@pytest.mark.parametrize("where", ["check", "join"])
def test_a_closed_socket_ends_it(world, where):
    w = world().begin(A)
    (w.refuses if where == "check" else w.cannot)[B] = SocketClosed()
    w.take()
    w.later(30, (A, B))
    w.later(1000)
    assert w.take() == ([], []) and w.resolver.asked == 2


# -- the state of the whole ------------------------------------------------------------------------


def move(endpoint, *states, error=None, fatal=False):
    for state in states:
        endpoint.move(state, error, fatal=fatal)


def test_it_is_as_well_as_its_best_member(world):
    w = world().begin(A, B)
    a, b = w.endpoint.members
    waiting = PeerError("nobody there")
    seen = []
    for who, states, expected in [
        (a, ("waiting",), "connecting"), (b, ("waiting",), "waiting"),
        (b, ("connecting", "handshaking"), "connecting"), (b, ("connected",), "connected"),
        (a, ("connecting", "handshaking", "connected"), "connected"),
        (b, ("waiting",), "connected"),
        (a, ("waiting",), "waiting"), (a, ("connecting", "stopped"), "waiting"),
        (b, ("connecting",), "connecting"), (b, ("stopped",), "stopped"),
        (b, ("connecting", "connected"), "connected"), (b, ("closed",), "stopped"),
        (a, ("closed",), "waiting"),
    ]:
        move(who, *states, error=waiting if states[-1] in ("waiting", "stopped") else None)
        w.settle()
        seen.append((w.endpoint.state, expected))
        if expected in ("waiting", "stopped") and {a.state, b.state} != {"closed"}:
            assert w.endpoint.error is waiting
    assert all(found == expected for found, expected in seen), seen


def test_wait_ends_when_a_member_is_there(world):
    w = world().begin(A, B)
    with pytest.raises(ConnectTimeout):
        w.endpoint.wait_ready(0)
    move(w.endpoint.members[1], "connected")
    w.endpoint.wait_ready(10)


def test_wait_says_what_stopped_them_all(world):
    w = world().begin(A, B)
    failed = HandshakeFailed("they do not fit", reason="no")
    move(w.endpoint.members[0], "stopped", error=failed, fatal=True)
    w.settle()
    assert w.endpoint.state == "connecting"
    move(w.endpoint.members[1], "stopped", error=failed, fatal=True)
    with pytest.raises(HandshakeFailed, match="do not fit"):
        w.endpoint.wait_ready(10)


def test_one_that_does_not_fit_leaves_hope_in_the_others(world):
    w = world().begin(A, B, C)
    failed = HandshakeFailed("they do not fit", reason="no")
    w.endpoint.members[2].move("closed")
    move(w.endpoint.members[0], "waiting", error=failed, fatal=True)
    move(w.endpoint.members[1], "waiting", error=PeerError("nobody there"))
    w.settle()
    with pytest.raises(ConnectTimeout):
        w.endpoint.wait_ready(0)
    move(w.endpoint.members[1], "connecting")
    move(w.endpoint.members[1], "waiting", error=failed, fatal=True)
    w.settle()
    with pytest.raises(HandshakeFailed):
        w.endpoint.wait_ready(0)


def test_a_member_that_the_program_closed_stays_closed(world):
    w = world().begin(A, B)
    w.take()
    w.endpoint.members[0].move("closed")
    w.later(30)
    assert w.take() == ([], []) and [m.state for m in w.endpoint.members] == ["closed",
                                                                              "connecting"]
    w.later(30, (B,))
    w.later(30, (B, A))
    assert w.take()[0] == [("leave", A), ("join", A)]


# -- watches ---------------------------------------------------------------------------------------


def test_a_watch_asks_at_once(world, eventually):
    w = world()
    bell = Bell()
    w.resolver.watches = [bell]
    w.begin(A)
    w.resolver.says = (A, B)
    bell.ring()
    eventually(lambda: w.members == [A, B])
    bell.worth = False
    asked = w.resolver.asked
    bell.ring()
    eventually(lambda: heard(bell))
    w.settle()
    assert w.resolver.asked == asked
    w.follower.stop()
    assert bell.closed == 1


def heard(bell):
    return not select.select([bell], [], [], 0)[0]


def test_a_watch_that_is_over_is_replaced(world, eventually):
    w = world()
    first, second = bells = [Bell(), Bell()]
    w.resolver.watches = list(bells)
    w.begin(A)
    first.worth = OSError("the folder is gone")
    w.resolver.says = (B,)
    first.ring()
    eventually(lambda: w.members == [B])
    assert first.closed == 1 and not second.closed
    w.resolver.says = (C,)
    second.ring()
    eventually(lambda: w.members == [C])


def test_no_watch_is_no_failure(world):
    w = world()

    def watch(address, options):
        raise OSError("no more inotify")

    w.resolver.watch = watch
    w.begin(A)
    assert w.members == [A] and w.endpoint.error is None


# -- look-ups that take time -----------------------------------------------------------------------


class Gate:
    """A look-up that waits in its worker until the test lets it go."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.inside = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def __call__(self):
        self.inside.release()
        assert self.go.acquire(timeout=20)
        return self.answers.pop(0)


def test_one_at_a_time_and_the_last_word_counts(world, eventually):
    w = world()
    gate, bell = Gate((A,), (B,)), Bell()
    w.resolver.blocks = True
    w.resolver.watches = [bell]
    w.begin(gate)
    assert gate.inside.acquire(timeout=20)
    bell.ring()  # it changed while we look
    eventually(lambda: heard(bell))
    w.settle()
    assert w.resolver.asked == 1
    gate.go.release()
    assert gate.inside.acquire(timeout=20)  # asked again
    gate.go.release()
    eventually(lambda: w.members == [B])
    assert w.resolver.asked == 2


def test_a_slow_answer_is_told_of_and_still_taken(world, eventually):
    w = world()
    gate = Gate((A,))
    w.resolver.blocks = True
    w.begin(gate)
    assert gate.inside.acquire(timeout=20)
    w.later(10)
    (name, reason, _, _), = w.take()[1]
    assert name == "ResolveFailed" and "within 10 s" in reason
    assert w.endpoint.state == "waiting" and isinstance(w.endpoint.error, ConnectTimeout)
    w.later(1000)  # no second one beside it
    assert not gate.inside.acquire(blocking=False)
    gate.go.release()
    eventually(lambda: w.members == [A])
    assert w.endpoint.error is None


def test_an_answer_after_the_end_is_thrown_away(world):
    w = world()
    gate = Gate((A,))
    w.resolver.blocks = True
    w.begin(gate)
    assert gate.inside.acquire(timeout=20)
    w.follower.stop()
    done = threading.Event()
    gate.go.release()
    w.loop.resolve("other", done.set, lambda *_: None)  # the same worker, or one beside it
    assert done.wait(20)
    w.settle()
    assert w.take() == ([], []) and w.members == []


def test_a_bad_address_is_refused_at_the_call(world):
    w = world().begin()
    with pytest.raises(AddressError, match="'scripted://bad', position 12: this name is bad"):
        Follower(w.loop, w.resolver, parse("scripted://bad"), w.options, check=w.check, join=w.join,
                 leave=w.leave, tell=w.tell)

