"""The console without a browser: what it serves, to whom, and what it refuses."""

import contextlib
import json
import signal
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request

import pytest
from certificates import Authority
from programs import mq as command
from programs import run, starter
from waiting import until

import mqcore as mq
from mqcore import journal
from mqcore.console import Console, requests, web
from mqcore.console.control import WATCHES, shown
from mqcore.console.requests import PAGE_ROWS
from mqcore.console.serving import PAGES, as_browsers_write, check_host, places_of
from mqcore.console.stores import query
from mqcore.console.views import reasons
from mqcore.console.web import CONNECTIONS

LIMIT = 60
COPY = ("mqcore/console/page/zws.js", "examples/browser/zws.js")


def live(console):
    """Where the page's requests go."""
    return console._rep.endpoints[0].url


@contextlib.contextmanager
def asking(console):
    """A page without a browser: ask(op, ...) gives the answer."""
    with mq.Context(monitor=False) as context, mq.Req(
            connect=live(console), context=context, recv_timeout=LIMIT, send_timeout=LIMIT) as req:
        def ask(op, **fields):
            return json.loads(req.request(json.dumps({"op": op, **fields}).encode()))
        ask.raw = req.request
        yield ask


@pytest.fixture
def program():
    """program(pattern, bind=...) makes a socket of a monitored context in this process."""
    made = []
    with mq.Context(monitor=True) as context:
        def make(pattern, **how):
            made.append(mq.socket(pattern, context=context, linger=0, **how))
            return made[-1]
        yield make


def get(url, **headers):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers),
                                    timeout=LIMIT) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def row_of(ask, pattern):
    return next(row for row in ask("sockets")["rows"] if row["pattern"] == pattern)


def place(row):
    return {"context": row["context"], "socket": row["socket"]}


# -- HTTP ------------------------------------------------------------------------------------------


def test_the_page_and_its_headers():
    with Console() as console:
        status, headers, body = get(console.page)
        assert status == 200 and b"mqcore console" in body
        assert console.url.partition("#")[2].encode() not in body
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        for name in ("console.js", "table.js", "map.js", "socket.js", "zws.js", "console.css",
                     "icon.svg"):
            assert get(console.page + name)[0] == 200
        assert get(console.page + "../console.py")[0] == 404
        assert get(console.page + "%2e%2e/console.py")[0] == 404


def test_other_names_are_not_answered():
    """DNS rebinding: a page of another site reaches the port under its own name."""
    with Console() as console:
        port = console.page.rstrip("/").rpartition(":")[2]
        assert get(console.page, Host=f"localhost:{port}")[0] == 200
        for host in (f"evil.example:{port}", "127.0.0.1", f"127.0.0.1.evil.example:{port}"):
            assert get(console.page, Host=host)[0] == 421
        asked = urllib.request.Request(console.page, b"x", method="POST")
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(asked, timeout=LIMIT)
        assert error.value.code == 405
        error.value.close()


def test_strangers_do_not_reach_the_sockets():
    with Console() as console:
        host, _, token = live(console).removeprefix("ws://").partition("/")
        for path, origin, status in ((token, "http://evil.example", 403), ("", None, 404),
                                     ("x" * len(token), console.page[:-1], 404),
                                     (token, console.page[:-1], 101), (token, None, 101)):
            with socket.create_connection(host.split(":"), timeout=LIMIT) as sock:
                sock.sendall("\r\n".join((
                    f"GET /{path} HTTP/1.1", f"Host: {host}", "Upgrade: websocket",
                    "Connection: Upgrade", "Sec-WebSocket-Version: 13",
                    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
                    "Sec-WebSocket-Protocol: ZWS2.0",
                    *([f"Origin: {origin}"] if origin else []), "", "")).encode())
                assert sock.recv(12).split()[1] == str(status).encode(), (path, origin)


