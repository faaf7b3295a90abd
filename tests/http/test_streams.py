"""Server-Sent Events and WebSockets: order, resuming, what is lost, both ways."""

import asyncio
import contextlib
import errno
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from gateways import problem
from waiting import until
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

import mqcore as mq
from mqcore import http, journal
from mqcore.http.route import parse

ENVELOPE = {"content-type": "application/vnd.mqcore+json"}

LIMIT = 60


def events(client, path, n, **headers):
    """The first n events: {"event", "id", "data"}; comments count as {}."""
    found, now = [], {}
    with client.stream("GET", path, headers={"accept": "text/event-stream", **headers}) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"] == "text/event-stream"
        for line in answer.iter_lines():
            if line:
                name, _, value = line.partition(":")
                if name:
                    now[name] = value.strip()
                continue
            found.append(now)
            now = {}
            if len(found) == n:
                return found
    return found


def websocket(server, path, **options):
    return connect(server.url.replace("http", "ws", 1) + path, open_timeout=LIMIT, proxy=None,
                   compression=None, **options)


def test_events_resume_at_an_offset(opened, tmp_path):
    _, client = opened({"/log": f"journal:{tmp_path}/j"})
    for n in range(5):
        client.post("/log", content=b"%d" % n)
    first, *rest = events(client, "/log", 4)
    assert first == {}
    assert [(one["id"], json.loads(one["data"])["text"]) for one in rest] == \
        [("0", "0"), ("1", "1"), ("2", "2")]
    _, *rest = events(client, "/log", 3, **{"last-event-id": "2"})
    assert [one["id"] for one in rest] == ["3", "4"]


def test_a_tombstone_is_null(opened, tmp_path):
    with journal.open(tmp_path / "j", "a", topic="t") as log:
        log.append_many([b"", None, b"x"], keys=[b"k"] * 3)
    server, client = opened({"/log": f"journal:{tmp_path}/j?topic=t&append=no"})
    found = client.get("/log").json()["messages"]
    assert [(one["text"], one["key"]) for one in found] == [("", "k"), (None, "k"), ("x", "k")]
    with websocket(server, "/log?form=raw&from=first") as raw:
        assert [raw.recv(LIMIT) for _ in range(3)] == [b"", b"", b"x"]


def test_an_empty_key_is_one(opened, tmp_path):
    """And the time 0 is one."""
    with journal.open(tmp_path / "j", "a", topic="t") as log:
        log.append(b"v", key=b"", time=0)
        log.append(None, key=b"")
        log.append(b"w")
    _, client = opened({"/log": f"journal:{tmp_path}/j?topic=t"})
    client.post("/log", json={"text": None, "key": ""}, headers=ENVELOPE)
    found = client.get("/log").json()["messages"]
    assert [(one["text"], one.get("key")) for one in found] == \
        [("v", ""), (None, ""), ("w", None), (None, "")]
    assert found[0]["time"] == 0


def test_a_null_is_a_tombstone(opened, tmp_path):
    server, client = opened({"/log": f"journal:{tmp_path}/j"})
    assert client.post("/log", json={"text": None, "key": "k"}, headers=ENVELOPE).json() == \
        {"offset": 0}
    with websocket(server, "/log?form=json&from=end") as both:
        both.send('{"text": null, "key": "other"}')
        said = [json.loads(both.recv(LIMIT)) for _ in range(2)]  # the answer, and what is followed
        assert {"offset": 1} in said
        assert [one["text"] for one in said if "id" in one] == [None]
    with journal.open(tmp_path / "j") as reader:
        records = reader.read(0)
        assert records.to_list() == [None, None]
        assert [records.key(0), records.key(1)] == [b"k", b"other"]


def test_a_client_that_claims_the_end_gets_what_comes(opened, tmp_path):
    _, client = opened({"/log": f"journal:{tmp_path}/j"})
    client.post("/log", content=b"0")
    with ThreadPoolExecutor() as pool:
        later = pool.submit(events, client, "/log", 2, **{"last-event-id": "1"})
        until(lambda: client.get("/-/stats").json()["streams"] == 1)
        client.post("/log", content=b"1")
        assert [one["id"] for one in later.result(LIMIT)[1:]] == ["1"]


def failing_once(monkeypatch, owner, name, wrap):
    """The first that comes of owner.name is an error, as if descriptors or memory were short."""
    real, failed = getattr(owner, name), []

    def fail():
        if not failed:
            failed.append(True)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(owner, name, wrap(real, fail))
    return failed


def received(real, fail):
    async def receive(*args, **options):
        parts = await real(*args, **options)
        fail()
        return parts
    return receive


def followed(real, fail):
    async def follow(*args, **options):
        async for records in real(*args, **options):
            fail()
            yield records
    return follow


