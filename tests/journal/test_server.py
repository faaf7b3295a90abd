"""A journal read over a socket: the same answers as from the folder, under every misfortune."""

import asyncio
import itertools
import json
import shutil
import threading
import time

import pytest

import mqcore as mq
from mqcore import journal
from mqcore.journal.server.codec import pack, unpack
from mqcore.journal.server.remote import split

LIMIT = 20.0


@pytest.fixture
def where(tmp_path):
    """A journal with everything that a message may have, in many blocks and segments."""
    with journal.open(tmp_path, "a", topic="a/b", partition=1, stamps=True,
                      segment_bytes=8192) as writer:
        for i in range(600):
            writer.append((journal.stamp(2, i, 1.0) if i % 3 else b"") + b"%d" % i * (i % 50),
                          key=b"k" * (i % 4) if i % 7 else None, time=i,
                          headers=[("n", b"%d" % i)] * (i % 3))
            if i % 13 == 0:
                writer.flush()
    return tmp_path


def rows(records):
    times = records._microseconds
    return [(records.first + i, m, records.key(i), records.headers(i), int(times[i]),
             [0 if c is None else int(c[i])
              for c in (records.producers, records.sequences, records._optional("sent"))])
            for i, m in enumerate(records.to_list())]


def everything(reader, *args, **kw):
    return [row for records in reader.batches(*args, **kw) for row in rows(records)]


def test_who_has_little_patience_gets_everything(ctx, where, serve):
    """A time-out shorter than an answer takes: what is under way is not asked for anew."""
    [url] = serve(where).urls
    with journal.open(url, topic="a/b", partition=1, context=ctx) as reader:
        wanted, found = everything(reader), []
        end = time.monotonic() + LIMIT
        while len(found) < len(wanted):
            assert time.monotonic() < end
            try:
                for records in reader.follow(len(found), max_bytes=2000, timeout=0):
                    found += rows(records)
            except mq.RecvTimeout:
                continue
        assert found == wanted
        assert rows(next(reader.follow(17, timeout=LIMIT)))[0] == wanted[17]


@pytest.mark.parametrize("bind", ["tcp://127.0.0.1:0", "inproc://journal"])
def test_the_same_as_from_the_folder(ctx, where, serve, bind):
    server = serve(where, bind, groups=True)
    [url] = server.urls
    named = f"{url}/a%2Fb" if url.startswith("tcp") else url
    with journal.open(where, topic="a/b", partition=1) as here, \
            journal.open(named, topic="a/b", partition=1, context=ctx) as there:
        assert isinstance(there, journal.Reader)
        assert (there.first, there.last, there.end) == (here.first, here.last, here.end)
        assert there.at(123.4) == here.at(123.4) == 124
        whole = everything(here)
        assert len(whole) == 600 and everything(there) == whole
        assert everything(there, 77, 301, max_bytes=500) == whole[77:301]
        for offset in (0, 5, 13, 599, 600):
            found = rows(there.read(offset, max_bytes=300))
            assert found == whole[offset:offset + len(found)] and (found or offset == 600)
        with pytest.raises(mq.UsageError, match="beyond"):
            there.read(601)
        there.commit_offset("g", 7)
        with pytest.raises(mq.UsageError, match="beyond the end"):
            there.commit_offset("g", 601)
        assert there.committed_offset("g") == 7 and there.groups() == {"g": 7}
        assert here.committed_offset("h") is None
    with pytest.raises(journal.JournalClosed):
        there.read(0)


def test_following_within_the_window(ctx, tmp_path, serve):
    """Credit: no more is under way than the window, and everything comes."""
    with journal.open(tmp_path, "a", block_bytes=4096) as writer:
        writer.append_many([b"%06d" % i * 20 for i in range(2000)])
        writer.flush()
        server = serve(tmp_path)
        with journal.open(server.urls[0], context=ctx, window=20_000) as reader:
            stream = reader.follow(0, timeout=LIMIT)
            first = next(stream)
            assert reader.end == 2000           # a question on the way ...
            found = first.to_list()
            late = threading.Thread(target=lambda: (writer.append(b"late"), writer.flush()))
            for records in stream:              # ... and the stream has lost nothing
                assert records.first == len(found)
                found += records.to_list()
                held = [s for s in server._streams if s.out > 20_000 + 12_000]
                assert held == []
                if len(found) == 2000:
                    late.start()
                if len(found) == 2001:
                    break
            late.join()
            stream.close()
            assert found[:2000] == [b"%06d" % i * 20 for i in range(2000)]
            with pytest.raises(mq.RecvTimeout):
                next(reader.follow(2001, timeout=0.05))

            async def task():
                count = 0
                async for records in reader.afollow(1990, timeout=LIMIT):
                    count += len(records)
                    if count == 11:
                        return records.to_list()[-1]
            assert asyncio.run(task()) == b"late"


