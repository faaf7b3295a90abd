"""Waiting for what happens in other threads: look again and again, for a limited time."""

import time


def until(true, limit: float = 10.0, pause: float = 0.002):
    """The first true value of true(); AssertionError after `limit` seconds."""
    end = time.monotonic() + limit
    while not (value := true()):
        assert time.monotonic() < end, f"still {value!r} after {limit:g} s"
        time.sleep(pause)
    return value
