"""The runner of bridges between systems of ours: order of acknowledgments, lost connections,
repetitions, dead letters, the end."""

import asyncio

import pytest
from bridging import LIMIT, Numbers, Sink, bodies, laws, moved

import mqcore as mq
from mqcore import bridge, journal
from mqcore.bridge import connection
from mqcore.bridge.runner import Runner


def test_lost_targets_repeat_from_the_first_unconfirmed_message():
    async def main():
        source = Numbers(500)
        sink = Sink(source, lose=[3, 0, 2])
        runner = Runner(source, sink, batch=20, window=60, pause=0.001)
        await moved(runner, lambda: len(source.done) == 500)
        assert list(dict.fromkeys(bodies(sink))) == list(range(500))
        counts = runner.stats()
        laws(counts)
        assert counts.target_reconnects == 3 and counts.resent and counts.held == 0
    asyncio.run(main())


def test_a_failed_acknowledgment_is_repeated_without_the_target():
    async def main():
        source = Numbers(200, fail_acks=[50])
        sink = Sink(source)
        runner = Runner(source, sink, batch=10, window=40, pause=0.001)
        await moved(runner, lambda: len(source.done) == 200)
        assert bodies(sink) == list(range(200))         # each of them once
        counts = runner.stats()
        laws(counts)
        assert counts.repeats and counts.source_reconnects == 1
    asyncio.run(main())


@pytest.mark.parametrize("kind", ["bad", "deadly"])
def test_bad_messages_become_dead_letters(kind):
    async def main():
        source, letters = Numbers(100), Sink()
        sink = Sink(source, **{kind: (b"7", b"55")})
        runner = Runner(source, sink, dead=letters, batch=16, pause=0.001, longest_pause=0.002)
        await moved(runner, lambda: len(source.done) == 100)
        assert bodies(letters) == [7, 55]
        assert set(bodies(sink)) == set(range(100)) - {7, 55}
        assert dict(letters.taken[0].headers)["dead-target"] == b"sink"
        laws(runner.stats())
    asyncio.run(main())


@pytest.mark.parametrize("error", [TimeoutError, mq.SendTimeout, BlockingIOError])
def test_a_target_that_is_away_for_long_costs_no_message(error):
    class Away(Sink):
        tries = 0

        async def send(self, messages):
            self.tries += 1
            if self.tries < 20:
                raise error("away")
            return await super().send(messages)

    async def main():
        source, letters = Numbers(3), Sink()
        sink = Away(source)
        runner = Runner(source, sink, dead=letters, pause=0.001, longest_pause=0.002)
        await moved(runner, lambda: len(source.done) == 3)
        assert bodies(sink) == [0, 1, 2] and letters.taken == []
    asyncio.run(main())


def test_without_a_dead_letter_target_a_bad_message_ends_the_bridge():
    async def main():
        source = Numbers(10)
        with pytest.raises(bridge.BridgeRefused, match="malformed"):
            await Runner(source, Sink(bad=(b"3",))).run()
        assert 3 not in source.done
    asyncio.run(main())


def test_sources_that_return_one_at_a_time_are_sent_in_batches():
    """A full window would otherwise lead to batches of one, and stay full."""
    class Single(Numbers):
        async def receive(self, most):
            return await super().receive(1)

    class Slow(Sink):
        sizes = []

        async def send(self, messages):
            self.sizes.append(len(messages))
            while not source.next >= min(source.count, len(self.taken) + 40):
                await asyncio.sleep(0)
            return await super().send(messages)

    source = Single(400)

    async def main():
        sink = Slow(source)
        await moved(Runner(source, sink, batch=20, window=40), lambda: len(source.done) == 400)
        assert bodies(sink) == list(range(400))
        assert max(sink.sizes) == 20 and len(sink.sizes) < 50
    asyncio.run(main())


def test_the_window_bounds_what_is_held():
    async def main():
        class Stuck(Sink):
            async def send(self, messages):
                await asyncio.Event().wait()
        source = Numbers(1000)
        runner = Runner(source, Stuck(), batch=20, window=50)
        task = asyncio.ensure_future(runner.run(linger=0))
        async with asyncio.timeout(LIMIT):
            while runner.stats().held < 50:
                await asyncio.sleep(0.005)
        assert runner.stats().received == 50 and not source.done
        assert "waits for the target" in runner.explain()
        runner.stop()
        await task
    asyncio.run(main())


