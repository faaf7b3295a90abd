"""Rights of a journal device: a sender stores into the topics that it was granted, and no other."""

import pytest
from journal_case import contents
from waiting import until

import mqcore as mq
from mqcore import journal
from mqcore.security import Curve, curve_keypair

LIMIT = 20.0
Rights = journal.Rights
SERVER, ALICE, BOB = curve_keypair(), curve_keypair(), curve_keypair()
GRANTED = {"alice": Rights(write=("orders", "log-*")), "*": Rights("*", "*", "log-?")}
ALLOWED = Curve(secret_key=SERVER.secret, allow={ALICE.public: "alice", BOB.public: "bob"})


@pytest.fixture
def writers(tmp_path):
    with journal.open(tmp_path / "j", "a", topic_from="first-part") as made:
        yield made


def sender(ctx, front, keys, kind):
    return ctx.socket(kind, connect=front.endpoints[0].url,
                      security=Curve(server_key=SERVER.public, secret_key=keys.secret))


def test_who_asks_is_told(ctx, tmp_path, writers, caplog):
    caplog.set_level("INFO", "mqcore.journal")
    with mq.Rep(context=ctx, bind="tcp://127.0.0.1:0", security=ALLOWED) as front, \
            sender(ctx, front, ALICE, "req") as alice, sender(ctx, front, BOB, "req") as bob, \
            mq.device(front, writers, rights=GRANTED) as device:
        def stored(who, topic):
            return journal.stored_at(who.request([topic, b"x"], timeout=LIMIT))

        for _ in range(3):
            for who, topic in ((alice, b"log-ab"), (alice, b"orders"), (bob, b"log-a")):
                assert stored(who, topic)[1] >= 0
            for who, topic in ((bob, b"orders"), (bob, b"log-ab"), (alice, b"log"),
                               (alice, b"\xff"), (bob, b"")):
                with pytest.raises(journal.JournalDenied) as caught:
                    stored(who, topic)
                assert "--rights" in caught.value.hint
        for who, topic in ((alice, b"log-" + bytes(300)), (bob, b"\xff" * (1 << 20))):
            with pytest.raises(journal.JournalRefused):     # no topic is so long
                stored(who, topic)
        stats = device.stats()
        assert (stats.denied, stats.acknowledged, stats.refused) == (15, 9, 2)
    assert len(caplog.records) == 2 and "user 'bob'" in caplog.text
    assert sorted(path.name for path in (tmp_path / "j").iterdir()) == ["log-a", "log-ab", "orders"]


def test_the_other_messages_of_a_burst_keep_their_order(ctx, tmp_path, writers):
    with mq.Pull(context=ctx, bind="tcp://127.0.0.1:0", security=ALLOWED) as front, \
            sender(ctx, front, BOB, "push") as bob, sender(ctx, front, ALICE, "push") as alice:
        for i in range(5000):
            bob.send_parts([(b"log-a", b"orders", b"log-b")[i % 3], b"%06d" % i, b"b" * (i % 50)])
            if i % 5 == 0:
                alice.send_parts([b"orders", b"%06d" % i])
        for each in (alice, bob):
            assert each.close(LIMIT)
        with mq.device(front, writers, rights=GRANTED) as device:
            until(lambda: device.stats().messages == 6000, LIMIT)
        assert device.stats().denied == 1667 and device.stats().refused == 0
    assert contents(tmp_path / "j", topic="orders") == [b"%06d" % i for i in range(0, 5000, 5)]
    for at, topic in ((0, "log-a"), (2, "log-b")):
        assert contents(tmp_path / "j", topic=topic) == [
            b"%06d" % i + b"b" * (i % 50) for i in range(at, 5000, 3)]


def test_one_topic_and_a_function(ctx, tmp_path, caplog):
    """Asked once about each connection. One that fails, or returns something else, grants
    nothing."""
    asked = []

    def rights(peer):
        asked.append(peer)
        if len(asked) == 2:
            raise RuntimeError("no directory")
        if len(asked) == 5:
            raise SystemExit
        return (Rights(write="orders"), None, "everything", Rights("*", "*"))[len(asked) - 1]

    with journal.open(tmp_path / "j", "a", topic="orders") as writer, \
            mq.Rep(context=ctx, bind="tcp://127.0.0.1:0") as front, \
            mq.device(front, writer, rights=rights):
        for i in range(5):
            with ctx.socket("req", connect=front.endpoints[0].url) as req:
                answers = [req.request(b"%d" % i, timeout=LIMIT) for _ in range(3)]
            if i == 0:
                assert [journal.stored_at(answer) for answer in answers] == [(0, 0), (0, 1), (0, 2)]
                continue
            for answer in answers:
                with pytest.raises(journal.JournalDenied):
                    journal.stored_at(answer)
    assert len(asked) == 6 and isinstance(asked[0], mq.Peer)
    assert "no directory" in caplog.text and "gave 'everything'" in caplog.text
    assert contents(tmp_path / "j", topic="orders") == [b"0"] * 3


def test_one_topic_may_have_any_name(ctx, tmp_path):
    """The messages of a device with one topic say nothing of topics."""
    with journal.open(tmp_path / "j", "a", topic="orders") as writer, \
            mq.Pull(context=ctx, bind="tcp://127.0.0.1:0") as front, \
            ctx.socket("push", connect=front.endpoints[0].url) as push, \
            mq.device(front, writer, rights={"*": Rights(write="log")}) as device:
        push.send_many([b"log", b"orders", b""])
        until(lambda: device.stats().denied == 3, LIMIT)
    assert contents(tmp_path / "j", topic="orders") == []


@pytest.mark.parametrize("given", ["alice", {"alice": "*"}, {3: Rights()}])
def test_what_is_no_rights(ctx, writers, given):
    with mq.Pull(context=ctx, bind="tcp://127.0.0.1:0") as front:
        with pytest.raises(mq.OptionError, match="rights="):
            mq.device(front, writers, rights=given)
        with mq.device(front, writers):         # the socket is still free
            pass


def test_other_devices_have_none(ctx, tmp_path):
    with mq.Pull(context=ctx) as front, mq.Push(context=ctx) as back:
        with pytest.raises(mq.UsageError, match="rights="):
            mq.device(front, back, rights=GRANTED)
    for name in ("j", "copy"):
        journal.open(tmp_path / name, "a").close()
    with journal.open(tmp_path / "j") as reader, journal.open(tmp_path / "copy", "a") as copy:
        with pytest.raises(mq.UsageError, match="rights="):
            mq.device(reader, copy, rights=GRANTED)


def test_a_writer_that_knows_no_rights(ctx, writers):
    class Other:
        error = None

        def _mq_sink(self):
            return writers._mq_sink()

        def commit(self):
            writers.commit()

    with mq.Pull(context=ctx, bind="tcp://127.0.0.1:0") as front, \
            pytest.raises(mq.UsageError, match="knows no rights"):
        mq.device(front, Other(), rights=GRANTED)
