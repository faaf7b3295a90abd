"""Look-ups: names that nobody answers stop neither one another nor those that are known."""

import threading
from queue import Queue

import pytest

from mqcore.control import look_ups
from mqcore.control.loop import ControlLoop
from mqcore.spi import hosts
from mqcore.spi.inet import parse
from mqcore.testing import until

LIMIT = 60


@pytest.fixture
def loop():
    made = ControlLoop()
    made.start()
    yield made
    made.stop()
    until(lambda: not any(thread.name == "mqcore-resolve" for thread in threading.enumerate()))


@pytest.fixture
def stuck(loop):
    """stuck(count): so many look-ups that wait until the test has ended."""
    go = threading.Event()

    def start(count, at=0):
        begun = threading.Semaphore(0)

        def wait():
            begun.release()
            go.wait(LIMIT)
        for number in range(count):
            loop.resolve(("stuck", at + number), wait, lambda *_: None)
        for _ in range(min(count, look_ups.MOST)):
            assert begun.acquire(timeout=LIMIT)
    yield start
    go.set()


def ask(loop, name, fn, wanted=lambda: True):
    answers = Queue()
    loop.resolve(name, fn, lambda *got: answers.put(got), wanted)
    return answers


def test_one_look_up_for_all_who_ask_for_a_name(loop):
    gate, calls = threading.Event(), []
    answers = [ask(loop, "name", lambda: (calls.append(1), gate.wait(LIMIT))) for _ in range(20)]
    until(lambda: calls)
    loop.call_wait(int)
    gate.set()
    assert all(one.get(timeout=LIMIT)[1] is None for one in answers)
    assert calls == [1]
    ask(loop, "name", lambda: calls.append(2)).get(timeout=LIMIT)     # a later one asks anew
    assert calls == [1, 2]


def test_a_failure_reaches_all_who_asked(loop):
    gate = threading.Event()
    answers = [ask(loop, "name", lambda: gate.wait(LIMIT) and 1 / 0) for _ in range(3)]
    loop.call_wait(int)
    gate.set()
    assert [type(one.get(timeout=LIMIT)[1]) for one in answers] == [ZeroDivisionError] * 3


def test_a_name_that_was_quick_does_not_queue_behind_stuck_ones(loop, stuck):
    assert ask(loop, "quick", lambda: "address").get(timeout=LIMIT) == ("address", None)
    stuck(3 * look_ups.MOST)
    assert ask(loop, "quick", lambda: "address").get(timeout=LIMIT) == ("address", None)
    assert ask(loop, "unknown", lambda: "address").empty()


def test_a_name_that_failed_is_no_longer_quick(loop):
    ask(loop, "name", lambda: "address").get(timeout=LIMIT)
    assert loop.call_wait(lambda: "name" in loop._look_ups._quick)
    ask(loop, "name", lambda: 1 / 0).get(timeout=LIMIT)
    assert not loop.call_wait(lambda: "name" in loop._look_ups._quick)


def test_quick_names_are_few(loop):
    for number in range(look_ups.REMEMBERED + 5):
        loop._look_ups._quick[number] = None
    ask(loop, "name", lambda: 1).get(timeout=LIMIT)
    names = loop.call_wait(lambda: list(loop._look_ups._quick))
    assert len(names) == look_ups.REMEMBERED and names[-1] == "name" and 0 not in names


def test_what_nobody_waits_for_is_left_out(loop, monkeypatch):
    """Attempts that are over leave no work to those that are not."""
    for workers in loop._look_ups._pools:
        workers._free.clear()
        workers._free.append(0)
    gate, done = threading.Event(), []
    first = ask(loop, "first", lambda: gate.wait(LIMIT))
    wanted = {"gone": True, "back": True}
    gone = ask(loop, "gone", lambda: done.append("gone"), lambda: wanted["gone"])
    ask(loop, "stays", lambda: done.append("stays"))
    loop.call_wait(int)
    wanted["gone"] = False
    gate.set()
    first.get(timeout=LIMIT)
    assert isinstance(gone.get(timeout=LIMIT)[1], look_ups.Unwanted)
    until(lambda: done == ["stays"])


def test_who_wants_it_again_gets_it(loop):
    """The worker found it unwanted; by the time the control thread hears that, it is wanted."""
    says = iter([False, True, True])
    answers = ask(loop, "name", lambda: "address", lambda: next(says, True))
    assert answers.get(timeout=LIMIT) == ("address", None)


# -- this machine's own table ----------------------------------------------------------------------


@pytest.fixture
def table(tmp_path, monkeypatch):
    """table(hosts, sources): the two files have this text."""
    monkeypatch.setattr(hosts, "HOSTS", str(tmp_path / "hosts"))
    monkeypatch.setattr(hosts, "SOURCES", str(tmp_path / "nsswitch.conf"))

    def write(names, sources="hosts: files dns\n"):
        (tmp_path / "hosts").write_text(names)
        (tmp_path / "nsswitch.conf").write_text(sources)
    return write


def test_names_of_the_table_wait_for_nobody(table):
    table("127.0.0.1 localhost # the usual\n10.0.0.7\tDB.example db  # two\n#1.1.1.1 off\n")
    assert all(map(hosts.known, ("localhost", "LocalHost", "db.example", "DB")))
    assert not any(map(hosts.known, ("off", "10.0.0.7", "usual", "other")))
    assert not parse("localhost:1", "connect")[1].may_block
    assert not parse("[::1]:1", "connect")[1].may_block
    assert parse("other.example:1", "connect")[1].may_block


def test_lines_that_the_c_library_passes_over_are_no_names(table):
    """A look-up of theirs asks a name server, so the control thread must not make it."""
    table("no.address typo\n10.0.0.300 far\n127.0.0.1 b\u00fccher good\n"
          "fe80::1%lo zone\n::1 six\n")
    assert all(map(hosts.known, ("good", "zone", "six")))
    assert not any(map(hosts.known, ("typo", "far", "b\u00fccher")))


def test_a_table_that_changes_is_read_again(table):
    table("127.0.0.1 one\n")
    assert hosts.known("one") and not hosts.known("two")
    table("127.0.0.1 one two\n")
    assert hosts.known("two")


@pytest.mark.parametrize("sources", ["hosts: dns files\n", "hosts: mymachines files\n", "", "#\n",
                                     "passwd: files\n"])
def test_where_others_are_asked_first_it_may_block(table, sources):
    table("127.0.0.1 localhost\n", sources)
    assert not hosts.known("localhost")


def test_no_table(tmp_path, monkeypatch):
    monkeypatch.setattr(hosts, "HOSTS", str(tmp_path / "none"))
    assert not hosts.known("localhost")