def test_what_a_server_has(ctx, where, serve):
    """The same as the folder; a journal that was made anew has another id and no old messages."""
    server = serve(where)
    [url] = server.urls
    with journal.open(where, "a", topic="b"):
        pass
    found = journal.list_partitions(url, context=ctx)
    assert found == journal.list_partitions(where)
    assert [info[:2] for info in found] == [("a/b", 1), ("b", 0)] and len(found[0].id) == 32
    with journal.open(where, topic="a/b", partition=1) as here, \
            journal.open(url, topic="a/b", partition=1, context=ctx, timeout=LIMIT) as there:
        assert there.stored_bytes(17, 333) == here.stored_bytes(17, 333) > 0
        whole = sum(path.stat().st_size for path in here.path.glob("*.mqj"))
        assert here.stored_bytes(0, 600) == whole and here.stored_bytes(5, 5) == 0
        stream = there.follow(600, timeout=LIMIT)
        with pytest.raises(mq.RecvTimeout):
            next(there.follow(600, timeout=0.05))       # the server has opened the journal
        shutil.rmtree(where / "a%2Fb")
        with journal.open(where, "a", topic="a/b", partition=1) as log:
            log.append(b"new")
        anew = journal.list_partitions(url, context=ctx)
        assert anew == journal.list_partitions(where) and anew[0].id != found[0].id
        with pytest.raises(journal.JournalNotFound, match="another journal by now"):
            there.read(0)       # offsets are those of the journal that it has read so far
        stream.close()


def test_nothing_is_sent_from_stop_on(ctx, where, serve):
    server = serve(where)
    with journal.open(server.urls[0], topic="a/b", partition=1, context=ctx) as reader:
        assert [row[0] for row in everything(reader, 100, 130)] == list(range(100, 130))
    assert server.stats().messages == 30


def test_a_server_that_cannot_list_is_told(ctx):
    """A server from before that question: it looks for a topic first."""
    with mq.Router(context=ctx, bind="tcp://127.0.0.1:0", recv_timeout=LIMIT) as old:
        def answer():
            peer, raw = old.recv_parts()
            old.send_parts([peer, json.dumps({"id": json.loads(raw)["id"], "error": {
                "code": "usage", "text": "topic None is no text", "hint": "", "facts": {}
            }}).encode()])
        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(mq.NotSupported, match="too old"):
            journal.list_partitions(old.endpoints[0].url, context=ctx)
        thread.join()


def test_a_server_started_anew(ctx, where, serve):
    """The reader goes on where it was; without a server a question ends in time."""
    server = serve(where)
    [url] = server.urls
    with journal.open(url, topic="a/b", partition=1, context=ctx, window=1, timeout=LIMIT,
                      reconnect=0.01, reconnect_max=0.05) as reader:
        stream = reader.follow(0, timeout=LIMIT)
        found = rows(next(stream))
        server.stop()
        server = serve(where, url)
        while len(found) < 300:
            found += rows(next(stream))
        stream.close()
        with journal.open(where, topic="a/b", partition=1) as here:
            assert found == everything(here)[:len(found)]
        server.stop()
        reader._timeout = 0.05
        with pytest.raises(mq.RecvTimeout, match="journal server"):
            reader.end


def test_errors_cross_the_wire(ctx, where, serve):
    server = serve(where)
    [url] = server.urls
    with pytest.raises(journal.JournalNotFound):
        journal.open(f"{url}/nothing", context=ctx)
    with pytest.raises(mq.OptionError):
        journal.open(f"{url}/one", topic="two", context=ctx)
    with pytest.raises(mq.AddressError, match="not a folder"):
        journal.open(url, "a")
    with journal.open(url, topic="a/b", partition=1, context=ctx) as reader:
        with pytest.raises(mq.UsageError, match="commit"):
            reader.commit_offset("g", 1)
        sorted((where / "a%2Fb" / "1").glob("*.mqj"))[0].unlink()
        with pytest.raises(journal.OffsetGone) as gone:
            reader.read(0)
        assert gone.value.first == reader.first > 0
        with pytest.raises(journal.OffsetGone):
            next(reader.follow(0, timeout=LIMIT))
    assert server.running


GOOD = {"v": 1, "id": 1, "op": "read", "topic": "a/b", "partition": 1, "offset": 0, "bytes": 9}