def test_pages_beyond_the_limit_are_turned_away():
    with Console() as console, mq.Context(monitor=False) as context:
        pages = [mq.Req(connect=live(console), context=context, linger=0) for _ in range(PAGES)]
        for page in pages:
            assert json.loads(page.request(b'{"op":"totals"}', timeout=LIMIT))["op"] == "totals"
        late = mq.Req(connect=live(console), context=context, linger=0)
        until(lambda: console.counts["turned_away"], LIMIT)
        pages[0].close()
        assert json.loads(late.request(b'{"op":"totals"}', timeout=LIMIT))["op"] == "totals"


def test_connections_that_ask_for_nothing_do_not_shut_the_page():
    with Console() as console, contextlib.ExitStack() as stack:
        host, port = console.url.partition("://")[2].partition("/")[0].split(":")
        for number in range(3 * CONNECTIONS):
            sock = stack.enter_context(socket.create_connection((host, int(port)), LIMIT))
            with contextlib.suppress(ConnectionError):      # it may be one too many
                sock.sendall(b"GET / HT" if number % 2 else b"")

        def answered():
            with contextlib.suppress(ConnectionError):
                return get(console.url)[0] == 200
        until(answered, LIMIT)


def test_a_connection_that_reads_no_answer_is_closed(monkeypatch):
    monkeypatch.setattr(web, "IDLE", 0.5)
    with Console() as console, socket.socket() as sock:
        place = console.page.partition("://")[2].rstrip("/")
        host, port = place.split(":")
        console._server._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect((host, int(port)))
        sock.sendall(f"GET /console.js HTTP/1.1\r\nHost:{place}\r\n\r\n".encode() * 100)
        open_ones = console._server._server.server_state.connections
        until(lambda: any(one.flow.write_paused for one in list(open_ones)), LIMIT)
        until(lambda: not open_ones, LIMIT)
        assert get(console.page)[0] == 200


@pytest.mark.parametrize("host", ["LocalHost", "127.0.0.1"])
def test_a_host_is_named_as_browsers_name_it(host):
    with Console(host=host) as console:
        assert get(console.page)[0] == 200
        port = console.page[:-1].rpartition(":")[2]
        assert get(console.page, Host=f"{host.lower()}:{port}")[0] == 200


def test_the_port_of_the_scheme_need_not_be_named():
    assert places_of("http", "127.0.0.1", 80) == ["127.0.0.1:80", "127.0.0.1"]
    assert places_of("https", "a.example", 443) == ["a.example:443", "a.example"]
    assert places_of("http", "a.example", 443) == ["a.example:443"]
    assert as_browsers_write("[2001:DB8::0001]") == "[2001:db8::1]"


def test_over_tls(tmp_path):
    known = Authority(tmp_path)
    with Console(**known.server) as console, mq.Context(monitor=False) as context:
        assert console.url.startswith("https://")
        trusting = ssl.create_default_context(cafile=known.ca["tls_ca"])
        with urllib.request.urlopen(console.page, timeout=LIMIT, context=trusting) as answer:
            assert "connect-src wss://" in answer.headers["Content-Security-Policy"]
        with mq.Req(connect=live(console), context=context, linger=0, **known.ca) as req:
            assert json.loads(req.request(b'{"op":"totals"}', timeout=LIMIT))["op"] == "totals"


# -- requests --------------------------------------------------------------------------------------

BAD = (b"", b"null", b"[]", b"{", b"\xff" * 8, b"[" * 100_000, b'{"op":"secrets"}',
       b'{"op":"sockets","page":-1}', b'{"op":"sockets","page":1e99}',
       b'{"op":"sockets","sort":"__class__"}', b'{"op":"sockets","nothing":1}',
       b'{"op":"sockets","find":"' + b"x" * 201 + b'"}', b'{"op":"socket"}',
       b'{"op":"send","context":"c","socket":1,"parts":[]}',
       b'{"op":"send","context":"c","socket":1,"parts":' + json.dumps(["x"] * 17).encode() + b"}")


