"""`mq http` as people run it, with curl, and a page in Chromium."""

import functools
import http.server
import json
import shutil
import signal
import subprocess
import threading

import httpx
import pytest
from browser import CHROMIUM, Browser
from programs import mq, run, starter
from waiting import until

PAGE = """<!doctype html><meta charset=utf-8><link rel=icon href="data:,"><script>
const gate = new URLSearchParams(location.search).get("gate");
async function post(text) {
  const answer = await fetch(gate + "/log", {method: "POST", body: text});
  return answer.status;
}
function events(n) {
  return new Promise((done, fail) => {
    const found = [], source = new EventSource(gate + "/log");
    source.onmessage = event => {
      found.push([event.lastEventId, JSON.parse(event.data).text]);
      if (found.length == n) { source.close(); done(found); }
    };
    source.onerror = () => fail(new Error("no events"));
  });
}
function talk(text) {
  return new Promise((done, fail) => {
    const socket = new WebSocket(gate.replace("http", "ws") + "/log?from=end");
    const found = [];
    socket.onopen = () => socket.send(JSON.stringify({text}));
    socket.onmessage = event => {
      found.push(JSON.parse(event.data));
      if (found.length == 2) { socket.close(); done(found); }
    };
    socket.onerror = () => fail(new Error("no WebSocket"));
  });
}
</script>"""


@pytest.fixture
def start():
    with starter() as function:
        yield function


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def site(tmp_path):
    """The origin of a web server with the page."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "index.html").write_text(PAGE)
    handler = functools.partial(Quiet, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_help_has_an_example():
    status, out, err = run(*mq("http", "--help"))
    assert (status, err) == (0, "") and b"  mq http --route /orders=push:" in out
    status, out, _ = run(*mq("http", "--limits"))
    assert status == 0 and b"body_bytes" in out


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_it_ends_on_a_signal(start, tmp_path, number, status):
    program = start(*mq("http", "--bind", "http://127.0.0.1:0",
                        "--route", f"/log=journal:{tmp_path}/j"))
    url = program.line()
    assert httpx.post(url + "/log", content=b"x", trust_env=False).status_code == 201
    found, out, err = program.end(number)
    assert found == status and "Traceback" not in err
    assert "1 requests, 0 refused; 1 messages sent" in err


@pytest.mark.parametrize(("args", "word"), [
    ((), "without a route"), (("--route", "x"), "no route"),
    (("--route", "/x=push:ipc://x", "--limit", "bodies=1"), "no limit"),
    (("--route", "/x=push:ipc://x", "--limit", "wait"), "NAME=NUMBER"),
    (("--route", "/x=push:ipc://x", "--origin", "*"), "no origin"),
    (("--route", "/x=push:ipc://x", "--route", "/x=push:ipc://y"), "twice"),
    (("--config", "FILE"), "cannot use"),
])
def test_mistakes(tmp_path, args, word):
    (tmp_path / "file").write_text("routs = {}")
    args = [str(tmp_path / "file") if one == "FILE" else one for one in args]
    status, _, err = run(*mq("http", *args))
    assert status == 2 and word in err and "Traceback" not in err


def test_a_file_and_curl(start, tmp_path):
    if not shutil.which("curl"):
        pytest.skip("curl is not installed")
    (tmp_path / "tokens").write_text("me " + "t" * 32 + " all\n")
    (tmp_path / "tokens").chmod(0o600)
    (tmp_path / "gate.toml").write_text(
        f'bind = "http://127.0.0.1:0"\ntokens = "tokens"\n[routes]\n'
        f'"/log" = "journal:{tmp_path}/j"\n[limits]\nbody_bytes = 100\nheartbeat = 0.5\n')
    url = start(*mq("http", "--config", str(tmp_path / "gate.toml"), "--limit", "streams=5")).line()

    def curl(*args):
        return subprocess.run(
            ["curl", "-sS", "--noproxy", "*", "-H", "Authorization: Bearer " + "t" * 32, *args],
            capture_output=True, timeout=60, check=True).stdout

    assert json.loads(curl(url + "/log", "--data-binary", "hello")) == {"offset": 0}
    assert json.loads(curl(url + "/log"))["messages"][0]["text"] == "hello"
    assert json.loads(curl(url + "/log", "--data-binary", "x" * 101))["status"] == 413
    assert curl(url + "/log?from=end", "-o", "/dev/null", "-w", "%{http_code}") == b"204"


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")
def test_a_page_in_chromium(start, site, tmp_path):
    url = start(*mq("http", "--bind", "http://127.0.0.1:0", "--origin", site,
                    "--route", f"/log=journal:{tmp_path}/j")).line()
    with Browser(tmp_path / "profile", hosts=("127.0.0.1", "localhost")) as browser:
        assert browser.open(f"{site}/?gate={url}") == []
        assert [browser.run(f"post('m{n}')") for n in range(2)] == [201, 201]
        assert browser.run("events(2)") == [["0", "m0"], ["1", "m1"]]
        found = sorted(browser.run("talk('m2')"), key=len)
        assert found[0] == {"offset": 2} and found[1]["text"] == "m2" and found[1]["id"] == "2"
        # a page of an origin that is not declared: its request is not even handled
        assert browser.open(f"{site.replace('127.0.0.1', 'localhost')}/?gate={url}") == []
        assert browser.run("post('evil').catch(error => error.name)") == "TypeError"
    until(lambda: httpx.get(url + "/-/stats", trust_env=False).json()["problems"] == {"origin": 1})
    assert httpx.get(url + "/log", trust_env=False).json()["next"] == "3"
