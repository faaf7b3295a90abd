"""The bridges to and from HTTP: webhooks that answer anything, event streams that break, and the
gateway of ours as a source. The servers are aiohttp's, in the same event loop."""

import asyncio
import contextlib
import json
import time

import pytest
import uvloop
from aiohttp import web
from bridging import LIMIT, Numbers, Sink, bodies, laws, moved

import mqcore as mq
from mqcore import http, journal
from mqcore.bridge import plugins
from mqcore.bridge.message import Message
from mqcore.bridge.runner import Runner
from mqcore.bridge.server_sent import Parser

uvloop.run(asyncio.sleep(0))        # opens what it never closes: before anything is counted


@pytest.fixture(autouse=True)
def default_context():
    """The bridge's sockets are the default context's, which ends with the test."""
    yield
    mq.Context.default().close(0)


@contextlib.asynccontextmanager
async def served(handler):
    """handler(request) at any path. Yields http://127.0.0.1:port."""
    async def handle(request):
        return await handler(request)
    app = web.Application(client_max_size=1 << 24)
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    finally:
        await runner.cleanup()


class Hook:
    """A webhook. `answers`: statuses, headers or None (it dies) for bodies, one each time.
    `crowd`: it does not answer until so many requests have been under way at once."""

    def __init__(self, crowd=1, **answers):
        self.crowd, self.met = crowd, asyncio.Event()
        self.answers = {name.removeprefix("n").encode(): list(rows)
                        for name, rows in answers.items()}
        self.bodies, self.requests, self.under_way, self.most = [], [], 0, 0

    async def __call__(self, request):
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            body = await request.read()
            if self.most >= self.crowd:
                self.met.set()
            await self.met.wait()
            self.requests.append((request.method, request.path_qs, request.headers.copy()))
            rows = self.answers.get(body)
            if rows:
                answer = rows.pop(0)
                if answer is None:      # the server dies with the request in its hands
                    request.transport.abort()
                    return web.Response()
                status, headers = answer if isinstance(answer, tuple) else (answer, {})
                return web.Response(status=status, headers=headers, text="for a reason\r\n")
            self.bodies.append(int(body))
            return web.Response(status=202, text="taken")
        finally:
            self.under_way -= 1


def test_each_message_is_posted_in_order():
    async def main():
        hook, source = Hook(), Numbers(50)
        async with served(hook) as url:
            runner = Runner(source, f"{url}/in?a=b%20c&bearer=secret&header=X-One:two&lanes=1")
            await moved(runner, lambda: len(source.done) == 50)
            assert "secret" not in runner.explain()
        assert hook.bodies == list(range(50)) and hook.most == 1
        method, path, headers = hook.requests[7]
        assert (method, path) == ("POST", "/in?a=b+c")
        assert headers["Authorization"] == "Bearer secret" and headers["X-One"] == "two"
        assert headers["Idempotency-Key"] == "7"
        assert headers["Content-Type"] == "application/octet-stream"
        laws(runner.stats())
    asyncio.run(main())


def test_what_passes_is_sent_again_and_what_does_not_is_a_dead_letter():
    async def main():
        hook = Hook(n2=[503, 500], n3=[429], n4=[400] * 9, n5=[None], n6=[422] * 9, n7=[409, 401],
                    n8=[302], n9=[413] * 9)
        source, letters = Numbers(12), Sink()
        async with served(hook) as url:
            runner = Runner(source, f"{url}/in", dead=letters, pause=0.001, longest_pause=0.01)
            await moved(runner, lambda: len(source.done) == 12)
        assert hook.bodies == [0, 1, 2, 3, 5, 7, 8, 10, 11]
        assert bodies(letters) == [4, 6, 9]
        why = dict(letters.taken[0].headers)["dead-reason"]
        assert b"answers 400" in why and b"for a reason" in why
        assert runner.stats().target_reconnects == 7
        laws(runner.stats())
    asyncio.run(main())


