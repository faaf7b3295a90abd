"""A RemoteReader: threads, tasks, deadlines, and peers that are not journal servers."""

import asyncio
import json
import threading
import time

import pytest
import trio

import mqcore as mq
from mqcore import journal
from mqcore.journal.server import connection
from mqcore.journal.server.codec import unpack
from mqcore.testing import SlowLink

LIMIT = 20.0


@pytest.fixture
def where(tmp_path):
    with journal.open(tmp_path, "a", topic="t") as writer:
        writer.append_many([b"%d" % i for i in range(1000)], time=7.0)
    return tmp_path


@pytest.fixture
def server(ctx, where):
    with journal.serve(where, "tcp://127.0.0.1:0", groups=True, context=ctx) as made:
        yield made


@pytest.fixture
def url(server):
    return f"{server.urls[0]}/t"


def run(library, main):
    return trio.run(main) if library == "trio" else asyncio.run(main())


both = pytest.mark.parametrize("library", ["asyncio", "trio"])


@both
@pytest.mark.parametrize("place", ["folder", "server"])
def test_the_awaitable_twins(ctx, where, url, library, place):
    """Of a folder and of a server: the same as the blocking calls."""
    with journal.open(where, topic="t") as here:
        size = here.stored_bytes(0, 1000)

    async def main():
        how = {"context": ctx} if place == "server" else {"topic": "t"}
        async with await journal.aopen(url if place == "server" else where, **how) as reader:
            assert (await reader.afirst(), await reader.aend()) == (0, 1000)
            assert await reader.aat(7.0) == 0 and await reader.aat(8.0) == 1000
            assert (await reader.aread(5, max_bytes=10)).first == 5
            assert await reader.astored_bytes(0, 1000) == size
            await reader.acommit_offset(f"{library}-{place}", 9)
            assert await reader.acommitted_offset(f"{library}-{place}") == 9
            assert (await reader.agroups())[f"{library}-{place}"] == 9
            found = [m async for records in reader.abatches(10, 990) for m in records]
            assert found == [b"%d" % i for i in range(10, 990)]
        with pytest.raises(journal.JournalClosed):
            await reader.aend()
    run(library, main)


def test_many_follow_while_the_loop_goes_on(ctx, url, server):
    """No follower sits in the loop's executor: twelve of them, whose pool has one thread."""
    async def main():
        from concurrent.futures import ThreadPoolExecutor
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        async with await journal.aopen(url, context=ctx, timeout=LIMIT) as reader:
            async def follow(n):
                count = 0
                async for records in reader.afollow(n, timeout=LIMIT):
                    count += len(records)
                    if count == 1000 - n:
                        waiting.append(n)
                        await asyncio.sleep(3600)
            waiting = []
            tasks = [asyncio.create_task(follow(n)) for n in range(12)]
            while len(waiting) < 12:
                await asyncio.sleep(0.001)
            assert await asyncio.to_thread(lambda: 7) == 7
            assert await reader.aend() == 1000
            await reader.acommit_offset("g", 3)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            while server.stats().streams:
                await asyncio.sleep(0.001)
            assert await reader.acommitted_offset("g") == 3
    asyncio.run(main())


@both
def test_a_cancelled_follow_leaves_the_reader_usable(ctx, url, library):
    async def trio_main():
        async with await journal.aopen(url, context=ctx, timeout=LIMIT) as reader:
            with trio.move_on_after(0.05) as scope:
                async for _ in reader.afollow(1000):
                    pass
            assert scope.cancelled_caught and await reader.aend() == 1000

    async def asyncio_main():
        async with await journal.aopen(url, context=ctx, timeout=LIMIT) as reader:
            async def forever():
                async for _ in reader.afollow(1000):
                    pass
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(forever(), 0.05)
            assert await reader.aend() == 1000
    run(library, trio_main if library == "trio" else asyncio_main)


