"""Ends the process when a test hangs where no exception can reach it, with every thread's stack."""

import contextlib
import faulthandler
import os
import sys

PATIENCE = 120  # seconds, for milliseconds of work; a busy machine takes a thousand times as long

USUAL = 300     # seconds that a test may take, as pyproject.toml says
GRACE = 600     # seconds between a test's limit and the end of its process

_screen = None  # stderr as it was before pytest began to capture it


def open_screen():
    """Keep stderr as it is now. Returns the stream."""
    global _screen
    _screen = os.fdopen(os.dup(sys.__stderr__.fileno()), "w")
    return _screen


@contextlib.contextmanager
def watched():
    """The block must end within PATIENCE seconds."""
    faulthandler.dump_traceback_later(PATIENCE, exit=True, file=_screen or sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def allow(item):
    """A test may have a longer limit than the usual one. Its process ends that much later, too."""
    mark = item.get_closest_marker("timeout")
    limit = mark.args[0] if mark is not None and mark.args else 0
    if limit > USUAL:
        faulthandler.dump_traceback_later(limit + GRACE, exit=True, file=_screen or sys.__stderr__)
