"""Threads under stress and the watchdog beside them: what tests/support/turmoil.py is made of."""

import contextlib
import faulthandler
import os
import struct
import tempfile
import threading
import time

import mqcore

HEAD = struct.Struct("<III")     # of a stress message: its sender and two numbers
STALL = float(os.environ.get("MQCORE_STALL", "5"))  # seconds without a step that count as stuck
ENOUGH = 100                                      # steps of a run that has shown something
FACE = (mqcore.SocketClosed, mqcore.ContextClosed)


def a_context(seed, **options):
    """Callers that read for themselves are looked after seldom, often or, for this program, never:
    what depends on a tick gets stuck."""
    options.setdefault("io_threads", (1, 3)[seed // 3 % 2])
    return mqcore.Context(lead_tick=(30.0, 0.01, 0.001)[seed % 3], **options)


class Stuck(AssertionError):
    pass


class Gang:
    """Threads whose first exception becomes the test's, with a watchdog over their steps."""

    def __init__(self):
        self.steps = 0
        self.errors = []
        self.threads = []

    def start(self, fn, *args):
        def run():
            try:
                fn(*args)
            except FACE:
                pass
            except BaseException as error:
                self.errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        self.threads.append(thread)
        thread.start()
        return thread

    def check(self):
        if self.errors:
            raise self.errors[0]

    def watch(self, seconds, why="tokens", enough=ENOUGH):
        """Let them work for so long, on a busy machine until they have done enough; Stuck if
        nothing moves."""
        end = time.monotonic() + seconds
        seen, since = self.steps, time.monotonic()
        while time.monotonic() < end or self.steps <= enough:
            time.sleep(0.02)
            self.check()
            if self.steps != seen:
                seen, since = self.steps, time.monotonic()
            elif time.monotonic() - since > STALL:
                faulthandler.dump_traceback(all_threads=True)
                raise Stuck(f"{why}: no step for {STALL} s after {seen}")

    def begin(self, why="tokens"):
        """Wait for the first step; Stuck before a slow tick could bring it about."""
        since = time.monotonic()
        while not self.steps:
            time.sleep(0.001)
            self.check()
            if time.monotonic() - since > 4 * STALL:
                faulthandler.dump_traceback(all_threads=True)
                raise Stuck(f"{why}: no first step in {4 * STALL} s")

    def join(self, limit=20.0):
        end = time.monotonic() + limit
        for thread in self.threads:
            thread.join(max(0.0, end - time.monotonic()))
            if thread.is_alive():
                faulthandler.dump_traceback(all_threads=True)
                raise Stuck("a thread does not end")
        self.check()


@contextlib.contextmanager
def address(kind):
    if kind in ("ipc", "shm"):
        with tempfile.TemporaryDirectory() as folder:
            yield f"{kind}://{folder}/s"
    else:
        yield {"tcp": "tcp://127.0.0.1:*",
               "inproc": f"inproc://turmoil-{time.monotonic_ns()}"}[kind]