def test_bad_requests_are_refused_and_the_console_lives():
    with Console(control=True) as console, asking(console) as ask:
        for data in BAD:
            answer = json.loads(ask.raw(data))
            assert (answer["op"], answer["code"]) == ("failure", "malformed"), data
            assert answer["text"]
        assert console.counts["malformed"] == len(BAD)
        assert console.counts["failed"] == 0
        assert ask("totals")["op"] == "totals"


def test_a_request_that_is_too_long_ends_its_connection_only():
    with Console() as console, mq.Context(monitor=False) as context, \
            mq.Req(connect=live(console), context=context, linger=0) as long:
        long.send(b"x" * (requests.LARGEST + 1000), timeout=LIMIT)
        with asking(console) as ask:
            assert ask("totals")["op"] == "totals"


def test_tables_are_cut_sorted_and_searched(program):
    pulls = [program("pull", bind=f"inproc://{i}") for i in range(PAGE_ROWS + 10)]
    program("rep", bind="inproc://prices")
    with Console() as console, asking(console) as ask:
        first = ask("sockets", sort="pattern")
        assert len(first["rows"]) == PAGE_ROWS
        assert (first["of"], first["pages"]) == (len(pulls) + 1, 2)
        last = ask("sockets", sort="pattern", page=1000)
        assert last["page"] == 1 and last["rows"][-1]["pattern"] == "rep"
        found = ask("sockets", find="REP prices")
        assert [row["pattern"] for row in found["rows"]] == ["rep"]
        assert ask("totals")["totals"]["sockets"] == len(pulls) + 1
        assert "no column" in ask("sockets", sort="nothing")["text"]


def test_reasons_of_drops_are_bounded_and_printable():
    found = reasons({"\x1b[2J" + "x" * 10_000: 3, **{str(n): 1 for n in range(1000)}})
    assert len(found) == 50 and all(name.isprintable() and len(name) < 210 for name in found)
    assert next(iter(found.values())) == 3


def test_slow_peers_come_first(program):
    push = program("push", bind="inproc://slow")
    program("pull", connect="inproc://slow", recv_hwm=1)
    program("rep", bind="inproc://rep")
    program("req", connect="inproc://rep")
    for _ in range(20):
        push.send(b"x", timeout=LIMIT)
    with Console() as console, asking(console) as ask:
        until(lambda: [row["queued"] for row in ask("peers")["rows"][:2]] > [0], LIMIT, 0.1)
        rows = ask("peers")["rows"]
        assert rows[0]["queued"] == max(row["queued"] for row in rows) > 0
        graph = ask("map")
        assert len(graph["edges"]) == 2 and graph["more_edges"] == 0
        text = ask("explain", **place(row_of(ask, "push")))["text"]
        assert "A push socket" in text
        assert "closed" in ask("explain", context="none", socket=1)["text"]
        assert "closed" in ask("socket", context="none", socket=1)["text"]


def test_components_are_listed(program):
    """What a monitored process runs beside its sockets, by kind and searched."""
    front, back = program("pull", bind="inproc://front"), program("push", bind="inproc://back")
    with mq.device(front, back), Console() as console, asking(console) as ask:
        program("push", connect="inproc://front").send(b"x")
        assert program("pull", connect="inproc://back").recv(timeout=LIMIT) == b"x"
        row, = until(lambda: [row for row in ask("components", find="device pull")["rows"]
                              if row["counts"].get("forth") == 1])
        assert (row["kind"], row["state"], row["error"]) == ("device", "running", "")
        assert ask("components", find="nothing like it")["rows"] == []
        assert ask("components", sort="colour")["op"] == "failure"


def test_events_are_listed(program):
    with Console() as console, asking(console) as ask:
        def seen():
            program("pull", bind="inproc://x").close()
            return any(row["kind"] == "Listening" for row in ask("events")["rows"])
        until(seen, LIMIT, 0.1)
        assert ask("events", find="listening pull")["rows"]


