"""Setting the machine's clock delays no job of a queue server and lets none expire: while it runs,
and after it was stopped or killed."""

import shutil

import pytest

from mqcore.journal import QueueLimits, QueueOptions
from mqcore.journal.errors import JournalError
from mqcore.journal.queues import server_clock
from mqcore.journal.queues.replay import Replay
from mqcore.journal.queues.store import Store
from mqcore.journal.store import clock

BEGAN = 1.5e9
HOUR = 3600.0
YEARS = 1e9


class Machine:
    """Its clocks, and one server after the other."""

    def __init__(self, folder):
        self.folder = folder
        self.wall, self.booted, self.boot = BEGAN, 1000.0, "first"
        self.store = None
        self.copies = 0

    def start(self):
        self.store = Store(str(self.folder), "never", QueueOptions(), QueueLimits(),
                           segment_bytes=1 << 16)

    def put(self, body, **times):
        self.store.book.put("work", [body], self.store.clock.now(), **times)
        self.store.settle(always=False)

    def stop(self):
        self.store.close()

    def kill(self):
        self.copies += 1
        copy = self.folder.with_name(f"copy{self.copies}")
        shutil.copytree(self.folder, copy, ignore=shutil.ignore_patterns("*lock*"))
        self.store.close()
        self.folder = copy

    def passes(self, seconds):
        self.wall += seconds
        self.booted += seconds

    def reboot(self, wall=None):
        self.boot, self.booted = self.boot + "+", 10.0
        if wall is not None:
            self.wall = wall

    @property
    def now(self):
        return self.store.clock.now()

    def jobs(self):
        """(not due yet, ready)"""
        self.store.book.tick(self.now)
        queue = self.store.book.queue("work")
        return queue.jobs - queue.ready, queue.ready


@pytest.fixture
def machine(tmp_path, monkeypatch):
    machine = Machine(tmp_path / "j")
    monkeypatch.setattr(clock, "wall", lambda: machine.wall)
    monkeypatch.setattr(clock, "booted", lambda: machine.booted)
    monkeypatch.setattr(server_clock, "boot", lambda: machine.boot)
    yield machine
    machine.store.close()


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("jump", [YEARS, -YEARS, 90.0, -90.0])
@pytest.mark.parametrize("when", ["running", "stopped"])
def test_a_clock_that_is_set_changes_no_delay_and_no_expiry(machine, end, jump, when):
    machine.start()
    machine.put(b"delayed", delay=60.0)
    machine.put(b"expiring", ttl=120.0)
    if when == "running":
        machine.wall += jump
    machine.passes(20.0)
    getattr(machine, end)()
    if when == "stopped":
        machine.wall += jump
    machine.passes(20.0)
    machine.start()
    assert machine.now == BEGAN + 40.0
    assert machine.jobs() == (1, 1)
    machine.passes(30.0)
    assert machine.jobs() == (0, 2)
    machine.passes(60.0)
    assert machine.jobs() == (0, 1)


def test_killed_long_after_its_clock_was_put_right(machine):
    """It starts before the clock of the machine is set, and nothing is stored since."""
    machine.start()
    machine.put(b"old", ttl=HOUR)
    machine.stop()
    machine.wall = 0.0
    machine.start()
    machine.wall = BEGAN + 60.0
    machine.booted += 60.0
    machine.put(b"new", ttl=HOUR)
    machine.kill()
    machine.start()
    assert machine.jobs() == (0, 2)
    assert machine.now == BEGAN + 60.0


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("jump", [YEARS, -YEARS, 0.0])
def test_another_start_of_the_machine_goes_by_its_clock(machine, end, jump):
    """Which was set while the server ran: the log says so."""
    machine.start()
    machine.put(b"expiring", ttl=HOUR)
    machine.wall += jump
    machine.store.tidy()
    machine.passes(60.0)
    getattr(machine, end)()
    machine.passes(600.0)
    machine.reboot()
    machine.start()
    late = 600.0 + 60.0 * (end == "kill") if jump < 0 else 0.0
    assert machine.now == BEGAN + 660.0 - late
    assert machine.jobs() == (0, 1)


def test_a_machine_that_starts_without_a_clock(machine):
    """The clock comes later, and then a power cut: what the server was told stays true."""
    machine.start()
    machine.put(b"expiring", ttl=HOUR)
    machine.stop()
    for _ in range(3):
        machine.reboot(0.0)
        machine.start()
        machine.wall = BEGAN + 300.0
        machine.booted += 1.0
        machine.store.tidy()
        machine.kill()
        machine.passes(60.0)
    machine.reboot(BEGAN + 500.0)
    machine.start()
    assert BEGAN < machine.now <= BEGAN + 500.0
    assert machine.jobs() == (0, 1)


def test_time_stands_still_at_most_since_the_last_hour(machine):
    machine.start()
    machine.put(b"expiring", ttl=100 * HOUR)
    for _ in range(3 * 60):
        machine.passes(60.0)
        machine.store.tidy()
    machine.passes(1800.0)
    machine.kill()
    machine.reboot(0.0)
    machine.start()
    assert machine.now == BEGAN + 3 * HOUR


def test_a_clock_that_nothing_hangs_on_is_the_machines(machine):
    machine.start()
    machine.put(b"job")
    machine.wall += YEARS
    machine.stop()
    machine.start()
    assert machine.now == machine.wall


def test_a_clock_that_drifts_is_not_written_all_the_time(machine):
    machine.start()
    before = machine.store.writer.next
    for _ in range(1000):
        machine.wall += 0.001
        machine.store.tidy()
    assert machine.store.writer.next == before


def test_a_record_without_a_time_is_none_of_a_queue_server(machine):
    machine.start()
    with pytest.raises(JournalError, match="none of a queue server"):
        Replay(machine.store.book).record([8, "now", 0.0, 0.0, ""], 0)


def test_the_start_of_a_machine_has_a_name():
    assert server_clock.boot() == server_clock.boot() != ""
