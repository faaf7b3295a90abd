"""Lanes and links: marks, who must be told what, conflation, and two real threads on one link."""

import pytest
from mqcore.testing.native.link_bench import TOLD_READER, TOLD_WRITER, UNLIMITED, LinkBench, stress


@pytest.fixture(autouse=True)
def freed(request):
    """Every link of a test is freed with all that is in it."""
    made = []
    request.node.links = made
    yield
    for link in made:
        assert link.close()[0] == 1, "one end is still there"
        assert link.close() == (0, 0)


@pytest.fixture
def make(request):
    def new(*args, **kwargs):
        request.node.links.append(LinkBench(*args, **kwargs))
        return request.node.links[-1]
    return new


def fill(link, body=b"x", end=0):
    n = 0
    while link.write(end, [body]):
        n += 1
    return n


# -- messages in, messages out -------------------------------------------------------------------

def test_messages_pass_in_both_directions(make):
    link = make()
    for end in (0, 1):
        for i in range(300):
            assert link.write(end, [b"%d" % i, b"y" * i])
        assert link.read(1 - end) is None, "unpublished messages were read"
        assert link.settle(end) == TOLD_READER
        assert [link.read(1 - end) for _ in range(300)] == [[b"%d" % i, b"y" * i]
                                                            for i in range(300)]
        assert link.read(1 - end) is None


def test_the_reader_is_told_only_if_it_found_nothing(make):
    link = make()
    link.write(0, [b"a"])
    assert link.settle(0) == TOLD_READER, "a reader begins asleep"
    link.write(0, [b"b"])
    assert link.settle(0) == 0
    assert link.read(1) == [b"a"] and link.read(1) == [b"b"]
    link.write(0, [b"c"])
    assert link.settle(0) == 0, "it has not found it empty yet"
    assert link.read(1) == [b"c"] and link.read(1) is None
    link.write(0, [b"d"])
    assert link.settle(0) == TOLD_READER
    assert link.settle(0) == 0


def test_what_is_left_inside_is_freed(make):
    link = make()
    for _ in range(300):
        link.write(0, [b"z" * 1000, b"z" * 1000])
    link.settle(0)
    link.write(1, [b"z" * 1000])
    assert link.read(1)


# -- marks in messages -------------------------------------------------------------------------

@pytest.mark.parametrize("mark", [1, 2, 3, 10, 127, 128, 257, 1000])
def test_a_mark_in_messages_is_exact(make, mark):
    link = make(mark)
    assert fill(link) == mark
    assert link.blocked(0)
    assert link.offered(0) == mark


def test_the_two_directions_have_marks_of_their_own(make):
    link = make(3)
    assert fill(link, end=0) == 3
    assert fill(link, end=1) == 3


def test_a_message_of_many_parts_is_one(make):
    link = make(2)
    assert link.write(0, [b"a"] * 8)
    assert link.write(0, [b"a"] * 8)
    assert not link.write(0, [b"a"])


def test_control_messages_pass_the_mark(make):
    link = make(1)
    assert fill(link) == 1
    assert link.write(0, [b"topic"], always=True)
    link.settle(0)
    assert link.read(1) == [b"x"] and link.read(1) == [b"topic"]


@pytest.mark.parametrize("mark", [1, 2, 3, 10, 200, 1000])
def test_room_comes_back_and_the_writer_is_told_once(make, mark):
    link = make(mark)
    for _ in range(3):
        assert fill(link) == mark
        link.settle(0)
        told = 0
        while link.read(1) is not None:
            told += link.settle(1) == TOLD_WRITER
        told += link.settle(1) == TOLD_WRITER
        assert told == 1, "a blocked writer is told once, others not at all"
        assert not link.blocked(0)


def test_a_writer_that_is_not_blocked_is_never_told(make):
    link = make(1000)
    for i in range(999):
        assert link.write(0, [b"%d" % i])
    link.settle(0)
    while link.read(1) is not None:
        assert link.settle(1) == 0
    assert link.settle(1) == 0