def test_nothing_is_read_while_no_page_asks(program):
    with Console() as console:
        assert not any(worker._thread for worker in console._looks.workers.values())
        with asking(console) as ask:
            ask("totals")
        worker = console._looks.workers["sockets"]
        worker._until = 0.0
        until(lambda: console._looks.sockets.clock == 0.0, LIMIT)
        assert not worker.looked(0)
        with asking(console) as ask:
            assert ask("totals")["totals"]["contexts"] == 1


# -- control ---------------------------------------------------------------------------------------


def test_a_console_is_read_only_unless_told(program):
    program("pull", bind="tcp://127.0.0.1:0")
    with Console() as console, asking(console) as ask:
        for op, more in (("send", {"parts": ["x"]}), ("watch", {})):
            answer = ask(op, **place(row_of(ask, "pull")), **more)
            assert answer["code"] == "refused" and "--control" in answer["text"]


def test_messages_are_sent_and_answered(program):
    pull = program("pull", bind="tcp://127.0.0.1:0")
    rep = program("rep", bind="tcp://127.0.0.1:0")
    program("pull", bind="inproc://here")
    program("push", bind="tcp://127.0.0.1:0")
    with Console(control=True) as console, asking(console) as ask:
        assert ask("send", **place(row_of(ask, "pull")), parts=["a", "ü"])["parts"] == 2
        assert pull.recv_parts(timeout=LIMIT) == [b"a", "ü".encode()]
        ask("send", **place(row_of(ask, "pull")), parts=["00ff"], hex=True)
        assert pull.recv(timeout=LIMIT) == b"\x00\xff"
        assert "hexadecimal" in ask("send", **place(row_of(ask, "pull")), parts=["0"],
                                    hex=True)["text"]
        assert ask("send", **place(row_of(ask, "pull")), parts=["one"], id="7")["op"] == "send"
        assert "may have delivered" in ask("send", **place(row_of(ask, "pull")), parts=["one"],
                                           id="7")["text"]
        assert pull.recv(timeout=LIMIT) == b"one"
        answer = {}
        thread = threading.Thread(target=lambda: answer.update(
            ask("send", **place(row_of(ask, "rep")), parts=["?"])))
        thread.start()
        assert rep.recv(timeout=LIMIT) == b"?"
        rep.send(b"\x00", timeout=LIMIT)
        thread.join()
        assert answer["reply"] == [{"kind": "hex", "text": "00", "bytes": 1}]
        assert "cannot send to a push" in ask("send", **place(row_of(ask, "push")),
                                              parts=["x"])["text"]
        inproc = next(row for row in ask("sockets")["rows"] if row["endpoint"] == "inproc://here")
        assert "cannot connect" in ask("send", **place(inproc), parts=["x"])["text"]


def test_publishers_are_watched_and_others_are_not(program):
    pub = program("pub", bind="tcp://127.0.0.1:0")
    program("push", bind="tcp://127.0.0.1:0")
    with Console(control=True) as console, asking(console) as ask:
        watch = ask("watch", **place(row_of(ask, "pub")), topic="news")["watch"]
        pub.wait_subscribers(b"news", timeout=LIMIT)
        pub.send_parts([b"news", b"one"])
        until(lambda: ask("watched", watch=watch)["messages"], LIMIT, 0.02)
        message, = ask("watched", watch=watch)["messages"]
        assert [part["text"] for part in message["parts"]] == ["news", "one"]
        assert ask("watched", watch=watch, since=message["number"])["messages"] == []
        assert "take messages" in ask("watch", **place(row_of(ask, "push")))["text"]
        more = [ask("watch", **place(row_of(ask, "pub")))["watch"] for _ in range(WATCHES - 1)]
        assert "watches are open" in ask("watch", **place(row_of(ask, "pub")))["text"]
        assert ask("unwatch", watch=more[0])["op"] == "unwatch"
        assert "has ended" in ask("watched", watch=more[0])["text"]
        assert ask("watch", **place(row_of(ask, "pub")))["op"] == "watch"


