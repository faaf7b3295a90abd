"""A gateway in a thread, and clients at it."""

import asyncio
import contextlib

import httpx
import pytest
import uvloop

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
