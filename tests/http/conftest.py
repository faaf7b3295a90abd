"""A gateway in a thread, and clients at it."""

import asyncio
import contextlib
import socket
import ssl
import sys
from urllib.parse import urlsplit

import httpx
import pytest
import uvloop
from certificates import Pair

import mqcore as mq
from mqcore import http

LIMIT = 60
uvloop.run(asyncio.sleep(0))        # opens what it never closes: before anything is counted


@pytest.fixture(autouse=True)
def default_context():
    """The gateway's sockets are the default context's, which ends with the test."""
    yield
    mq.Context.default().close(0)


@pytest.fixture
def url(tmp_path):
    """An address that nobody else has."""
    return f"ipc://{tmp_path}/s"


@pytest.fixture
def opened():
    """opened(routes, **options): (server, client)."""
    with contextlib.ExitStack() as stack:
        def function(routes, **options):
            options.setdefault("bind", "http://127.0.0.1:0")
            verify = options.pop("verify", True)
            server = stack.enter_context(http.serve(routes, **options))
            client = stack.enter_context(
                httpx.Client(base_url=server.url, timeout=LIMIT, trust_env=False, verify=verify))
            return server, client
        yield function


@pytest.fixture(params=["uvloop", "asyncio"])
def loop(request, monkeypatch):
    if request.param == "asyncio":      # what uvicorn takes without uvloop
        monkeypatch.setitem(sys.modules, "uvloop", None)
    return request.param


@pytest.fixture(scope="module")
def pair():
    return Pair("localhost")


@pytest.fixture(params=["tcp", "tls"])
def secure(request):
    return request.param == "tls"


@pytest.fixture
def gate(opened, tmp_path, url, loop, secure, pair):
    """gate(**limits): (server, a function that connects to it)."""
    (tmp_path / "cert").write_bytes(pair.pem())
    (tmp_path / "key").write_bytes(pair.key_pem())
    context = ssl.create_default_context(cadata=pair.pem().decode())
    more = {"bind": "https://127.0.0.1:0", "cert": str(tmp_path / "cert"),
            "key": str(tmp_path / "key"), "verify": context} if secure else {}
    with contextlib.ExitStack() as stack:
        def function(**limits):
            server, _ = opened({"/ask": f"req:{url}", "/log": f"journal:{tmp_path}/j",
                                 "/jobs": f"push+bind:{url}j"},
                               limits=http.Limits(**limits), **more)

            def connection():
                parts = urlsplit(server.url)
                one = stack.enter_context(socket.socket())
                one.settimeout(LIMIT)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
                one.connect((parts.hostname, parts.port))
                if secure:
                    one = stack.enter_context(context.wrap_socket(one, server_hostname="localhost"))
                return one
            return server, connection
        yield function