def test_an_outage_is_reported_once_with_its_reason(caplog, tmp_path):
    class Shut(Sink):
        refusals = 5

        async def open(self):
            if self.refusals:
                self.refusals -= 1
                raise ConnectionRefusedError(f"100% of {tmp_path}")

    async def main():
        source = Numbers(100)
        runner = Runner(source, Shut(source), pause=0.001, longest_pause=0.001)
        await moved(runner, lambda: len(source.done) == 100)
        assert runner.stats().target_reconnects == 5
    asyncio.run(main())
    said = [row.getMessage() for row in caplog.records if row.levelname == "WARNING"]
    assert said == ["a bridge tries again to connect sink: ConnectionRefusedError: "
                    f"100% of {tmp_path}"]


class Refused(Sink):
    """Cannot be reached for a while; the peer chooses what is said of it."""

    def __init__(self, taker, texts):
        super().__init__(taker)
        self.texts = texts

    async def open(self):
        if self.texts:
            raise ConnectionRefusedError(self.texts.pop())


def warnings_of(caplog):
    return [row.getMessage() for row in caplog.records if row.levelname == "WARNING"]


def moves_all_after(texts, **changes):
    """A bridge to such a target moves everything in the end."""
    async def main():
        source = Numbers(100)
        sink = Refused(source, texts)
        for name, value in changes.items():
            setattr(sink, name, value)
        runner = Runner(source, sink, pause=0.001, longest_pause=0.001)
        await moved(runner, lambda: len(source.done) == 100)
    asyncio.run(main())


def test_a_peer_does_not_choose_how_much_is_logged(caplog):
    moves_all_after([f"{n} \n\x1b[2J" + "\0" * 100_000 for n in range(200)])
    [text] = warnings_of(caplog)
    assert len(text) == connection.LONGEST_TEXT and text.isprintable() and "\\x1b[2J" in text


def test_an_outage_that_begins_within_the_minute_is_told_if_it_lasts(caplog, monkeypatch):
    monkeypatch.setattr(connection, "QUIET", 0.0)

    async def main():
        one = connection.Connection(Refused(None, ["b", "a"]), 0.001, 0.001)
        for _ in range(3):                      # as a source that has nothing to deliver
            await one.lost(await one.opened(), ConnectionResetError("gone"))
        await one.close()
    asyncio.run(main())
    assert [text.rpartition(": ")[2] for text in warnings_of(caplog)] == ["a", *["gone"] * 3]


def explains_nothing():
    raise RuntimeError("not open yet")


@pytest.mark.filterwarnings("ignore")
def test_a_warning_that_cannot_be_made_ends_no_bridge(capsys, monkeypatch):
    moves_all_after(["away"], explain=explains_nothing)
    assert "not open yet" in capsys.readouterr().err

    def full(*_):
        raise OSError("the log's disk is full")
    monkeypatch.setattr(connection._log, "warning", full)
    moves_all_after(["away"])
    assert "the log's disk is full" in capsys.readouterr().err


@pytest.fixture
def default_context():
    """The bridge's sockets are the default context's, which ends with the test."""
    yield
    mq.Context.default().close(0)


def test_a_client_that_forgets_a_cancellation_does_not_keep_the_bridge(monkeypatch):
    """As asyncio.wait_for() does before Python 3.12."""
    class Deaf(Sink):
        forgotten = 0

        async def open(self):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.forgotten += 1
                if self.forgotten > 2:
                    raise
                raise ConnectionRefusedError("nobody is there") from None

    async def main():
        sink = Deaf()
        runner = Runner(Numbers(1), sink, pause=0.001, longest_pause=0.001)
        task = asyncio.ensure_future(runner.run(linger=0))
        async with asyncio.timeout(LIMIT):
            while runner.target.state != "connecting":
                await asyncio.sleep(0.001)
            runner.stop()
            await task
        assert sink.forgotten == 3 and runner.target.state == "closed"
    monkeypatch.setattr("mqcore.bridge.runner.AGAIN", 0.01)
    asyncio.run(main())


def test_from_a_queue_to_a_topic(tmp_path, default_context):
    with journal.serve_queues(tmp_path / "q", f"ipc://{tmp_path}/s") as server:
        url = server.urls[0]
        with journal.queue(url, "in") as queue:
            queue.put_many([b"%d" % n for n in range(300)], headers={"type": "number"})
        with bridge.Bridge(f"queue:{url}?queue=in", f"journal:{tmp_path}/j?topic=out",
                           headers={"type": "kind"}) as running, \
                journal.queue(url, "in") as queue:
            with pytest.raises(TimeoutError):
                while queue.stats().acknowledged < 300:
                    running.wait_stopped(timeout=0.05)
                raise TimeoutError
        assert not running.running
    with journal.open(tmp_path / "j", topic="out") as log:
        records = log.read(0)
        assert records.to_list() == [b"%d" % n for n in range(300)]
        assert records.headers(0) == [("kind", b"number")]
