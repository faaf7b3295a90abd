"""The journal device: what a socket receives is stored; who asked is told when it is durable."""

import pytest
from journal_case import contents
from mqcore.testing.native.journal_disk import Disk

import mqcore as mq
from mqcore import journal

LIMIT = 20.0


def url_of(socket):
    return socket.endpoints[0].url


@pytest.fixture
def writer(tmp_path):
    with journal.open(tmp_path / "j", "a") as made:
        yield made


def until(follow, n):
    """The first n messages that a reader follows."""
    found = []
    for records in follow:
        found += records.to_list()
        if len(found) >= n:
            return found


def test_pull_into_a_journal(ctx, tmp_path, writer):
    messages = [b"%06d" % i + bytes(i % 90) for i in range(20_000)]
    with mq.Pull(context=ctx, bind="tcp://127.0.0.1:0") as front, \
            mq.Push(context=ctx, connect=url_of(front)) as push:
        with mq.device(front, writer) as device:
            assert not device.acknowledges
            with pytest.raises(mq.UsageError):
                front.recv()
            push.send_many(messages)
            push.send_parts([b"a", b"", b"b"])
            with journal.open(tmp_path / "j") as reader:
                assert until(reader.follow(0, timeout=LIMIT), 20_001) == [*messages, b"ab"]
        stats = device.stats()
        assert (stats.messages, stats.bytes) == (20_001, sum(map(len, messages)) + 2)
        assert (stats.refused, stats.acknowledged, stats.unwritten) == (0, 0, 0)
    assert writer.durable == writer.next == 20_001 and not writer.closed


@pytest.mark.parametrize("front, back, how", [
    (mq.Sub, mq.Pub, {"topics": [b"t"]}), (mq.XSub, mq.XPub, {}), (mq.Dish, mq.Radio,
                                                                   {"groups": ["t"]}),
    (mq.Bus, mq.Bus, {}), (mq.Pair, mq.Pair, {}), (mq.Pair1, mq.Pair1, {}),
    (mq.Dealer, mq.Dealer, {}), (mq.Router, mq.Dealer, {})],
    ids=lambda value: value.__name__.lower() if isinstance(value, type) else "")
def test_other_receivers(ctx, tmp_path, front, back, how):
    """With the group or the first part as topic, where there is one. Nobody is told anything."""
    topic = "t" if front in (mq.Sub, mq.XSub, mq.Dish) else None
    with journal.open(tmp_path, "a", topic_from="first-part" if topic else None,
                      partitions=1) as writers, \
            front(context=ctx, bind="tcp://127.0.0.1:0", **how) as receiver, \
            back(context=ctx, connect=url_of(receiver)) as sender:
        if front is mq.XSub:
            receiver.send(b"\x01t")
        with mq.device(receiver, writers) as device:
            if topic:
                sender.wait_subscribers(b"t" if front is not mq.Dish else "t", timeout=LIMIT)
            else:
                sender.wait_peers(timeout=LIMIT)
            for parts in ([b"one"], [b"t", b"wo"]):
                if front is mq.Dish:
                    sender.send(b"".join(parts), group="t")
                elif front in (mq.Bus, mq.Pair1):       # they have no parts
                    sender.send(b"".join(parts))
                else:
                    sender.send_parts([b"t"] * bool(topic) + parts)
            with journal.open(tmp_path, topic=writers.writer(topic or "default").topic) as reader:
                assert until(reader.follow(0, timeout=LIMIT), 2) == [b"one", b"two"]
            assert not device.acknowledges
            assert (device.stats().messages, device.stats().refused) == (2, 0)


def test_a_respondent_answers_after_commit(ctx, tmp_path):
    """Several that survey, each of them told where it is."""
    with journal.open(tmp_path, "a", fsync="never") as writer, \
            mq.Respondent(context=ctx, bind="tcp://127.0.0.1:0") as front, \
            mq.device(front, writer) as device, \
            mq.Surveyor(context=ctx, connect=url_of(front)) as one, \
            mq.Surveyor(context=ctx, connect=url_of(front)) as other:
        assert device.acknowledges
        for i in range(6):
            asker = (one, other)[i % 2]
            asker.wait_peers(timeout=LIMIT)
            asker.send(b"%d" % i)
            assert journal.stored_at(asker.recv(timeout=LIMIT)) == (0, i)
            assert writer.durable == i + 1
        assert device.stats().acknowledged == 6
    assert contents(tmp_path) == [b"%d" % i for i in range(6)]


def test_rep_answers_after_commit(ctx, tmp_path):
    """What is answered is durable, whatever the policy; one fsync serves many."""
    disk = Disk()
    with journal.open(tmp_path, "a", fsync="never") as writer, \
            mq.Rep(context=ctx, bind="tcp://127.0.0.1:0") as front, \
            mq.device(front, writer) as device:
        disk.attach(writer)
        assert device.acknowledges
        with mq.Req(context=ctx, connect=url_of(front), recv_timeout=LIMIT) as req:
            for i in range(5):
                req.send(b"req%d" % i)
                assert journal.stored_at(req.recv()) == (0, i)
                assert writer.durable == i + 1
        with mq.Dealer(context=ctx, connect=url_of(front), recv_timeout=LIMIT) as dealer:
            syncs = writer._counters()["syncs"]
            for i in range(500):
                dealer.send_parts([b"id%d" % i, b"", b"body", b"%d" % i])
            answers = [dealer.recv_parts() for _ in range(500)]
            assert [a[0] for a in answers] == [b"id%d" % i for i in range(500)]
            assert [journal.stored_at(a[2]) for a in answers] == [(0, i + 5) for i in range(500)]
            assert writer.durable == 505
            assert writer._counters()["syncs"] - syncs < 250
        assert device.stats().acknowledged == 505
    assert contents(tmp_path)[5:] == [b"body%d" % i for i in range(500)]