@pytest.mark.parametrize("wrong", [
    b"", b"\xff", b"[]", b"{}", {"v": 2}, {"op": "x"}, {"id": -1}, {"id": "1"}, {"topic": 3},
    {"topic": "../../etc"}, {"partition": 1.5}, {"partition": 1 << 70}, {"offset": -1},
    {"offset": True}, {"bytes": None}, {"op": "at", "time": "x"}, {"op": "commit", "group": 3},
    {"op": "want"}, {"op": "want", "stream": 1}])
def test_bad_requests_get_an_error(ctx, where, serve, wrong):
    server = serve(where)
    with mq.Dealer(context=ctx, connect=server.urls[0], recv_timeout=LIMIT) as dealer:
        dealer.send(wrong if isinstance(wrong, bytes) else json.dumps({**GOOD, **wrong}).encode())
        head = json.loads(dealer.recv())
        assert head["error"]["text"] and head["error"]["code"]
        dealer.send(json.dumps(GOOD).encode())
        assert json.loads(dealer.recv_parts()[0])["records"]["first"] == 0
    assert server.stats().errors == 1


def test_where_a_topic_is_named():
    assert split("tcp://h:1/a%2Fb?x=1", None) == ("tcp://h:1?x=1", "a/b")
    assert split("tls+tcp://h:1/t", "t") == ("tls+tcp://h:1", "t")
    assert split("tcp://h:1", None) == ("tcp://h:1", "default")
    assert split("ipc:///run/j", "t") == ("ipc:///run/j", "t")


def test_replay_keeps_the_distances(ctx, tmp_path):
    """At speed s, what came t later is sent t / s later, not before; nothing is left out."""
    with journal.open(tmp_path, "a", topic="t") as writer:
        for when in (0.0, 0.0, 30.0, 20.0, 60.0):
            writer.append(b"%g" % when, time=1e9 + when)
    with mq.Pull(context=ctx, bind="inproc://out", recv_timeout=LIMIT) as pull, \
            mq.Push(context=ctx, connect="inproc://out") as push, \
            journal.open(tmp_path, topic="t") as reader:
        sent = []           # (messages, seconds)
        began = time.monotonic()
        assert journal.replay(
            reader, push, speed=400, topic=True,
            progress=lambda n: sent.append((n, time.monotonic() - began))) == 5
        due = [0.0, 0.0, 30 / 400, 30 / 400, 60 / 400]      # 20.0 follows 30.0 at once
        assert [pull.recv_parts() for _ in range(5)] == [
            [b"t", m] for m in (b"0", b"0", b"30", b"20", b"60")]
        totals = itertools.accumulate(n for n, _ in sent)
        assert all(at >= due[total - 1] for total, (_, at) in zip(totals, sent, strict=True))
        assert journal.replay(reader, push, speed=0, start=1, stop=3) == 2
        assert [pull.recv(), pull.recv()] == [b"0", b"30"]
        stopping = threading.Event()
        stopping.set()
        assert journal.replay(reader, push, stopping=stopping) == 0
        with pytest.raises(mq.OptionError):
            journal.replay(reader, push, speed=-1)


def test_over_tls(ctx, where, serve, authority):
    server = serve(where, "tls+tcp://127.0.0.1:0", **authority.server)
    with journal.open(f"{server.urls[0]}/a%2Fb", partition=1, context=ctx, **authority.ca,
                      tls_hostname="localhost") as reader:
        assert len(everything(reader)) == 600


def test_lies_of_a_server(where, rng):
    """Columns that do not fit together are an error, never a view of something else."""
    with journal.open(where, topic="a/b", partition=1) as reader:
        head, body = pack(reader.read(0, max_bytes=3000))
    assert rows(unpack(head, body, "a/b", 1))
    for _ in range(300):
        lie = json.loads(json.dumps(head))
        name = rng.choice([*lie["columns"], "n", "first"])
        if name in ("n", "first"):
            lie[name] = rng.choice([-1, None, "x", lie["n"] + 1])
            if name == "first" and isinstance(lie[name], int) and lie[name] >= 0:
                continue
        elif rng.random() < 0.2:
            del lie["columns"][name]
        else:
            at, size = lie["columns"][name]
            lie["columns"][name] = rng.choice(
                [[at, size + 64], [at, max(0, size - 8)], [-5, size], [len(body), 64], None,
                 [at + 64, size], ["x", 1]])
        try:
            rows(unpack(lie, body, "a/b", 1))
        except journal.JournalError:
            pass


def test_the_longest_turn_is_told(ctx, where, serve):
    server = serve(where)
    with journal.open(server.urls[0], topic="a/b", partition=1, context=ctx) as reader:
        reader.read(0)
    assert 0 < server.stats().longest_turn < 60
