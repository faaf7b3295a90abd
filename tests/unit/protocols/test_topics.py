"""The topic index against a dict: what it finds, in which order, and what it costs."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from mqcore.protocols.routing.topic_index import TopicIndex

# few letters and nested prefixes make splits and joins; the rest keeps it honest
TOPICS = st.one_of(st.text("ab", max_size=6).map(str.encode), st.binary(max_size=8),
                   st.integers(0, 40).map(lambda n: b"a" * n))


class TopicsMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.index, self.model, self.n = TopicIndex(), {}, 0

    @rule(topic=TOPICS)
    def put(self, topic):
        self.n += 1
        assert self.index.put(topic, self.n) == self.model.get(topic, 0)
        self.model[topic] = self.n

    @rule(topic=TOPICS)
    def remove(self, topic):
        assert self.index.remove(topic) == (self.model.pop(topic, None) is not None)

    @rule(data=st.data())
    def remove_one_that_is_there(self, data):
        if self.model:
            topic = data.draw(st.sampled_from(sorted(self.model)))
            assert self.index.remove(topic)
            del self.model[topic]

    @rule()
    def pop(self):
        got = self.index.pop()
        if self.model:
            assert self.model.pop(got[0]) == got[1]
        else:
            assert got is None

    @rule(message=TOPICS)
    def match(self, message):
        ends = range(len(message) + 1)
        assert self.index.match(message) == [
            self.model[message[:k]] for k in ends if message[:k] in self.model]

    @rule(topic=TOPICS)
    def find(self, topic):
        assert self.index.find(topic) == self.model.get(topic, 0)

    @rule(prefix=TOPICS)
    def under(self, prefix):
        got = self.index.under(prefix)
        assert len(got) == len(dict(got))
        assert dict(got) == {k: v for k, v in self.model.items() if k.startswith(prefix)}

    @rule()
    def clear(self):
        self.index.clear()
        self.model.clear()

    @invariant()
    def count(self):
        assert len(self.index) == len(self.model)
        if not self.model:
            assert self.index.memory <= 16 + 256 * 9     # the root alone


TestTopics = TopicsMachine.TestCase
TestTopics.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)


@given(st.sets(TOPICS), st.randoms())
@settings(max_examples=60, deadline=None)
def test_nothing_is_left_behind(topics, random):
    index = TopicIndex()
    for topic in topics:
        index.put(topic, 1)
    order = sorted(topics)
    random.shuffle(order)
    for topic in order:
        index.remove(topic)
    assert index.memory <= 16 + 256 * 9


def test_a_node_that_is_no_fork_any_more_is_joined():
    one, two = TopicIndex(), TopicIndex()
    one.put(b"abc1", 1)
    two.put(b"abc1", 1)
    for others in ([b"abc2"], [b"abc"], [b"ab", b"abc2", b"abc"], [b"abc", b"abc2", b"ab"]):
        for topic in others:
            two.put(topic, 1)
        for topic in others:
            assert two.remove(topic)
        assert two.memory == one.memory
        assert two.match(b"abc1") == [1]


def test_all_256_bytes_lead_somewhere():
    index = TopicIndex()
    for i in range(256):
        index.put(bytes([i]), i + 1)
        index.put(bytes([7, i]), i + 1)
    assert [index.match(bytes([i])) for i in range(256)] == [[i + 1] for i in range(256)]
    assert index.match(b"\7\7more") == [8, 8]
    assert len(index.under(b"\7")) == 257


def test_very_deep():
    """A peer may nest its topics as deep as it likes: no stack grows with that."""
    index = TopicIndex()
    n = 5_000
    for k in range(n):
        index.put(b"x" * k, k + 1)
    assert index.match(b"x" * n) == list(range(1, n + 1))
    assert len(index.under(b"x" * 10)) == n - 10
    for _ in range(n // 2):
        assert index.pop()
    index.clear()
    assert len(index) == 0


def test_compact():
    import random
    rng = random.Random(7)
    topics = [rng.randbytes(25) for _ in range(100_000)]
    index = TopicIndex()
    index.time_put(topics)
    assert len(index) == 100_000
    assert index.memory / len(index) < 80
