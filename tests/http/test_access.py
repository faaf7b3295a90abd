"""Tokens, origins, host names, TLS, exposure, rates."""

import ssl

import httpx
import pytest
from certificates import Pair
from gateways import problem
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

import mqcore as mq
from mqcore import http
from mqcore.http.bounds import KNOWN, Rates

ALL, SENDS, READS = "a" * 32, "s" * 32, "r" * 32


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    path.write_text(f"# people\nall {ALL} all\nwriter {SENDS} send:/log\n"
                    f"reader {READS} receive stats\n")
    path.chmod(0o600)
    return path


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def test_tokens(opened, tmp_path, tokens):
    server, client = opened({"/log": f"journal:{tmp_path}/j", "/more": f"journal:{tmp_path}/k"},
                            tokens=tokens)
    answer = client.post("/log", content=b"x")
    problem(answer, 401, "token")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    for wrong in ("Bearer " + "b" * 32, f"Bearer {ALL[:-1]}", f"Bearer {ALL}a", "Bearer", ALL,
                  f"Basic {ALL}", "Bearer \u00e4"):
        headers = [(b"authorization", wrong.encode())]      # and nothing is said of the routes
        problem(client.get("/nothing", headers=headers), 401, "token")
    problem(client.get("/nothing", headers=bearer(ALL)), 404, "route")
    assert client.post("/log", content=b"x", headers=bearer(SENDS)).status_code == 201
    assert client.post("/log", content=b"x", headers=bearer(ALL)).status_code == 201
    problem(client.get("/log", headers=bearer(SENDS)), 403, "rights")
    problem(client.post("/more", content=b"x", headers=bearer(SENDS)), 403, "rights")
    problem(client.post("/log", content=b"x", headers=bearer(READS)), 403, "rights")
    assert len(client.get("/log", headers=bearer(READS)).json()["messages"]) == 2
    assert client.get("/-/health").status_code == 200
    problem(client.get("/-/stats"), 401, "token")
    problem(client.get("/-/stats", headers=bearer(SENDS)), 403, "rights")
    assert client.get("/-/stats", headers=bearer(READS)).json()["sent"] == 2
    url = server.url.replace("http", "ws", 1) + "/log"
    with pytest.raises(InvalidStatus) as caught, connect(url, proxy=None):
        pass
    assert caught.value.response.status_code == 401
    with connect(url, proxy=None, subprotocols=["mqcore", f"mqcore.bearer.{READS}"]) as socket:
        assert socket.subprotocol == "mqcore" and '"id":"0"' in socket.recv(timeout=60)


@pytest.mark.parametrize(("text", "word"), [
    ("", "has no token"), ("name " + ALL, "rights"), ("name short all", "16 characters"),
    (f"name {ALL} everything", "no right"), (f"name {ALL} send:log", "no right"),
    (f"a {ALL} all\nb {ALL} all", "twice"), (f"a {ALL} all\na {SENDS} all", "twice"),
])
def test_bad_token_files(tmp_path, text, word):
    path = tmp_path / "tokens"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(mq.OptionError, match=word):
        http.read_tokens(path)


def test_a_token_file_that_others_can_read(tokens, tmp_path):
    tokens.chmod(0o640)
    with pytest.raises(mq.UsageError, match="chmod 600"):
        http.read_tokens(tokens)
    with pytest.raises(mq.OptionError, match="cannot read"):
        http.read_tokens(tmp_path / "nothing")


def test_host_names(opened, tmp_path):
    _, client = opened({"/log": f"journal:{tmp_path}/j"}, hosts=["Gate.Example"])
    for host in ("localhost", "127.0.0.1:1", "[::1]:80", "gate.example", "LOCALHOST."):
        assert client.get("/log", headers={"host": host}).status_code == 204, host
    for host in ("evil.example", "localhost.evil.example", "[", "127.0.0.1.evil.example",
                 "evil.example@localhost:x"):
        problem(client.get("/log", headers={"host": host}), 421, "host")
    twice = [("authorization", "Bearer a"), ("authorization", "Bearer b")]
    problem(client.get("/log", headers=twice), 400, "header")


def test_origins(opened, tmp_path):
    server, client = opened({"/log": f"journal:{tmp_path}/j"}, origins=["https://app.example"])
    own = {"origin": server.url}
    assert client.post("/log", content=b"x", headers=own).status_code == 201
    for bad in ("https://evil.example", "null", "http://app.example", server.url + "0"):
        answer = client.post("/log", content=b"x", headers={"origin": bad})
        problem(answer, 403, "origin")
        assert "access-control-allow-origin" not in answer.headers
    mine = {"origin": "https://app.example"}
    answer = client.post("/log", content=b"x", headers=mine)
    assert answer.headers["access-control-allow-origin"] == mine["origin"]
    answer = client.get("/log?from=99", headers=mine)       # refusals can be read, too
    problem(answer, 400, "position")
    assert answer.headers["access-control-allow-origin"] == mine["origin"]
    answer = client.options("/log", headers={**mine, "access-control-request-method": "POST"})
    assert answer.status_code == 204
    assert "authorization" in answer.headers["access-control-allow-headers"]
    assert answer.headers["access-control-allow-methods"] == "POST, GET"
    assert "access-control-allow-methods" not in client.options("/log", headers=own).headers
    with pytest.raises(InvalidStatus), connect(server.url.replace("http", "ws", 1) + "/log",
                                               proxy=None, origin="https://evil.example"):
        pass