@both
def test_questions_have_a_deadline(ctx, library):
    """No server, and one that never answers: the call ends in time, the loop is not blocked."""
    async def main():
        with mq.Router(context=ctx, bind="tcp://127.0.0.1:0") as silent:
            began = time.monotonic()
            with pytest.raises(mq.RecvTimeout, match="no answer from the journal server"):
                await journal.aopen(silent.endpoints[0].url, context=ctx, timeout=0.2)
            assert time.monotonic() - began >= 0.2
    run(library, main)


def test_threads_share_a_reader(ctx, url):
    """Each gets its own answers."""
    failures = []
    with journal.open(url, context=ctx, timeout=LIMIT) as reader:
        def work(n):
            try:
                for i in range(n, 1000, 53):
                    assert reader.read(i, max_bytes=4).to_list()[0] == b"%d" % i
                rows = [m for records in reader.batches(n, 900, max_bytes=500) for m in records]
                assert rows == [b"%d" % i for i in range(n, 900)]
            except BaseException as error:
                failures.append(error)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(reader._all) <= 8 and len(reader._spare) <= 2
    assert failures == []


def test_closing_ends_calls_in_other_threads(ctx, url):
    reader = journal.open(url, context=ctx, timeout=LIMIT)
    ended = []

    def follow():
        ended.append(sum(len(records) for records in reader.follow(0)))

    def ask():
        try:
            while True:
                reader.end
        except journal.JournalClosed:
            ended.append("closed")
    threads = [threading.Thread(target=body) for body in (follow, follow, ask)]
    for thread in threads:
        thread.start()
    stream = reader.follow(0)
    assert sum(len(next(stream)) for _ in range(1)) > 0
    reader.close()
    for thread in threads:
        thread.join(LIMIT)
    assert len(ended) == 3 and "closed" in ended
    assert list(stream) == []
    reader.close()


def test_the_address_in_errors_is_the_address(ctx, url):
    with journal.open(url, context=ctx) as reader:
        assert reader.path == url and url in repr(reader)
        with pytest.raises(mq.RecvTimeout) as late:
            next(reader.follow(1000, timeout=0.01))
        assert url in str(late.value)
        for wrong in (float("nan"), float("inf")):
            with pytest.raises(mq.UsageError, match="not a number of seconds"):
                reader.at(wrong)


ANSWERS = [b"", b"\xff", b"[]", b"[" * 50000, b"{}", {"ok": 7}, {"ok": [1]}, {"ok": ["a", "b"]},
           {"ok": None}, {"ok": [1.5, 2]}, {"ok": [-5, -1]}, {"ok": [10, 5]}, {"ok": [0, 10**40]},
           {"ok": [False, True]}, {"ok": {"a": 1}}, {"error": 7}, {"error": {}},
           {"error": {"code": "offset_gone", "text": 3, "hint": None, "facts": {}}},
           {"error": {"code": "offset_gone", "text": "x", "hint": "", "facts": {"first": "y"}}},
           {"error": {"code": "nonsense", "text": "x", "hint": None, "facts": {"a": 1}}},
           {"records": {"first": 0, "n": 10**30, "columns": {}}},
           {"records": {"first": 0, "n": 1, "columns": {"times": [10**30, 8]}}},
           {"records": {"first": float("inf"), "n": 1, "columns": {"times": [0, 8]}}}]


@pytest.mark.parametrize("said", ANSWERS, ids=range(len(ANSWERS)))
def test_what_is_no_journal_server_gets_an_error(ctx, said):
    """Whatever answers, a reader raises JournalError and nothing else."""
    with mq.Router(context=ctx, bind="tcp://127.0.0.1:0", recv_timeout=LIMIT) as fake:
        def reply():
            peer, raw = fake.recv_parts()
            whole = said if isinstance(said, bytes) else json.dumps(
                {"id": json.loads(raw)["id"], **said}).encode()
            fake.send_parts([peer, whole])
        thread = threading.Thread(target=reply)
        thread.start()
        try:
            with pytest.raises(journal.JournalError):
                journal.open(fake.endpoints[0].url, context=ctx, timeout=LIMIT)
        finally:
            thread.join()


