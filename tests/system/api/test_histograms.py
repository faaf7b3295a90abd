"""Context(histograms=True): what is measured, by the clock of the test; bounds; what is not."""

import threading
import time

import pytest

import mqcore as mq
from mqcore.api.histograms import EXPORTED, Histogram, bucket_end
from mqcore.testing import until

LONG = 60
LAST = 311


@pytest.fixture
def measured():
    """measured(pattern, ...) makes a socket that measures, closed at the end."""
    with mq.Context(histograms=True) as context:
        made = []

        def make(pattern, **options):
            made.append(context.socket(pattern, **options))
            return made[-1]

        yield make
        for one in made:
            one.close(0)


def one(found):
    """(seconds, the upper bound of its bucket) of a histogram that measured one message."""
    assert found.count == 1 and found.counts == (1,)
    return found.sum, found.bounds[0]


def spend(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


# -- what the figures mean -------------------------------------------------------------------------

@pytest.mark.parametrize("wait", [0, 1e-6, 1e-5, 1e-4, 1e-3, 5e-3, 0.02])
def test_received_is_the_time_between_send_and_recv_inproc(measured, wait):
    pull = measured("pull", bind="inproc://h")
    push = measured("push", connect="inproc://h")
    before = time.monotonic_ns()
    push.send(b"x")
    sent = time.monotonic_ns()
    spend(wait)
    asked = time.monotonic_ns()
    assert pull.recv(timeout=LONG) == b"x"
    after = time.monotonic_ns()
    took, bound = one(pull.histograms()["received"])
    assert (asked - sent) / 1e9 <= took <= (after - before) / 1e9
    assert took < bound <= max(took * 1.125 + 1e-9, 16e-9)    # C and Python agree on the buckets
    assert push.histograms() == {kind: Histogram() for kind in ("sent", "received", "round_trip")}


@pytest.mark.parametrize("scheme", ["tcp", "ipc"])
def test_each_message_is_measured_on_both_sides_of_a_connection(measured, scheme, tmp_path):
    url = f"ipc://{tmp_path}/h" if scheme == "ipc" else "tcp://127.0.0.1:0"
    pull = measured("pull", bind=url)
    push = measured("push", connect=pull.endpoints[0])
    push.wait_peers(1, LONG)
    begun = time.monotonic()
    for i in range(50):
        push.send_parts([b"topic", b"%d" % i])
        assert pull.recv_parts(timeout=LONG) == [b"topic", b"%d" % i]
    ended = time.monotonic() - begun
    sent, received = push.histograms()["sent"], pull.histograms()["received"]
    assert sent.count == received.count == 50
    assert 0 < sent.sum < ended and 0 < received.sum < ended
    assert pull.histograms()["sent"].count == push.histograms()["received"].count == 0


def test_round_trips_of_requests(measured):
    rep = measured("rep", bind="tcp://127.0.0.1:0")
    req = measured("req", connect=rep.endpoints[0])

    def serve():
        for _ in range(20):
            rep.recv_msg(timeout=LONG).reply(b"answer")

    server = threading.Thread(target=serve)
    server.start()
    took = 0.0
    for _ in range(20):
        begun = time.monotonic()
        assert req.request(b"x", timeout=LONG) == b"answer"
        took += time.monotonic() - begun
    server.join(LONG)
    found = req.histograms()["round_trip"]
    assert found.count == 20 and 0 < found.sum <= took
    assert found.percentile(0) <= found.percentile(50) <= found.percentile(100) <= took * 1.125
    assert rep.histograms()["round_trip"].count == 0


def test_memory_is_constant_when_a_queue_is_long(measured):
    pull = measured("pull", bind="inproc://h")
    push = measured("push", connect="inproc://h")
    for i in range(2000):
        push.send(b"%d" % i)
    assert [pull.recv(timeout=LONG) for _ in range(2000)] == [b"%d" % i for i in range(2000)]
    assert pull.histograms()["received"].count == 4 + 4 * 60      # the others had no stamp
    push.send(b"again")
    pull.recv(timeout=LONG)
    assert pull.histograms()["received"].count == 4 + 4 * 60 + 1


@pytest.mark.parametrize("burst, count", [(1, 1), (4, 4), (7, 4), (8, 8), (35, 32), (36, 36)])
def test_one_in_four_of_a_burst_stands_for_four(measured, burst, count):
    pull = measured("pull", bind="inproc://h")
    push = measured("push", connect="inproc://h")
    for times in range(1, 4):
        for _ in range(burst):
            push.send(b"x")
        spend(0.002)
        for _ in range(burst):
            pull.recv(timeout=LONG)
        found = pull.histograms()["received"]
        assert found.count == times * count
        assert found.sum >= times * count * 0.002


def test_a_device_and_a_departed_peer(measured):
    front = measured("pull", bind="inproc://f")
    back = measured("push", bind="inproc://b")
    sink = measured("pull", connect="inproc://b")
    push = measured("push", connect="inproc://f")
    with mq.device(front, back):
        push.send(b"x")
        assert sink.recv(timeout=LONG) == b"x"
        push.send(b"y")
        push.close()
        assert sink.recv(timeout=LONG) == b"y"
    assert sink.histograms()["received"].count == 2


def test_a_conflated_queue_is_not_measured(measured):
    pull = measured("pull", bind="inproc://h", conflate=True)
    push = measured("push", connect="inproc://h", conflate=True)
    push.send(b"x")
    assert pull.recv(timeout=LONG) == b"x"
    assert pull.histograms()["received"].count == 0


def test_threads_that_send_receive_and_look(measured):
    pull = measured("pull", bind="tcp://127.0.0.1:0")
    pushes = [measured("push", connect=pull.endpoints[0]) for _ in range(3)]

    def send(push):
        for _ in range(3000):
            push.send(b"x" * 100)

    threads = [threading.Thread(target=send, args=(push,)) for push in pushes]
    for thread in threads:
        thread.start()
    for i in range(9000):
        pull.recv(timeout=LONG)
        if i % 500 == 0:
            found = pull.histograms()["received"]
            assert sum(found.counts) == found.count <= i + 1
    for thread in threads:
        thread.join(LONG)
    until(lambda: pushes[0].stats().sent == 3000, LONG)
    assert 0 < pull.histograms()["received"].count <= 9000
    assert all(0 < push.histograms()["sent"].count <= 3000 for push in pushes)


def test_nothing_is_measured_unless_asked(ctx):
    pull = ctx.socket("pull", bind="inproc://h")
    with pytest.raises(mq.UsageError, match="measures no latencies.*histograms=True"):
        pull.histograms()
    with pytest.raises(mq.UsageError, match="histograms must be True or False, not 1"):
        mq.Context(histograms=1)


# -- the arithmetic --------------------------------------------------------------------------------

def test_buckets_are_narrow_and_reach_far():
    ends = [bucket_end(i) for i in range(LAST + 1)]
    assert ends[:16] == list(range(1, 17)) and ends[LAST] == 1 << 41
    for before, after in zip(ends[15:], ends[16:], strict=False):
        assert before < after <= before * 1.125
    assert set(EXPORTED) <= set(ends)


def test_percentiles():
    found = Histogram.of(1000, {0: 1, 5: 8, LAST: 1})
    assert found.bounds == (1e-9, 6e-9, (1 << 41) / 1e9) and found.mean == 100e-9
    assert [found.percentile(p) for p in (0, 10, 11, 90, 91, 100)] == [
        1e-9, 1e-9, 6e-9, 6e-9, (1 << 41) / 1e9, (1 << 41) / 1e9]
    assert found.cumulative([0.5e-9, 1e-9, 1e-6, 1e9]) == [0, 1, 9, 10]
    assert (Histogram().percentile(50), Histogram().mean, Histogram().cumulative([1.0])) == (
        0.0, 0.0, [0])
    for wrong in (-1, 101):
        with pytest.raises(mq.UsageError, match="from 0 to 100"):
            found.percentile(wrong)
