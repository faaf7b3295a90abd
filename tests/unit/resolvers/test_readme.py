"""The program in mqcore/resolvers/README.md is run, so that it stays true."""

import http.server
import json
import re
import threading
from pathlib import Path

import pytest

from mqcore.testing import installed

README = Path(__file__).parents[3] / "mqcore" / "resolvers" / "README.md"


def consul():
    scope = {}
    code = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)[-1]
    exec(code, scope)
    return scope["resolver"]


class Agent(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/v1/health/service/billing?passing=1":
            self.send_error(404)
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(
            [{"Node": {"Address": "10.0.0.1"}, "Service": {"Address": a, "Port": p}}
             for a, p in self.server.instances]).encode())

    def log_message(self, *args):
        pass


@pytest.fixture
def agent():
    with http.server.HTTPServer(("127.0.0.1", 0), Agent) as server:
        server.instances = []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_it_asks_its_agent(agent):
    resolver = consul()
    options = {"agent": f"http://127.0.0.1:{agent.server_address[1]}", "connect_timeout": 10}
    agent.instances = [("", 5), ("10.0.0.2", 6)]
    assert resolver.look_up("billing", options) == ["tcp://10.0.0.1:5", "tcp://10.0.0.2:6"]
    with pytest.raises(OSError, match="404"):
        resolver.look_up("nobody", options)


def test_installed_it_is_followed(ctx, agent):
    pull = ctx.socket("pull", bind="tcp://127.0.0.1:0")
    agent.instances = [("127.0.0.1", int(pull.endpoints[0].url.rpartition(":")[2]))]
    push = ctx.socket("push")
    with installed("resolver", consul()):
        at = f"http://127.0.0.1:{agent.server_address[1]}"
        push.connect("consul://billing", agent=at, wait=10)
    push.send(b"x")
    assert pull.recv(timeout=10) == b"x"


def test_every_example_of_a_url_parses():
    from mqcore.spi.url import parse

    found = re.findall(r'connect\("([a-z]+://[^"]*)"\)', README.read_text())
    assert len(found) >= 3
    for text in found:
        assert parse(text).transport in ("tcp", "dns", "file", "consul")