def test_a_topic_is_followed_on_after_an_error(opened, tmp_path, monkeypatch):
    failed = failing_once(monkeypatch, journal.Reader, "afollow", followed)
    _, client = opened({"/log": f"journal:{tmp_path}/j"})
    with ThreadPoolExecutor() as pool:
        later = pool.submit(events, client, "/log", 3)
        until(lambda: client.get("/-/stats").json()["streams"] == 1)
        client.post("/log", content=b"0")
        until(lambda: failed)
        client.post("/log", content=b"1")
        assert [one["id"] for one in later.result(LIMIT)[1:]] == ["0", "1"]


def test_a_subscription_goes_on_after_an_error(opened, url, monkeypatch):
    failed = failing_once(monkeypatch, mq.Sub, "arecv_parts", received)
    _, client = opened({"/sub": f"sub:{url}"})
    with mq.Pub(bind=url) as pub:
        pub.wait_subscribers(timeout=LIMIT)
        pub.send(b"lost with the error")
        until(lambda: failed)
        pub.send(b"next")
        found = client.get("/sub", params={"from": "first", "wait": 30}).json()["messages"]
    assert [one["text"] for one in found] == ["next"]


def test_requests_go_on_after_an_error(opened, url, monkeypatch):
    failing_once(monkeypatch, mq.Dealer, "arecv_parts", received)
    _, client = opened({"/ask": f"req+bind:{url}?timeout=2"})
    with mq.Rep(connect=url) as rep:
        def serve():
            for message in rep.messages():
                message.reply(message.body)
        server = threading.Thread(target=serve)
        server.start()
        rep.wait_peers(timeout=LIMIT)
        # 503 until the gateway has seen its replier
        lost = until(lambda: (answer := client.post("/ask", content=b"lost")).status_code != 503
                     and answer)
        assert lost.status_code == 504
        until(lambda: client.post("/ask", content=b"next").status_code == 200)
        rep.close()
        server.join()


@pytest.mark.parametrize(("kind", "let_in"), [("http", "http.response.start"),
                                              ("websocket", "websocket.accept")])
def test_what_comes_right_after_the_client_was_let_in_is_in_the_stream(tmp_path, kind, let_in):
    """Also from=end: a client may publish as soon as it knows that its stream has begun."""
    async def main():
        gateway = http.Gateway([parse("/log", f"journal:{tmp_path}/j")])
        await gateway.start()
        scope = {"path": "/log", "query_string": b"from=end",
                 "headers": [(b"accept", b"text/event-stream")]}
        found = asyncio.Queue()

        async def nothing():
            await asyncio.Event().wait()

        async def post(n):
            await gateway({**scope, "type": "http", "method": "POST"}, messages.get, found.put)

        async def send(message):
            if message["type"] == let_in:
                await post(1)
            found.put_nowait(message)

        messages = asyncio.Queue()
        for n in range(2):
            messages.put_nowait({"type": "http.request", "body": b"m%d" % n, "more_body": False})
        await post(0)
        connected = asyncio.Queue()
        connected.put_nowait({"type": "websocket.connect"})
        stream = asyncio.ensure_future(gateway(
            {**scope, "type": kind}, nothing if kind == "http" else connected.get, send))
        async with asyncio.timeout(LIMIT):
            while b'"text":"m1"' not in str(await found.get()).encode():
                pass
        gateway.drain()
        await stream
        await gateway.stop()

    asyncio.run(main())


def test_events_say_what_is_lost(opened, url):
    server, client = opened({"/prices": f"sub:{url}?hold=2"})
    with mq.Pub(bind=url) as pub:
        pub.wait_subscribers(b"", timeout=LIMIT)
        for n in range(5):
            pub.send(b"%d" % n)
        at = ""
        while not at.endswith("-5"):
            at = client.get("/prices?from=first&wait=60").json()["next"]
        life = at.partition("-")[0]
        before = server.stats().lost        # to a poll that came late
        _, lost, *rest = events(client, "/prices", 4, **{"last-event-id": f"{life}-0"})
        assert lost == {"event": "lost", "data": '{"lost":2}'}      # 1 and 2
        assert [json.loads(one["data"])["text"] for one in rest] == ["3", "4"]
        assert server.stats().lost == before + 2


@pytest.mark.parametrize("query", ["?from=9", "?from=x"])
def test_an_unknown_position_is_told_before_the_stream_begins(opened, tmp_path, query):
    server, client = opened({"/log": f"journal:{tmp_path}/j"})
    answer = client.get("/log" + query, headers={"accept": "text/event-stream"})
    problem(answer, 400, "position")
    with pytest.raises(InvalidStatus) as refused, websocket(server, "/log" + query):
        pass
    assert refused.value.response.status_code == 400


def test_heartbeats(opened, tmp_path):
    _, client = opened({"/log": f"journal:{tmp_path}/j"}, limits=http.Limits(heartbeat=0.01))
    assert events(client, "/log", 4) == [{}, {}, {}, {}]


def test_a_stream_ends_with_the_gateway(opened, tmp_path):
    server, client = opened({"/log": f"journal:{tmp_path}/j"})
    found = []
    thread = threading.Thread(target=lambda: found.extend(events(client, "/log", 10)))
    thread.start()
    while server.stats().streams == 0:
        thread.join(0.002)
    server.stop()
    thread.join(LIMIT)
    assert found[-1] == {"event": "end", "data": "{}"}