@pytest.mark.parametrize("code", ["usage", "journal_corrupt", "?"])
def test_the_text_of_an_error_is_safe_for_a_terminal(ctx, code):
    """Whoever answers may have written it."""
    said = "\x1b]0;owned\x07\r\n\u202eé" + "x" * 5000
    with mq.Router(context=ctx, bind="tcp://127.0.0.1:0", recv_timeout=LIMIT) as fake:
        def reply():
            peer, raw = fake.recv_parts()
            fake.send_parts([peer, json.dumps({"id": json.loads(raw)["id"], "error": {
                "code": code, "text": said, "hint": said, "facts": {}}}).encode()])
        thread = threading.Thread(target=reply)
        thread.start()
        try:
            with pytest.raises(mq.Error) as caught:
                journal.open(fake.endpoints[0].url, context=ctx, timeout=LIMIT)
        finally:
            thread.join()
    text = str(caught.value)
    assert text.isprintable() and len(text) < 5000
    assert text.startswith(r"\x1b]0;owned\x07\r\n\u202eé")


def test_headers_that_another_writer_calls_text():
    """The server passes on what is stored; its names need not be UTF-8."""
    columns = {"times": [0, 8], "value_ends": [64, 8], "values": [64, 0], "header_ends": [128, 8],
               "name_ends": [192, 8], "names": [256, 1], "datum_ends": [64, 8], "data": [64, 0]}
    body = bytearray(320)
    body[132] = body[196] = 1
    body[256] = 0xFF
    found = unpack({"first": 0, "n": 1, "columns": columns}, bytes(body), "t", 0)
    assert found.headers(0) == [(r"\xff", b"")]


@pytest.mark.parametrize("library", ["threads", "asyncio"])
def test_an_answer_that_is_long_under_way_is_not_asked_for_again(ctx, tmp_path, monkeypatch,
                                                                 library):
    """Each copy would only delay what is asked next."""
    monkeypatch.setattr(connection, "AGAIN", 0.02)
    with journal.open(tmp_path, "a", topic="t") as writer:
        writer.append(bytes(200_000))
    with journal.serve(tmp_path, "tcp://127.0.0.1:0", context=ctx) as server, \
            SlowLink(server.urls[0], rate=500_000) as link, \
            journal.open(link.url, topic="t", context=ctx, timeout=LIMIT) as reader:
        for _ in range(2):
            found = reader.read(0) if library == "threads" else asyncio.run(reader.aread(0))
            assert len(found[0]) == 200_000
        assert server.stats().messages == 2     # each was sent once


def test_a_question_is_put_again_to_a_server_that_comes_back(ctx, where, monkeypatch):
    monkeypatch.setattr(connection, "AGAIN", 0.02)
    with mq.Router(context=ctx, bind="tcp://127.0.0.1:0", recv_timeout=LIMIT) as silent:
        url = silent.endpoints[0].url
        answers = []
        thread = threading.Thread(target=lambda: answers.extend(
            journal.list_partitions(url, context=ctx, timeout=LIMIT)))
        thread.start()
        silent.recv_parts()
    with journal.serve(where, url, context=ctx):
        thread.join()
    assert answers == journal.list_partitions(where)


def test_only_what_is_durable(ctx, tmp_path):
    with journal.open(tmp_path, "a", topic="t", fsync="never") as writer, \
            journal.serve(tmp_path, "tcp://127.0.0.1:0", context=ctx) as server:
        writer.append_many([b"a", b"b"])
        writer.commit()
        writer.append(b"c")
        writer.flush()
        with journal.open(f"{server.urls[0]}/t", context=ctx, timeout=LIMIT) as reader:
            assert (reader.durable, reader.end) == (2, 3)
            assert len(reader.read(0, durable=True)) == 2 and len(
                reader.read(0, durable=False)) == 3
            stream = reader.follow(0, timeout=LIMIT, durable=True)
            assert next(stream).to_list() == [b"a", b"b"]
            writer.commit()
            assert next(stream).to_list() == [b"c"]
            stream.close()