@pytest.mark.parametrize(("told", "least", "most"), [
    ("20", 19, 21), ("Wed, 01 Jan 2020 00:00:00 GMT", -1, 1), ("nonsense", -1, 1), ("-5", -1, 1),
    ("", -1, 1), ("9" * 400, 3590, 3601), ("Fri, 01 Jan 2999 00:00:00 GMT", 3590, 3601)])
def test_what_a_retry_after_says(told, least, most):
    target = plugins.target("http://h/")
    now = time.monotonic()
    target.wait(told)
    assert least <= target.not_before - now <= most


def test_retry_after_is_waited_for():
    async def main():
        hook, source = Hook(n1=[(503, {"Retry-After": "1"})]), Numbers(3)
        async with served(hook) as url:
            loop = asyncio.get_running_loop()
            began = loop.time()
            runner = Runner(source, f"{url}/in", pause=0.001)
            await moved(runner, lambda: len(source.done) == 3)
            assert loop.time() - began >= 1.0
            assert hook.bodies == [0, 1, 2] and runner.stats().target_reconnects == 1
    asyncio.run(main())


class Keys(Numbers):
    async def receive(self, most):
        found = await super().receive(most)
        for message in found:
            message.key = b"k%d" % (message.token % 7)
        return found


def test_lanes_keep_the_order_of_each_key():
    """Some fail in between. What a lane has delivered behind a failure is not sent again."""
    async def main():
        hook = Hook(2, **{f"n{n}": [503] for n in range(20, 300, 23)})
        source = Keys(300)
        async with served(hook) as url:
            runner = Runner(source, f"{url}/in?lanes=5", pause=0.001, longest_pause=0.01)
            await moved(runner, lambda: len(source.done) == 300)
        assert 1 < hook.most <= 5
        assert sorted(hook.bodies) == list(range(300))
        for rest in range(7):
            one = [n for n in hook.bodies if n % 7 == rest]
            assert one == sorted(one)
        laws(runner.stats())
    asyncio.run(main())


def test_a_hook_that_does_not_answer_is_asked_again():
    async def main():
        stuck = [True]

        async def handler(request):
            body = await request.read()
            if body == b"1" and stuck:
                stuck.pop()
                await asyncio.Event().wait()
            taken.append(body)
            return web.Response()
        taken = []
        source, letters = Numbers(3), Sink()
        async with served(handler) as url:
            runner = Runner(source, f"{url}/in?timeout=0.3", dead=letters, pause=0.001)
            await moved(runner, lambda: len(source.done) == 3)
        assert not letters.taken and set(taken) == {b"0", b"1", b"2"}
    asyncio.run(main())


def test_an_answer_without_an_end_is_not_read():
    async def main():
        async def handler(request):
            answer = web.StreamResponse()
            await answer.prepare(request)
            with contextlib.suppress(ConnectionError):
                while True:
                    await answer.write(b"x" * 65536)
            return answer
        source = Numbers(3)
        async with served(handler) as url:
            runner = Runner(source, f"{url}/in", pause=0.001)
            await moved(runner, lambda: len(source.done) == 3)
        laws(runner.stats())
    asyncio.run(main())


@pytest.mark.parametrize("name", ["a b", "a:b", "", "é", "a\r\nb", "Content-Length", "host",
                                  "authorization"])
def test_headers_that_http_cannot_carry(name):
    target = plugins.target("http://h/")
    with pytest.raises(ValueError, match="rename or remove it"):
        target.prepared(Message(b"", headers=[(name, b"x")]))


def test_headers_that_pass():
    headers = plugins.target("http://h/").prepared(Message(b"", headers=[
        ("content-type", b"text/plain"), ("x", b"\xff\r\nHost: evil")], id="a\nb"))
    assert headers == {"Content-Type": "text/plain", "x": "\\xff\\r\\nHost: evil",
                       "Idempotency-Key": "a\\nb"}