def test_websocket_both_ways_over_a_journal(opened, tmp_path):
    server, _ = opened({"/log": f"journal:{tmp_path}/j"})
    with websocket(server, "/log") as socket:
        for n in range(3):
            socket.send(json.dumps({"text": str(n)}))
        found = [json.loads(socket.recv(timeout=LIMIT)) for _ in range(6)]
        assert [one["offset"] for one in found if "offset" in one] == [0, 1, 2]
        assert [one["text"] for one in found if "id" in one] == ["0", "1", "2"]
    with websocket(server, "/log?from=2&form=raw") as socket:
        assert socket.recv(timeout=LIMIT) == b"2"


def test_websocket_requests(opened, url):
    server, _ = opened({"/ask": f"req:{url}"})
    with mq.Rep(bind=url) as rep, websocket(server, "/ask") as socket:
        for body in ("text", b"\xff"):
            socket.send(body)
            request = rep.recv_msg(timeout=LIMIT)
            request.reply(bytes(request.parts[0]) * 2)
            assert socket.recv(timeout=LIMIT) == body * 2


def test_websocket_pair(opened, url):
    server, _ = opened({"/pair": f"pair:{url}"})
    with mq.Pair(bind=url) as pair, websocket(server, "/pair") as socket:
        socket.send(b"in")
        assert pair.recv(timeout=LIMIT) == b"in"
        pair.send(b"out", timeout=LIMIT)
        assert socket.recv(timeout=LIMIT) == b"out"
        server.stop()
        with pytest.raises(ConnectionClosed) as caught:
            socket.recv(timeout=LIMIT)
        assert caught.value.rcvd.code == 1001
        assert caught.value.rcvd.reason == "the gateway ends; connect again later"


@pytest.mark.parametrize(("path", "sent", "code"), [
    ("/news", "x", 1008),       # may only receive
    ("/log", "{", 1008),        # no envelope
    ("/log", "x" * 2000, 1009),
])
def test_websocket_refusals(opened, url, tmp_path, path, sent, code):
    server, _ = opened({"/news": f"sub:{url}", "/log": f"journal:{tmp_path}/j"},
                       limits=http.Limits(body_bytes=1000))
    with websocket(server, path) as socket:
        with contextlib.suppress(ConnectionClosed):
            socket.send(sent)
        with pytest.raises(ConnectionClosed) as caught:
            socket.recv(timeout=LIMIT)
        assert caught.value.rcvd.code == code and caught.value.rcvd.reason


class Mistake(Exception):
    pass


@pytest.mark.parametrize("way", ["send", "read"])
def test_a_websocket_that_meets_a_mistake_of_the_gateway_is_closed_with_1011(
        opened, tmp_path, monkeypatch, caplog, way):
    server, _ = opened({"/log": f"journal:{tmp_path}/j"})
    backend = server.gateway.backends["/log"]
    with websocket(server, "/log") as talk:
        talk.send('{"text":"first"}')
        while "first" not in talk.recv(LIMIT):      # after the answer, or before
            pass

        def fail(*args, **options):
            raise Mistake

        monkeypatch.setattr(backend if way == "send" else backend.feed, way, fail)
        talk.send('{"text":"second"}')
        with pytest.raises(ConnectionClosed) as caught:
            while True:
                talk.recv(LIMIT)
        assert caught.value.rcvd.code == 1011 and "mistake" in caught.value.rcvd.reason
    monkeypatch.undo()
    until(lambda: not server.stats().in_progress, LIMIT)
    assert server.stats().problems == {"internal": 1}
    assert "Mistake" in caplog.text and "ASGI" not in caplog.text


def test_a_websocket_to_nowhere(opened, url):
    server, _ = opened({"/news": f"sub:{url}"})
    for path, status in (("/other", 404), ("/news?form=xml", 400), ("/news?from=x", 400)):
        with pytest.raises(InvalidStatus) as caught, websocket(server, path):
            pass
        assert caught.value.response.status_code == status
        assert json.loads(caught.value.response.body)["hint"]


def test_a_topic_that_is_renamed_and_made_anew(opened, tmp_path):
    """Meanwhile the answer says so, and the route goes on with what has its name next."""
    where = tmp_path / "j"
    with journal.open(where, "a", topic="t") as log:
        log.append(b"old")
    _, client = opened({"/log": f"journal:{where}?topic=t&append=no"})
    assert [one["text"] for one in client.get("/log?from=first").json()["messages"]] == ["old"]
    journal.rename(where, topic="t", to="was")
    answer = client.get("/log?from=first")
    assert answer.status_code == 503 and "is not there" in answer.json()["detail"]
    assert answer.headers["retry-after"] == "1"
    with journal.open(where, "a", topic="t") as log:
        log.append(b"new")

    def found():
        answer = client.get("/log?from=first")
        return answer.status_code == 200 and answer.json()["messages"]
    assert [one["text"] for one in until(found)] == ["new"]
