"""What becomes of requests: each kind of route, envelopes, positions, refusals."""

import errno
import threading

import pytest
from gateways import problem

import mqcore as mq
from mqcore import journal

ENVELOPE = {"content-type": "application/vnd.mqcore+json"}
LIMIT = 60


@pytest.fixture
def replier(url):
    """A replier that answers in capitals."""
    with mq.Rep(bind=url) as rep:
        def run():
            try:
                while True:
                    request = rep.recv_msg()
                    request.reply(bytes(request.parts[0]).upper())
            except mq.SocketClosed:
                pass
        thread = threading.Thread(target=run)
        thread.start()
        yield url
        rep.close(linger=0)
        thread.join()


def test_push(opened, url):
    _, client = opened({"/orders": f"push:{url}"})
    with mq.Pull(bind=url) as pull:
        answer = client.post("/orders", content=b"17 pears")
        assert (answer.status_code, answer.content) == (202, b"")
        assert pull.recv(timeout=LIMIT) == b"17 pears"
        for body, text in ((b'{"text":"\xc3\xa4"}', "ä".encode()), (b'{"base64":"AAE="}', b"\0\1"),
                           (b'{"json":{"a": [1]}}', b'{"a": [1]}')):
            assert client.post("/orders", content=body, headers=ENVELOPE).status_code == 202
            assert pull.recv(timeout=LIMIT) == text


def test_a_full_socket_refuses(opened, url):
    _, client = opened({"/orders": f"push:{url}1?linger=0&send_hwm=2",
                        "/nobody": f"push+bind:{url}2?linger=0"})
    while (answer := client.post("/orders", content=b"x")).status_code == 202:
        pass        # queued for a peer that is still to come
    said = problem(answer, 503, "full")
    assert "all its peers are full" in said["detail"]
    answer = client.post("/nobody", content=b"x")
    said = problem(answer, 503, "full")
    assert int(answer.headers["retry-after"]) >= 1
    assert "no peer is connected" in said["detail"]


def test_request(opened, replier):
    _, client = opened({"/ask": f"req:{replier}?type=text/plain"})
    answer = client.post("/ask", content=b"hello")
    assert (answer.status_code, answer.content) == (200, b"HELLO")
    assert answer.headers["content-type"] == "text/plain"
    answer = client.post("/ask", content=b"hello", headers={"accept": ENVELOPE["content-type"]})
    assert answer.json() == {"text": "HELLO"}
    problem(client.get("/ask"), 405, "method")


def test_a_request_without_a_reply(opened, url):
    _, client = opened({"/ask": f"req:{url}?timeout=0.05&linger=0"})
    problem(client.post("/ask", content=b"hello"), 504, "no_reply")


def test_pull(opened, url):
    _, client = opened({"/jobs": f"pull+bind:{url}"})
    assert client.get("/jobs").status_code == 204
    with mq.Push(connect=url) as push:
        push.send_many([b"one", b"\xff"], timeout=LIMIT)
        assert client.get("/jobs?wait=60").content == b"one"
        answer = client.get("/jobs?wait=60", headers={"accept": ENVELOPE["content-type"]})
        assert answer.json() == {"base64": "/w=="}


def test_subscription(opened, url):
    server, client = opened({"/prices": f"sub:{url}?topic=px.&hold=3"})
    with mq.Pub(bind=url) as pub:
        pub.wait_subscribers(b"px.", timeout=LIMIT)
        for n in range(5):
            pub.send_parts([b"px.a", b"%d" % n])
        pub.send(b"other")
        found, at = [], "first"
        while not found or found[-1]["text"] != "4":
            answer = client.get("/prices", params={"from": at, "wait": 60})
            assert answer.status_code == 200
            found += answer.json()["messages"]
            at = answer.json()["next"]
            assert answer.headers["mq-next"] == at
        assert {one["topic"] for one in found} == {"px.a"}
        answer = client.get("/prices", params={"from": at})
        assert answer.status_code == 204 and answer.headers["mq-next"] == at
        # the ring holds 3 of the 5
        answer = client.get("/prices", params={"from": at.rpartition("-")[0] + "-0"}).json()
        assert answer["lost"] == 2 and [m["text"] for m in answer["messages"]] == ["2", "3", "4"]
        assert client.get("/prices?from=first&max=1").json()["messages"][0]["text"] == "2"
        assert client.get("/prices?from=0badcafe-1").json()["lost"] == -1     # an earlier life
        assert server.stats().lost >= 2
    problem(client.get("/prices?from=nonsense"), 400, "position")
    problem(client.get("/prices?wait=long"), 400, "query")
    problem(client.get("/prices?max=0"), 400, "query")