@pytest.mark.parametrize(("address", "word"), [
    ("http:///p", "no host"), ("http://h/?lanes=0", "lanes"), ("http://h/?method=GET", "method"),
    ("http://h/?form=xml", "form"), ("http://h/?header=x", "NAME:VALUE"),
    ("http://h/?idle=0", "idle"), ("http://h/?max_bytes=0", "max_bytes"),
], ids=str)
def test_addresses_with_mistakes(address, word):
    for make in (plugins.source, plugins.target):
        with pytest.raises(mq.Error, match=word):
            make(address)


# -- Server-Sent Events --


def events(text, sizes):
    """The same, however the bytes are cut."""
    parser, found, data = Parser(1 << 20), [], text
    while data:
        size = sizes.pop(0) if sizes else len(data)
        found += parser.feed(data[:size])
        data = data[size:]
    return [(event.data, event.kind, event.last, event.own) for event in found]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=repr)
@pytest.mark.parametrize("step", [1, 2, 3, 1000])
def test_the_parser(end, step):
    text = end.join([
        b"\xef\xbb\xbf: comment", b"data: one", b"data", b"data:two", b"id: 1", b"", b"event: x",
        b"data:  spaced", b"", b"", b"id: 2", b"", b"data: no id of its own", b"", b"id: a\0b",
        b"data: \xff", b"retry: 5", b"", b"unknown: y", b"data: unfinished"])
    assert events(text, [step] * len(text)) == [
        (b"one\n\ntwo", "", "1", True), (b" spaced", "x", "1", False),
        (b"no id of its own", "", "2", False), (b"\xff", "", "2", False)]


def test_an_event_without_an_end_is_bounded():
    for chunk in (b"x" * 100, b"data: x\n" * 20):
        parser = Parser(1000)
        with pytest.raises(ConnectionError, match="max_bytes"):
            for _ in range(1000):
                parser.feed(chunk)


class Stream:
    """Events 0 to count - 1, after Last-Event-ID. `cuts`: the connection breaks after so many."""

    def __init__(self, count, cuts=()):
        self.count, self.cuts, self.asked = count, list(cuts), []

    async def __call__(self, request):
        last = request.headers.get("Last-Event-ID")
        self.asked.append(last)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await answer.prepare(request)
        first = 0 if last is None else int(last) + 1
        stop = self.cuts.pop(0) if self.cuts else self.count
        for n in range(first, min(stop, self.count)):
            await answer.write(b"id: %d\ndata: %d\n\n" % (n, n))
        if stop < self.count:
            request.transport.close()
            return answer
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return answer


def test_an_event_stream_that_breaks_goes_on(tmp_path):
    async def main():
        stream, sink = Stream(300, cuts=[40, 41, 250]), Sink()
        async with served(stream) as url:
            runner = Runner(f"{url}/events?state={tmp_path}/last", sink, batch=10, window=50,
                            pause=0.001)
            await moved(runner, lambda: len(sink.taken) == 300 and not runner.stats().held)
            assert bodies(sink) == list(range(300))
            assert stream.asked[0] is None and runner.stats().source_reconnects == 3
            assert (tmp_path / "last").read_text() == "299"
            laws(runner.stats())
            stream.count = 305          # another bridge goes on behind it
            later = Sink()
            runner = Runner(f"{url}/events?state={tmp_path}/last", later)
            await moved(runner, lambda: runner.stats().acknowledged == 5)
            assert bodies(later) == list(range(300, 305))
    asyncio.run(main())