def test_a_refused_request_is_answered_so(ctx, tmp_path):
    with journal.open(tmp_path, "a", topic_from="first-part", partitions=2) as writers, \
            mq.Rep(context=ctx, bind="tcp://127.0.0.1:0") as front, \
            mq.device(front, writers) as device, \
            mq.Req(context=ctx, connect=url_of(front), recv_timeout=LIMIT) as req:
        for parts, good in (([b"t", b"1"], True), ([b"\xff", b"2"], False), ([b"t", b"3"], True)):
            req.send_parts(parts)
            if good:
                number, offset = journal.stored_at(req.recv())
            else:
                with pytest.raises(journal.JournalRefused):
                    journal.stored_at(req.recv())
        assert contents(tmp_path, topic="t", partition=number)[offset] == b"3"
        assert (device.stats().refused, device.stats().acknowledged) == (1, 2)


def test_a_full_disk_ends_the_device_and_loses_nothing_acknowledged(ctx, tmp_path):
    disk = Disk()
    with journal.open(tmp_path, "a", block_bytes=1024) as writer:
        disk.attach(writer)
        front = mq.Rep(context=ctx, bind="tcp://127.0.0.1:0")
        device = mq.device(front, writer)
        with mq.Req(context=ctx, connect=url_of(front), recv_timeout=LIMIT) as req:
            req.send(b"first")
            assert journal.stored_at(req.recv()) == (0, 0)
            disk.fail(room=100)         # half a block goes on the disk, and is cut off again
            req.send(b"second")
            with pytest.raises(journal.JournalFull):
                device.wait_stopped(LIMIT)
            with pytest.raises(mq.RecvTimeout):
                req.recv(timeout=0.05)
            assert isinstance(device.error, journal.JournalFull) and not device.running
        with pytest.raises(journal.JournalFull):
            device.stop()
        disk.fail(room=-1)
        writer.commit()
    assert contents(tmp_path) == [b"first", b"second"]


def test_a_full_disk_ends_a_pull_device(ctx, tmp_path):
    disk = Disk()
    with journal.open(tmp_path, "a", block_bytes=1024, fsync_interval=0.01) as writer, \
            mq.Pull(context=ctx, bind="tcp://127.0.0.1:0") as front, \
            mq.Push(context=ctx, connect=url_of(front)) as push:
        disk.attach(writer)
        device = mq.device(front, writer)
        disk.fail(room=0)
        push.send(b"x" * 100)
        with pytest.raises(journal.JournalFull):
            device.wait_stopped(LIMIT)
        with pytest.raises(journal.JournalFull):
            device.stop()
        disk.fail(room=-1)
        writer.commit()
    assert contents(tmp_path) == [b"x" * 100]       # the writer had taken it


def test_what_cannot_be(ctx, tmp_path, writer):
    with mq.Push(context=ctx) as push, pytest.raises(mq.UsageError):
        mq.device(push, writer)
    with mq.Req(context=ctx) as req, pytest.raises(mq.UsageError, match="asked"):
        mq.device(req, writer)
    with mq.Pull(context=ctx) as pull, mq.Pub(context=ctx) as pub, pytest.raises(mq.UsageError):
        mq.device(pull, writer, capture=pub)
    writer.close()
    with mq.Pull(context=ctx) as pull, pytest.raises(journal.JournalClosed):
        mq.device(pull, writer)


def test_mirror(ctx, tmp_path, writer):
    """Offsets, times, keys, headers and stamps; it goes on where it was; a gone beginning."""
    rows = []
    with journal.open(tmp_path / "from", "a", stamps=True, segment_bytes=4096) as source:
        for i in range(300):
            source.append((journal.stamp(3, i, 1.5) if i % 3 else b"MQS1") + b"v%d" % i,
                          key=b"" if i % 5 == 0 else b"k" * i if i % 5 == 1 else None, time=i / 4,
                          headers=[("h", b"%d" % i)] * (i % 4))
            if i % 40 == 0:
                source.flush()
        source.commit()
        with journal.open(tmp_path / "from") as reader:
            for _ in range(2):
                with mq.device(reader, writer) as mirror, journal.open(tmp_path / "j") as copy:
                    until(copy.follow(0, timeout=LIMIT), source.next)
                    assert mirror.running and mirror.error is None
                source.append_many([b"plain"] * 10)
                source.flush()
            for where in ("from", "j"):
                with journal.open(tmp_path / where) as one:
                    found = [(records.first + i, m, records.key(i), records.headers(i),
                              int(records._microseconds[i]),
                              [0 if c is None else int(c[i]) for c in
                               (records.producers, records.sequences, records._optional("sent"))])
                             for records in one.batches(0, 310)
                             for i, m in enumerate(records.to_list())]
                rows.append(found)
            assert len(rows[0]) == 310 and rows[0] == rows[1]
            writer.append(b"mine")
            with journal.open(tmp_path / "late", "a", begin=200) as late, \
                    mq.device(reader, late) as mirror, journal.open(tmp_path / "late") as copy:
                assert late.next >= 200
                assert until(copy.follow(200, timeout=LIMIT), 110)[0] == b"v200"
                assert copy.first == 200
    with journal.open(tmp_path / "from") as reader:
        writer.append_many([b"x"] * 100)
        with pytest.raises(mq.UsageError, match="no mirror"):
            mq.device(reader, writer)
