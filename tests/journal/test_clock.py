"""Clocks that jump: rotation and retention by age."""

import struct
import time

import pytest
from journal_case import segment_files

from mqcore import journal
from mqcore.journal.store import clock

HOUR, DAY = 3600.0, 86400.0


class Times:
    """Both clocks, as a test sets them."""

    def __init__(self, monkeypatch):
        self.wall, self.booted = 1e9, 500.0
        monkeypatch.setattr(clock, "wall", lambda: self.wall)
        monkeypatch.setattr(clock, "booted", lambda: self.booted)

    def go(self, seconds):
        self.wall += seconds
        self.booted += seconds


@pytest.fixture
def times(monkeypatch):
    return Times(monkeypatch)


@pytest.mark.parametrize("step", [DAY, -DAY, 1e9])
def test_a_jump_that_is_taken_back_has_no_effect(times, step, caplog):
    steady = clock.SteadyClock()
    times.go(10)
    times.wall += step
    assert steady.now() == pytest.approx(1e9 + 10)
    times.go(1800)
    assert steady.now() == pytest.approx(1e9 + 1810)
    times.wall -= step
    assert steady.now() == pytest.approx(1e9 + 1810)
    times.go(3 * HOUR)
    assert steady.now() == pytest.approx(times.wall)
    assert len(caplog.records) == 1 and f"was set by {step:.0f} s" in caplog.text


@pytest.mark.parametrize("step", [DAY, -DAY])
def test_a_jump_that_stays_is_believed_after_an_hour(times, step):
    steady = clock.SteadyClock()
    times.wall += step
    assert steady.now() == pytest.approx(1e9)
    times.go(HOUR - 1)
    assert steady.now() == pytest.approx(1e9 + HOUR - 1)
    times.go(1)
    assert steady.now() == pytest.approx(times.wall)


def test_small_steps_and_sleep_are_believed_at_once(times):
    steady = clock.SteadyClock()
    for seconds in (1.5, -30.0, 3000.0, -3000.0):
        times.wall += seconds
        assert steady.now() == pytest.approx(times.wall)
    times.go(30 * DAY)          # a laptop's lid: both clocks go on
    assert steady.now() == pytest.approx(times.wall)


def test_a_second_jump_begins_its_own_hour(times):
    steady = clock.SteadyClock()
    times.wall += DAY
    steady.now()
    times.go(HOUR - 1)
    times.wall += DAY
    assert steady.now() == pytest.approx(1e9 + HOUR - 1)
    times.go(HOUR)
    assert steady.now() == pytest.approx(times.wall)


def test_a_clock_that_is_ahead_for_a_moment_removes_nothing(tmp_path, monkeypatch):
    real = clock.wall
    with journal.open(tmp_path, "a", retain_age=HOUR) as writer:
        for i in range(3):
            writer.append(b"%d" % i)
            writer.rotate()
        monkeypatch.setattr(clock, "wall", lambda: real() + DAY)
        assert writer.retain() == [] and len(segment_files(tmp_path)) == 4


def test_a_segment_that_was_begun_in_the_future_grows_old(tmp_path):
    """The clock was a day ahead then: the segment ends when its age has passed since."""
    with journal.open(tmp_path, "a") as writer:
        writer.append(b"0")
    [path] = segment_files(tmp_path)
    raw = bytearray(path.read_bytes())
    raw[24:32] = struct.pack("<q", int((time.time() + DAY) * 1e6))
    raw[12:16] = struct.pack("<I", journal.checksum(raw[16:512]))
    # the blocks do not depend on it
    path.write_bytes(raw)
    with journal.open(tmp_path, "a", segment_age=0.05, fsync_interval=0.001):
        end = time.monotonic() + 20
        while len(segment_files(tmp_path)) == 1:
            assert time.monotonic() < end
            time.sleep(0.01)
