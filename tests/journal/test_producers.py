"""Whose numbers a writer that deduplicates remembers: not those that a stranger makes up."""

import struct

import pytest
from journal_case import contents
from waiting import until

import mqcore as mq
from mqcore import journal

ROW = 168


def message(producer, sequence):
    return journal.stamp(producer, sequence, 1.0) + b"%d:%d" % (producer, sequence)


def opened(where, **options):
    return journal.open(where, "a", stamps=True, deduplicate=True, fsync="never", **options)


def known(where):
    """Producers in the file that a clean close leaves, who was heard last at the end."""
    raw = (where / "default" / "0" / "producers").read_bytes()[48:]
    at, found = 0, []
    while at < len(raw):
        who, low, highest = struct.unpack_from("<QQQ", raw, at)
        window = struct.unpack_from("<16Q", raw, at + 32)
        marks = sum(window[i % 1024 // 64] >> i % 64 & 1
                    for i in range(max(low, highest - 1023), highest + 1))
        found.append(who)
        at += ROW + 4 * marks
    return found


def test_those_heard_once_go_before_those_heard_again(tmp_path):
    with opened(tmp_path, max_producers=1000) as writer:
        for i in range(3):
            for who in range(1, 11):
                writer.append(message(who, i))
        writer.append_many([message(1000 + i, 0) for i in range(20_000)])
        assert all(writer.append(message(who, 2)) < 30 for who in range(1, 11))
        stats = writer.stats()
        assert (stats.producers, stats.forgotten) == (1000, 19_010)
        assert writer.next == 20_030


def test_those_heard_once_have_a_quarter(tmp_path):
    """Else a producer whose messages are far apart could never be heard again."""
    with opened(tmp_path, max_producers=100) as writer:
        for i in range(2):
            writer.append_many([message(who, i) for who in range(1, 201)])
        for who in range(201, 301):
            for i in range(2):
                writer.append(message(who, i))
        writer.append_many([message(who, 0) for who in range(1001, 1026)])
        before = writer.next
        assert all(writer.append(message(who, 0)) < before for who in range(1001, 1026))
    assert known(tmp_path)[-25:] == list(range(1001, 1026))


def test_few_large_producers_do_not_give_way_to_many_small_ones(ctx, tmp_path):
    """The honest ones have most of the bytes, and few of the places, which are what is scarce."""
    with opened(tmp_path, max_producers=100) as writer, \
            mq.Pull(context=ctx, bind="tcp://127.0.0.1:0", recv_hwm=100_000) as front, \
            mq.device(front, writer):
        url = front.endpoints[0].url
        with mq.Push(context=ctx, connect=url) as honest, \
                mq.Push(context=ctx, connect=url, send_hwm=100_000) as stranger:
            for who in range(1, 11):
                honest.send_many([message(who, i) for i in range(1024)])
            until(lambda: writer.next == 10_240)
            stranger.send_many([message(who, 0) for who in range(1000, 3000)])
            until(lambda: writer.next == 12_240)
            honest.send_many([message(who, 1023) for who in range(1, 11)])
            until(lambda: writer.duplicates == 10)


@pytest.mark.parametrize("twice", [False, True])
def test_a_connection_pushes_out_its_own(ctx, tmp_path, twice):
    """Of two connections the one with most gives way, also if each of its producers is heard
    twice; also what calls have stored goes only as far as it is more."""
    with opened(tmp_path, max_producers=1000) as writer, \
            mq.Pull(context=ctx, bind="tcp://127.0.0.1:0", recv_hwm=100_000) as front, \
            mq.device(front, writer):
        url = front.endpoints[0].url
        writer.append(message(1, 0))
        with mq.Push(context=ctx, connect=url) as honest, \
                mq.Push(context=ctx, connect=url, send_hwm=100_000) as stranger:
            honest.send_many([message(who, 0) for who in range(2, 12)])
            until(lambda: writer.next == 11)
            count = 4000
            for who in range(1000, 1000 + count):
                stranger.send_many([message(who, i) for i in range(1 + twice)])
            until(lambda: writer.next == 11 + count * (1 + twice))
            honest.send_many([message(who, 0) for who in range(2, 12)])
            until(lambda: writer.duplicates == 10)
        assert writer.append(message(1, 0)) == 0
        assert writer.stats().producers == 1000


@pytest.mark.parametrize("again", [True, False])
def test_after_a_restart_a_connection_pushes_out_its_own(ctx, tmp_path, again):
    """Those that were heard meanwhile, by a new message or a repeated one, are charged to their
    connections."""
    with opened(tmp_path, max_producers=100) as writer:
        writer.append_many([message(who, i) for i in range(2) for who in range(1, 81)])
    with opened(tmp_path, max_producers=100) as writer, \
            mq.Rep(context=ctx, bind="inproc://front") as front, mq.device(front, writer):
        for who in range(1, 81):
            with mq.Req(context=ctx, connect="inproc://front") as honest:
                journal.stored_at(honest.request(message(who, 1 if again else 2), timeout=10))
        before = writer.next
        with mq.Req(context=ctx, connect="inproc://front") as stranger:
            for who in range(1000, 1200):
                journal.stored_at(stranger.request(message(who, 0), timeout=10))
        assert writer.stats().producers == 100
        assert all(writer.append(message(who, 1)) < before for who in range(1, 81))


def test_a_number_between_two_tracks_that_become_one(tmp_path):
    """It is stored, and from then on too old to tell, whichever track was used last."""
    with opened(tmp_path) as writer:
        for number in (0, 10_000, 10**9, 2 * 10**9):
            writer.append(message(1, number))
        assert writer.append(message(1, 5000)) == 4
        for number in (2 * 10**9, 10**9, 10_000):
            for old in (5000, 5001):
                with pytest.raises(journal.StampRefused) as caught:
                    writer.append(message(1, old))
                assert caught.value.status == 2
            assert writer.append(message(1, number)) in (-1, 1, 2, 3)
        assert writer.next == 5


def test_bytes_are_bounded(tmp_path):
    """A producer with four full windows takes 17 kB: they are counted, and the largest go."""
    def fill(writer, who):
        for track in range(4):
            writer.append_many([message(who, track * 10**9 + i) for i in range(1024)])

    with opened(tmp_path, max_producer_bytes=1 << 18) as writer:
        for who in range(1, 41):
            fill(writer, who)
        assert 10 <= writer.stats().producers <= 15
        assert writer._counters()["producer_bytes"] <= 1 << 18
        before = writer.next
        assert writer.append(message(40, 1023)) < before
        assert writer.append(message(1, 0)) == before       # forgotten
    with opened(tmp_path) as writer:
        found = writer._counters()
        assert found["producers"] <= 16 and found["producer_bytes"] <= 1 << 18


def test_like_a_table_that_is_searched(tmp_path, rng):
    """Random producers against a list that is searched anew each time."""
    table = {}              # producer: [heard again, when, number of the next message]

    def give_way(kept):
        once = [who for who in table if not table[who][0]]
        again = [who for who in table if table[who][0]]
        others = [who for who in once if who != kept]
        pool = others if others and 3 * len(once) > len(again) else again
        del table[min(pool, key=lambda who: table[who][1])]

    with opened(tmp_path, max_producers=20) as writer:
        stored = 0
        for clock in range(5000):
            who = rng.choice((rng.randrange(1, 15), rng.randrange(100, 130),
                              rng.randrange(1000, 10**6)))
            one = table.setdefault(who, [False, clock, 0])
            if rng.random() < 0.3 and one[2]:       # the last one once more
                assert writer.append(message(who, one[2] - 1)) < stored
            else:
                assert writer.append(message(who, one[2])) == stored
                one[0] = one[2] > 0
                one[2] += 1
                stored += 1
            one[1] = clock
            if len(table) > 20:
                give_way(who)
        assert writer.stats().producers == 20
    assert known(tmp_path) == sorted(table, key=lambda who: table[who][1])
    assert len(contents(tmp_path)) == stored