def test_parts_are_shown_as_text_or_digits():
    assert shown(b"ok\n") == {"kind": "text", "text": "ok\n", "bytes": 3}
    assert shown(b"\x1b[2J")["kind"] == "hex"
    assert len(shown(b"x" * 10_000)["text"]) == 2000


# -- journals and Spark ----------------------------------------------------------------------------


def test_journals_with_their_groups_and_lag(tmp_path):
    with journal.open(tmp_path / "log", "a", topic="orders") as log:
        for _ in range(5):
            log.append(b"x")
    with journal.open(tmp_path / "log", topic="orders") as reader:
        reader.commit_offset("billing", 2)
        reader.commit_offset("mail", 5)
    with Console(journals=[str(tmp_path / "log"), str(tmp_path / "none")]) as console, \
            asking(console) as ask:
        rows = ask("journals")["rows"]
        assert [(row["group"], row["lag"], row["messages"]) for row in rows[:2]] == [
            ("billing", 3, 5), ("mail", 0, 5)]
        assert "none" in rows[2]["error"]
        assert ask("totals")["totals"]["journals"]


def test_a_checkpoint_of_spark(tmp_path):
    assert query(tmp_path / "none")["error"] == "no batch has been planned"
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits").mkdir()
    (tmp_path / "offsets" / "9").write_text(
        f'v1\n{{"batchTimestampMs":{time.time() * 1000 - 5000:.0f}}}\n{{"orders":{{"0":17}}}}')
    (tmp_path / "offsets" / ".9.crc").write_text("x")
    (tmp_path / "commits" / "8").write_text("v1\n{}")
    found = query(tmp_path)
    assert (found["batch"], found["behind"], found["error"]) == (9, 1, "")
    assert found["sources"] == ['{"orders":{"0":17}}'] and found["age"] > 4
    (tmp_path / "offsets" / "10").write_bytes(b"v1\n[[[\xff")
    assert "cannot read" in query(tmp_path)["error"]
    for text in (b'{"batchTimestampMs":1' + b"0" * 400 + b"}", b"[" * 100_000):
        (tmp_path / "offsets" / "10").write_bytes(b"v1\n" + text)
        assert "cannot read" in query(tmp_path)["error"]


# -- the command, and what both ends share ---------------------------------------------------------


def test_the_command(tmp_path):
    with starter() as start:
        program = start(*command("console", "--bind", "127.0.0.1:0"))
        line = program.line("err")
        assert line.startswith("console at http://127.0.0.1:") and "#" in line
        assert get(line.split()[-1].partition("#")[0])[0] == 200
        status, _, err = program.end(signal.SIGTERM)
        assert (status, err) == (143, "")


def test_addresses_that_others_reach_are_refused():
    for words in (("0.0.0.0:0",), ("[::]:0",), ("192.0.2.1:0",)):
        status, _, err = run(*command("console", "--bind", *words))
        assert status == 1 and "mq: " in err, err
    check_host("192.0.2.1", True, False)
    check_host("192.0.2.1", False, True)
    check_host("[::1]", False, False)


def test_a_taken_port_is_named():
    with Console() as console:
        port = int(console.page.rstrip("/").rpartition(":")[2])
        with pytest.raises(mq.BindError, match=f"127.0.0.1:{port}.*in use"):
            Console(port=port)


def test_closing_is_complete_and_repeatable(program):
    program("pull", bind="inproc://x")
    console = Console(control=True)
    with asking(console) as ask:
        for op in ("sockets", "peers", "events", "map"):
            ask(op)
        console.close()
        console.close()
    assert not [one for one in threading.enumerate() if one.name.startswith("mqcore-console")]


def test_the_page_speaks_as_the_example_does():
    from sources import ROOT
    assert (ROOT / COPY[0]).read_bytes() == (ROOT / COPY[1]).read_bytes()