def test_what_the_target_does_not_have_is_asked_for_again(tmp_path):
    class Stuck(Sink):
        async def send(self, messages):
            if len(self.taken) >= 20:
                await asyncio.Event().wait()
            return await super().send(messages)

    async def main():
        stream, sink = Stream(100), Stuck()
        async with served(stream) as url:
            where = f"{url}/events?state={tmp_path}/last"
            runner = Runner(where, sink, batch=10, window=50)
            task = asyncio.ensure_future(runner.run(linger=0))
            async with asyncio.timeout(LIMIT):
                while runner.stats().acknowledged < 20:
                    await asyncio.sleep(0.005)
            runner.stop()
            await task
            rest = Sink()
            runner = Runner(where, rest)
            await moved(runner, lambda: runner.stats().acknowledged == 80)
            assert bodies(rest) == list(range(20, 100)) and stream.asked == [None, "19"]
    asyncio.run(main())


def test_events_that_share_an_id_are_all_delivered():
    """Such ids do not say that an event has come before."""
    async def main():
        async def handler(request):
            answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await answer.prepare(request)
            await answer.write(b"".join(b"id: 7\ndata: %d\n\n" % n for n in range(10)))
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return answer
        sink = Sink()
        async with served(handler) as url:
            runner = Runner(f"{url}/", sink)
            await moved(runner, lambda: runner.stats().acknowledged == 10)
            assert bodies(sink) == list(range(10)) and runner.stats().repeats == 0
            assert "no acknowledgments" in runner.explain()
    asyncio.run(main())


@pytest.mark.parametrize(("status", "kind"), [(200, "text/html"), (204, "text/event-stream"),
                                              (503, "text/event-stream")])
def test_what_is_no_event_stream_is_tried_again(status, kind):
    async def main():
        async def handler(_):
            return web.Response(status=status, content_type=kind)
        async with served(handler) as url:
            runner = Runner(f"{url}/", Sink(), pause=0.001, longest_pause=0.002)
            await moved(runner, lambda: runner.stats().source_reconnects >= 3)
            assert f"answers {status}" in str(runner.source.error)
    asyncio.run(main())


def test_a_wrong_token_ends_the_bridge():
    async def main():
        async def handler(_):
            return web.Response(status=401)
        async with served(handler) as url:
            with pytest.raises(mq.UsageError, match="refuses this client"):
                async with asyncio.timeout(LIMIT):
                    await Runner(f"{url}/?bearer=secret", Sink()).run()
    asyncio.run(main())


def test_a_topic_behind_the_gateway_of_ours(tmp_path):
    """mq http gives envelopes, with keys and headers."""
    with journal.open(tmp_path / "j", "a", topic="t") as log:
        for n in range(30):
            log.append(b"%d" % n, key=b"k%d" % n, headers=[("n", b"%d" % n)])
    with http.serve({"/t": f"journal:{tmp_path}/j?topic=t"}, bind="http://127.0.0.1:0") as server:
        async def main():
            class Keyed(Sink):
                keyed = True
            sink = Keyed()
            runner = Runner(f"{server.url}/t?from=first&form=mqcore&state={tmp_path}/last", sink)
            await moved(runner, lambda: runner.stats().acknowledged == 30)
            assert bodies(sink) == list(range(30))
            assert [(message.key, message.headers) for message in sink.taken][3] == \
                (b"k3", [("n", b"3")])
        asyncio.run(main())


def test_what_is_no_envelope_is_a_dead_letter():
    async def main():
        rows = [json.dumps({"text": "0"}), "nonsense", json.dumps({"base64": "MQ=="}),
                json.dumps({"text": 5})]

        async def handler(request):
            answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await answer.prepare(request)
            for row in rows:
                await answer.write(b"data: %s\n\n" % row.encode())
            await answer.write(b'event: lost\ndata: {"lost":3}\n\n')
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return answer
        sink, letters = Sink(), Sink()
        async with served(handler) as url:
            runner = Runner(f"{url}/?form=mqcore", sink, dead=letters)
            await moved(runner, lambda: runner.stats().acknowledged == 4)
            assert bodies(sink) == [0, 1]
            assert [message.body for message in letters.taken] == [b"nonsense", b'{"text": 5}']
            assert "1 gaps" in runner.explain()
    asyncio.run(main())
