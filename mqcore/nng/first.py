"""What becomes of a dialer's first attempt."""

from __future__ import annotations

import mqcore as mq
from mqcore.base.waits import Event
from mqcore.control.endpoint import Endpoint


def first_attempt(endpoint: Endpoint) -> mq.Error | None:
    """Wait for it. None: connected; else what it failed with. The endpoint goes on as it would."""
    moved = Event()
    end = endpoint.observe(lambda *_: moved.set())
    try:
        while True:
            moved.clear()
            state, error = endpoint.state, endpoint.error
            if state == "connected":
                return None
            if error is not None:
                return error
            if state in ("closed", "stopped"):
                return mq.SocketClosed(f"{endpoint.url} was closed")
            # it waits for the name, which is not bound yet
            if endpoint.url.startswith("inproc://"):
                return mq.RemoteRefused(f"nobody listens at {endpoint.url}")
            moved.wait()
    finally:
        end()
