"""A browser is a peer: examples/browser in headless Chromium, against sockets of ours."""

import json
import shutil
import subprocess
import threading
import urllib.request
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from ports import free_port
from programs import starter
from waiting import until

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FOLDER = Path(__file__).resolve().parents[3] / "examples" / "browser"
LIMIT = 60                # a browser starts slowly on a busy machine
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-dev-shm-usage"]

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium here (Debian: apt-get install chromium)")

# What the page of the test does. It speaks to the test through its sockets alone.
PAGE = """<!doctype html><script type="module">
import { Dealer, Pull, Push, Req, Sub, bytes, text } from "./zws.js";
const urls = %s;
const said = new Push(urls.said);
const tell = (...parts) => said.send(...parts);
window.onerror = (what) => tell("error", String(what));
window.onunhandledrejection = (event) => tell("error", String(event.reason));

const req = new Req(urls.rep);
tell("answer", ...await req.request("question", "", new Uint8Array(200000).fill(7)));
tell("answer", ...await req.request("again"));

const sub = new Sub(urls.pub, "news");
tell("news", ...await sub.recv());
sub.unsubscribe("news");
sub.subscribe("weather");
tell("weather", ...await sub.recv());

const dealer = new Dealer(urls.router, { routingId: "page" });
dealer.send("hello", "from a page");
for (let i = 0; i < 1000; i++) tell("echo", ...await dealer.recv());
dealer.close();
tell("done");
</script>"""


class Pages(SimpleHTTPRequestHandler):
    def __init__(self, page, *args):
        self.page = page
        super().__init__(*args, directory=str(FOLDER))

    def do_GET(self):
        if self.path != "/test.html":
            return super().do_GET()
        body = self.page[0].encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def pages():
    """An HTTP server of the example's folder: where it is, and a list for /test.html."""
    page = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Pages, page))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", page
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def browse(tmp_path):
    """browse(url) opens a page; more=: further flags. Gives the process."""
    running = []

    def start(url, *more):
        running.append(subprocess.Popen(
            [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path}/profile{len(running)}", *more, url],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
        return running[-1]
    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_page_exchanges_messages(ctx, pages, browse):
    where, page = pages
    opened = {name: ctx.socket(pattern, recv_timeout=LIMIT, send_timeout=LIMIT)
              for name, pattern in (("said", "pull"), ("rep", "rep"), ("pub", "xpub"),
                                    ("router", "router"))}
    urls = {name: s.bind(f"ws://127.0.0.1:0/{name}?origin={where}").url
            for name, s in opened.items()}
    page.append(PAGE % json.dumps(urls))
    browse(f"{where}/test.html", "--remote-debugging-port=0")   # which keeps it running
    said, rep, pub, router = opened.values()

    assert rep.recv_parts() == [b"question", b"", bytes([7]) * 200_000]
    rep.send_parts([b"first", b"", b"x" * 70_000])
    assert said.recv_parts() == [b"answer", b"first", b"", b"x" * 70_000]
    assert rep.recv() == b"again"
    rep.send(b"second")
    assert said.recv_parts() == [b"answer", b"second"]

    assert pub.recv() == b"\1news"
    pub.send_parts([b"sports", b"0:0"])
    pub.send_parts([b"news", b"of today"])
    assert said.recv_parts() == [b"news", b"news", b"of today"]
    assert [pub.recv(), pub.recv()] == [b"\0news", b"\1weather"]
    pub.send_parts([b"news", b"too late"])
    pub.send_parts([b"weather", b"fine"])
    assert said.recv_parts() == [b"weather", b"weather", b"fine"]

    assert router.recv_parts() == [b"page", b"hello", b"from a page"]
    for i in range(1000):
        router.send_to(b"page", b"%d" % i, bytes(i % 200))
    for i in range(1000):
        assert said.recv_parts() == [b"echo", b"%d" % i, bytes(i % 200)]
    assert said.recv_parts() == [b"done"]


@pytest.mark.slow
def test_a_page_of_another_origin_is_refused(ctx, pages, browse):
    where, page = pages
    s = ctx.socket("pull", recv_timeout=LIMIT)
    events = s.events()
    page.append(PAGE % json.dumps(dict.fromkeys(("said", "rep", "pub", "router"),
                                                s.bind("ws://127.0.0.1:0").url)))
    browse(f"{where}/test.html", "--remote-debugging-port=0")
    while (event := events.get(LIMIT)).kind != "HandshakeFailed":
        pass
    assert f"pages of {where} are not allowed" in event.reason


class Driver:
    """What of WebDriver is needed to use a page."""

    def __init__(self, port, profile):
        self.url = f"http://127.0.0.1:{port}"
        options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={profile}"]}
        made = self("session", capabilities={"alwaysMatch": {"goog:chromeOptions": options}})
        self.url += f"/session/{made['sessionId']}"

    def __call__(self, what, **data):
        asked = urllib.request.Request(f"{self.url}/{what}", json.dumps(data).encode(),
                                       {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=LIMIT) as answer:
            return json.load(answer)["value"]

    def run(self, script):
        return self("execute/sync", script=script, args=[])

    def shows(self, name):
        return self.run(f"return document.getElementById('{name}').textContent")

    def end(self):
        with urllib.request.urlopen(urllib.request.Request(self.url, method="DELETE")):
            pass


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromedriver") is None,
                    reason="no chromedriver here (Debian: apt-get install chromium-driver)")
def test_the_example(tmp_path):
    """serve.py and its page, used by hand as it were."""
    port = free_port()      # without IPv6, the driver does not tell the one that it has chosen
    with starter() as start, subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.PIPE, text=True) as process:
        try:
            next(line for line in process.stdout if "successfully" in line)
            driver = Driver(port, tmp_path)
            try:
                driver("url", url=start(FOLDER / "serve.py").line().split()[0])
                until(lambda: driver.shows("clock").count(":") == 2, LIMIT)
                driver.run("document.querySelector('#sum button').click()")
                until(lambda: driver.shows("answer") == "42", LIMIT)
                driver.run("document.querySelector('#chat input').value = 'good morning';"
                           "document.querySelector('#chat button').click()")
                until(lambda: "guest 1: good morning" in driver.shows("lines"), LIMIT)
                assert "guest 1: has come" in driver.shows("lines")
            finally:
                driver.end()        # the browser would outlive it
        finally:
            process.terminate()