def test_the_reader_shows_in_time_for_half_the_mark(make):
    """A blocked writer goes on before the lane is empty, or nothing would overlap."""
    for mark in (4, 10, 100, 1000):
        link = make(mark)
        assert fill(link) == mark
        link.settle(0)
        read = 0
        while not link.settle(1):
            assert link.read(1)
            read += 1
        assert read <= min(mark // 2 + 1, 128) == link.step(1)
        assert fill(link) == read


def test_the_reader_shows_a_quarter_of_the_mark_in_bytes(make):
    link = make(1000, 8000)
    assert fill(link, b"x" * 1000) == 8
    link.settle(0)
    assert link.read(1) and not link.settle(1)
    assert link.read(1) and link.settle(1) == TOLD_WRITER
    assert fill(link, b"x" * 1000) == 2


def test_looking_for_room_blocks_as_writing_does(make):
    link = make(1)
    assert link.has_room(0)
    link.write(0, [b"x"])
    link.settle(0)
    assert not link.has_room(0)
    assert link.blocked(0)
    assert link.read(1) == [b"x"] and link.read(1) is None
    assert link.settle(1) == TOLD_WRITER
    assert link.has_room(0) and not link.blocked(0)


# -- marks in bytes ------------------------------------------------------------------------------

@pytest.mark.parametrize(("mark", "size", "fits"), [
    (100, 10, 10), (100, 11, 9), (100, 50, 2), (100, 51, 1), (100, 100, 1), (1, 1, 1),
    (100_000, 100, 1000)])
def test_a_mark_in_bytes_is_exact(make, mark, size, fits):
    link = make(UNLIMITED, mark)
    assert fill(link, b"x" * size) == fits


def test_all_parts_count(make):
    link = make(UNLIMITED, 100)
    assert link.write(0, [b"x" * 30, b"x" * 30])
    assert not link.write(0, [b"x" * 20, b"x" * 21])
    assert link.write(0, [b"x" * 20, b"x" * 20])


@pytest.mark.parametrize("size", [101, 5000, 1_000_000])
def test_one_message_always_fits_however_large(make, size):
    link = make(UNLIMITED, 100)
    for _ in range(3):
        assert link.write(0, [b"x" * size])
        assert not link.write(0, [b"x"])
        link.settle(0)
        assert len(link.read(1)[0]) == size
        assert link.read(1) is None
        assert link.settle(1) == TOLD_WRITER


def test_the_first_mark_that_is_reached_counts(make):
    assert fill(make(5, 100), b"x" * 10) == 5
    assert fill(make(50, 100), b"x" * 10) == 10


def test_a_small_one_may_pass_where_a_large_one_does_not(make):
    link = make(UNLIMITED, 100)
    assert link.write(0, [b"x" * 60])
    assert not link.write(0, [b"x" * 60])
    assert link.write(0, [b"x" * 40])


# -- conflation ----------------------------------------------------------------------------------

def test_a_conflating_lane_keeps_the_newest(make):
    link = make(conflate=True)
    for i in range(100):
        assert link.write(0, [b"%d" % i * 40])
    assert link.settle(0) == TOLD_READER
    assert link.read(1) == [b"99" * 40]
    assert link.read(1) is None
    assert link.conflated(0) == 99 and link.offered(0) == 100


def test_every_message_of_a_conflating_lane_is_told(make):
    link = make(conflate=True)
    for i in range(5):
        link.write(0, [b"%d" % i])
        assert link.settle(0) == TOLD_READER
        assert link.read(1) == [b"%d" % i]
    assert link.conflated(0) == 0


def test_a_conflating_lane_has_no_marks(make):
    link = make(1, 1, conflate=True)
    for _ in range(10):
        assert link.write(0, [b"x" * 1000])
    assert not link.blocked(0)


# -- two real threads ----------------------------------------------------------------------------

def check(seen, messages, mark):
    assert not seen["lost_room"] and not seen["lost_data"], f"a wake-up was lost: {seen}"
    assert seen["received"] == seen["offered"] == seen["last"] == messages, seen
    assert seen["wrong"] == 0, seen
    # 1: the reader counts a message a moment after it has made the room
    assert mark == UNLIMITED or seen["over"] <= 1, f"the mark was passed: {seen}"
    assert seen["links"] == seen["bodies"] == 0, seen


@pytest.mark.parametrize("burst", [1, 8, 200])
@pytest.mark.parametrize("mark", [1, 2, 3, 10, 300])
def test_blocked_and_shown(mark, burst, seed):
    """Small marks: both sleep all the time, and are woken every time."""
    messages = 20_000
    seen = stress(messages, mark, burst=burst, seed=seed)
    check(seen, messages, mark)
    if burst > mark:          # the reader has seen nothing yet when the lane is full
        assert seen["full"] > 0, f"the writer never slept: {seen}"


@pytest.mark.parametrize("size", [8, 100, 3000])
def test_blocked_and_shown_in_bytes(size, seed):
    messages = 20_000
    seen = stress(messages, UNLIMITED, size, burst=8, seed=seed)
    check(seen, messages, UNLIMITED)
    assert seen["full"] > 0, seen


def test_conflation_between_threads(seed):
    """The reader sees rising numbers and always the last one; what it does not see is counted."""
    messages = 50_000
    seen = stress(messages, 1, conflate=True, burst=4, seed=seed)
    assert not seen["lost_room"] and not seen["lost_data"], seen
    assert seen["last"] == seen["offered"] == messages and seen["wrong"] == 0, seen
    assert seen["received"] + seen["conflated"] == messages, seen
    assert seen["full"] == 0, seen
    assert seen["links"] == seen["bodies"] == 0, seen
