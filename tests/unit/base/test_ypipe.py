"""yqueue and ypipe against a model, and the promises that one thread can check."""

from collections import deque

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from mqcore.testing.native.base_bench import SIZES, BasePipe, BasePool

CHUNK, FIRST = SIZES["CHUNK"], SIZES["CHUNK_FIRST"]


@pytest.fixture
def pool():
    pool = BasePool()
    yield pool
    assert pool.live == 0


def test_nothing_is_visible_before_flush(pool):
    pipe = BasePipe(pool)
    pipe.write(b"one")
    assert pipe.read() is None
    pipe.flush()
    assert pipe.read() == b"one" and pipe.read() is None


def test_an_incomplete_message_is_not_published(pool):
    pipe = BasePipe(pool)
    pipe.write(b"whole")
    pipe.write(b"half", complete=False)
    pipe.flush()
    assert pipe.read() == b"whole" and pipe.read() is None
    pipe.write(b"end")
    pipe.flush()
    assert [pipe.read(), pipe.read(), pipe.read()] == [b"half", b"end", None]


def test_unwrite_stops_at_what_is_complete(pool):
    pipe = BasePipe(pool)
    pipe.write(b"whole")
    pipe.write(b"a" * 100, complete=False)
    pipe.write(b"b", complete=False)
    assert [pipe.unwrite(), pipe.unwrite(), pipe.unwrite()] == [b"b", b"a" * 100, None]
    pipe.flush()
    assert pipe.unwrite() is None and pipe.read() == b"whole"


def test_flush_says_who_sleeps(pool):
    pipe = BasePipe(pool)
    assert pipe.flush(), "nothing to publish: nobody to wake"
    pipe.write(b"1")
    assert not pipe.flush(), "the reader starts asleep"
    pipe.write(b"2")
    assert pipe.flush(), "it was told, and has not gone to sleep since"
    assert pipe.read() == b"1" and pipe.read() == b"2"
    pipe.write(b"3")
    assert pipe.flush(), "it has emptied the pipe but not looked and gone to sleep"
    assert pipe.check_read() and pipe.read() == b"3"
    assert not pipe.check_read()
    pipe.write(b"4")
    assert not pipe.flush()
    assert pipe.read() == b"4"


def test_a_flush_of_nothing_does_not_wake(pool):
    pipe = BasePipe(pool)
    pipe.write(b"half", complete=False)
    assert pipe.flush()
    assert pipe.unwrite() == b"half"


def test_peek_leaves_it_there(pool):
    pipe = BasePipe(pool)
    assert pipe.peek() is None
    pipe.write(b"p" * 99)
    pipe.flush()
    assert pipe.peek() == pipe.peek() == b"p" * 99 == pipe.read()


def test_an_idle_pipe_is_small(pool):
    pipe = BasePipe(pool)
    assert pipe.chunks() == [[FIRST], 0]
    for _ in range(FIRST - 1):
        pipe.write(b"")
    assert pipe.chunks() == [[FIRST], 0]
    pipe.write(b"")
    assert pipe.chunks() == [[FIRST, CHUNK], 0]


def test_emptied_chunks_become_the_spare(pool):
    pipe = BasePipe(pool)
    pipe.spin(rounds=FIRST + 3 * CHUNK, batch=1)
    caps, spare = pipe.chunks()
    assert caps == [CHUNK] and spare == CHUNK, "the small first chunk is gone, one spare is kept"
    for _ in range(5 * CHUNK):
        pipe.write(b"")
    pipe.flush()
    while pipe.read() is not None:
        pass
    caps, spare = pipe.chunks()
    assert len(caps) <= 2 and spare == CHUNK, "a burst is given back, all but one spare"


def test_closing_releases_what_is_inside(pool):
    pipe = BasePipe(pool)
    for i in range(1000):
        pipe.write(b"x" * 100)
        if i % 3 == 0:
            pipe.flush()
    for _ in range(300):
        pipe.read()
    pipe.write(b"y" * 100, complete=False)
    assert pool.live == 701
    del pipe
    assert pool.live == 0


class PipeMachine(RuleBasedStateMachine):
    """The pipe against three deques: published, complete, incomplete."""

    def __init__(self):
        super().__init__()
        self.pool = BasePool()
        self.pipe = BasePipe(self.pool)
        self.published, self.complete, self.incomplete = deque(), deque(), deque()
        self.asleep = True
        self.n = 0

    def body(self, large):
        self.n += 1
        return self.n.to_bytes(8, "big") * (12 if large else 1)

    @rule(large=st.booleans(), complete=st.booleans())
    def write(self, large, complete):
        body = self.body(large)
        self.pipe.write(body, complete)
        self.incomplete.append(body)
        if complete:
            self.complete += self.incomplete
            self.incomplete.clear()

    @rule(count=st.integers(1, 2 * CHUNK + FIRST), complete=st.booleans())
    def burst(self, count, complete):
        for i in range(count):
            self.write(i % 50 == 0, complete)

    @rule(count=st.integers(1, CHUNK + 2))
    def unwrite(self, count):
        for _ in range(count):
            assert self.pipe.unwrite() == (self.incomplete.pop() if self.incomplete else None)

    @rule()
    def flush(self):
        tells = bool(self.complete) and self.asleep
        assert self.pipe.flush() == (not tells)
        if self.complete:
            self.asleep = False
        self.published += self.complete
        self.complete.clear()

    @rule()
    def check_read(self):
        assert self.pipe.check_read() == bool(self.published)
        self.asleep = self.asleep or not self.published

    @precondition(lambda self: self.published)
    @rule(count=st.integers(1, 2 * CHUNK))
    def read(self, count):
        for _ in range(min(count, len(self.published))):
            assert self.pipe.read() == self.published.popleft()

    @rule()
    def read_all(self):
        while self.published:
            assert self.pipe.read() == self.published.popleft()
        assert self.pipe.read() is None
        self.asleep = True

    @rule()
    def peek(self):
        assert self.pipe.peek() == (self.published[0] if self.published else None)
        self.asleep = self.asleep or not self.published

    @invariant()
    def every_large_body_is_somewhere(self):
        held = (*self.published, *self.complete, *self.incomplete)
        assert self.pool.live == sum(len(body) > SIZES["MSG_INLINE_MAX"] for body in held)

    @invariant()
    def chunks_hold_what_is_there(self):
        caps, spare = self.pipe.chunks()
        assert spare in (0, CHUNK)
        held = len(self.published) + len(self.complete) + len(self.incomplete)
        assert held < sum(caps) <= held + 2 * CHUNK + FIRST

    def teardown(self):
        del self.pipe
        assert self.pool.live == 0


TestPipeMachine = PipeMachine.TestCase
TestPipeMachine.settings = settings(stateful_step_count=40)