@pytest.mark.parametrize("text", ["*", "https://*.example", "app.example", "https://a/b", ""])
def test_bad_origins(text):
    with pytest.raises(mq.OptionError, match="no origin"):
        http.serve({"/x": "push:ipc://x"}, bind="http://127.0.0.1:0", origins=[text])


def test_tls(opened, tmp_path, tokens):
    ca = Pair("authority", ca=True)
    pair = Pair("localhost", issuer=ca, names=["127.0.0.1"], role="server")
    (tmp_path / "cert").write_bytes(pair.pem())
    (tmp_path / "key").write_bytes(pair.key_pem())
    trusted = ssl.create_default_context(cadata=ca.pem().decode())
    server, client = opened({"/log": f"journal:{tmp_path}/j"}, bind="https://127.0.0.1:0",
                            cert=str(tmp_path / "cert"), key=str(tmp_path / "key"), verify=trusted)
    assert server.url.startswith("https://")
    assert client.post("/log", content=b"x").status_code == 201
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url + "/log", trust_env=False)


@pytest.mark.parametrize(("options", "error", "word"), [
    ({"bind": "http://0.0.0.0:0"}, mq.UsageError, "exposed"),
    ({"bind": "http://*:0"}, mq.UsageError, "exposed"),
    ({"bind": "127.0.0.1:0"}, mq.AddressError, "no address"),
    ({"bind": "http://127.0.0.1"}, mq.AddressError, "no address"),
    ({"bind": "http://127.0.0.1:0/x"}, mq.AddressError, "no address"),
    ({"bind": "http://127.0.0.1:99999"}, mq.AddressError, "no address"),
    ({"bind": "http://203.0.113.1:0"}, mq.BindError, "cannot bind"),
    ({"bind": "https://127.0.0.1:0"}, mq.OptionError, "needs cert="),
    ({"cert": "x"}, mq.OptionError, "needs cert="),
    ({"bind": "https://127.0.0.1:0", "cert": "nothing"}, mq.OptionError, "cannot use the cert"),
    ({"routes": {}}, mq.OptionError, "without a route"),
    ({"routes": {"x": "push:ipc://x"}}, mq.OptionError, "no path"),
    ({"routes": {"/../x": "push:ipc://x"}}, mq.OptionError, "no path"),
    ({"routes": {"/-/x": "push:ipc://x"}}, mq.OptionError, "own pages"),
    ({"routes": {"/x": "rep:ipc://x"}}, mq.AddressError, "kinds are"),
    ({"routes": {"/x": "push+listen:ipc://x"}}, mq.AddressError, "no form"),
    ({"routes": {"/x": "push:"}}, mq.AddressError, "does not say where"),
    ({"routes": {"/x": "push:ipc://x?timeout=1"}}, mq.OptionError, "no setting"),
    ({"routes": {"/x": "req:ipc://x?timeout=soon"}}, mq.OptionError, "no value"),
    ({"routes": {"/x": "req:ipc://x?timeout=nan"}}, mq.OptionError, "no value"),
    ({"routes": {"/x": "journal:data?tpic=x"}}, mq.OptionError, "no setting"),
    ({"routes": {"/x": "journal:tcp://h:1"}}, mq.AddressError, "folder"),
])
def test_mistakes(options, error, word):
    given = {"routes": {"/x": "push:ipc://x"}, "bind": "http://127.0.0.1:0", **options}
    with pytest.raises(error, match=word):
        http.serve(**given)


@pytest.mark.parametrize("given", [{"body_bytes": 0}, {"clients": 1.5}, {"wait": float("nan")},
                                   {"rate": -1}, {"streams": True}])
def test_bad_limits(given):
    with pytest.raises(mq.OptionError, match="out of range"):
        http.Limits(**given)


def test_a_route_that_cannot_be_opened(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises((mq.Error, OSError)), \
            http.serve({"/x": f"journal:{tmp_path}/file"}, bind="http://127.0.0.1:0"):
        pass


def test_rates(opened, tmp_path):
    _, client = opened({"/log": f"journal:{tmp_path}/j"},
                       limits=http.Limits(rate=0.001, burst=3))
    assert [client.get("/log").status_code for _ in range(3)] == [204] * 3
    answer = client.get("/log")
    problem(answer, 429, "rate")
    assert int(answer.headers["retry-after"]) > 900
    assert client.get("/-/health").status_code == 200


def test_buckets_fill_again_and_are_forgotten():
    rates = Rates(2.0, 2)
    assert [rates.wait("a", 0.0) for _ in range(3)] == [0, 0, 0.5]
    assert rates.wait("a", 0.4) == pytest.approx(0.1) and rates.wait("a", 0.5) == 0
    for n in range(KNOWN + 5):
        rates.wait(str(n), 1.0)
    assert len(rates.buckets) == KNOWN