def test_publish(opened, url):
    _, client = opened({"/news": f"pub+bind:{url}?topic=n"})
    with mq.Sub(connect=url, topics=[""]) as sub:
        answer = None
        while answer is None:       # until the subscription has arrived
            assert client.post("/news", content=b"x").status_code == 202
            try:
                answer = sub.recv_parts(timeout=0.1)
            except mq.RecvTimeout:
                continue
        assert answer == [b"n", b"x"]


class Full:
    """A writer whose disk is full: from the start, or only when it commits."""

    def __init__(self, writer, takes):
        self.writer, self.takes = writer, takes

    @property
    def next(self):
        return self.writer.next

    def append(self, value, **more):
        if not self.takes:
            raise journal.JournalFull("no space left", errno=errno.ENOSPC)
        return self.writer.append(value, **more)

    async def acommit(self):
        raise journal.JournalFull("no space left", errno=errno.ENOSPC)

    async def aclose(self):
        await self.writer.aclose()


@pytest.mark.parametrize(("takes", "says"), [(False, "did not take"), (True, "has not stored")])
def test_a_journal_on_a_full_disk(opened, tmp_path, takes, says):
    """A message that is sent again after it was taken would be there twice: the answer says so."""
    server, client = opened({"/log": f"journal:{tmp_path}/j"})
    log = server.gateway.backends["/log"]
    log.writer = Full(log.writer, takes)
    answer = client.post("/log", content=b"x")
    assert answer.status_code == 503 and says in answer.text
    assert ("twice" in answer.text) == takes


def test_journal(opened, tmp_path):
    _, client = opened({"/log": f"journal:{tmp_path}/j?topic=t",
                        "/seen": f"journal:{tmp_path}/j?topic=t&append=no"})
    assert client.get("/log").status_code == 204
    for n in range(3):
        answer = client.post("/log", content=b"%d" % n)
        assert (answer.status_code, answer.json()) == (201, {"offset": n})
    body = b'{"text":"3","key":"k","headers":{"a":"b"}}'
    assert client.post("/log", content=body, headers=ENVELOPE).json() == {"offset": 3}
    said = client.get("/log?from=1").json()
    assert [one["text"] for one in said["messages"]] == ["1", "2", "3"]
    assert [one["id"] for one in said["messages"]] == ["1", "2", "3"]
    assert said["messages"][2]["key"] == "k" and said["messages"][2]["headers"] == {"a": "b"}
    assert (said["next"], said["lost"]) == ("4", 0)
    assert client.get("/seen?from=4&wait=0").status_code == 204
    problem(client.get("/log?from=17"), 400, "position")
    problem(client.post("/seen", content=b"x"), 405, "method")


def test_a_long_poll_waits_for_an_append(opened, tmp_path):
    server, client = opened({"/log": f"journal:{tmp_path}/j"})
    found = []
    thread = threading.Thread(
        target=lambda: found.append(client.get("/log?wait=60").json()["messages"][0]["text"]))
    thread.start()
    while server.stats().streams == 0:
        thread.join(0.002)
    assert client.post("/log", content=b"late").status_code == 201
    thread.join(LIMIT)
    assert found == ["late"]


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"{}", b'{"text":1}', b'{"text":"a","json":1}', b'{"txt":"a"}', b"\xff",
    b'{"base64":"?"}', b'{"text":"\\ud800"}', b"[" * 10000, b'{"text":"a","key":' + b'"' * 3,
    b'{"text":"a","headers":{"a":1}}', b'{"text":"a","topic":"' + b"x" * 2000 + b'"}',
    b'{"text":null}', b'{"text":null,"json":1,"key":"k"}',
])
def test_bad_envelopes(opened, tmp_path, body):
    server, client = opened({"/log": f"journal:{tmp_path}/j"})
    problem(client.post("/log", content=body, headers=ENVELOPE), 400, "envelope")
    assert server.stats().problems == {"envelope": 1}


@pytest.mark.parametrize("kind", ["push", "pub", "req"])
def test_a_socket_has_no_null(opened, url, kind):
    server, client = opened({"/it": f"{kind}:{url}?linger=0"})
    said = problem(client.post("/it", content=b'{"text":null}', headers=ENVELOPE), 400, "envelope")
    assert "empty message" in said["hint"]


def test_what_is_not_declared(opened, url):
    server, client = opened({"/orders": f"push:{url}?linger=0"})
    for path in ("/", "/order", "/orders/", "/%6Frders/../x", "/-/nothing"):
        problem(client.get(path), 404, "route")
    said = problem(client.delete("/orders"), 405, "method")
    assert "POST" in said["hint"]
    assert client.get("/-/health").json() == {"status": "ok"}
    found = client.get("/-/stats").json()
    assert found["requests"] == 8 and found["refused"] == 6 and found["answered"] == 1
    assert found["problems"] == {"route": 5, "method": 1}
