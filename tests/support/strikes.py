"""Signal handlers that strike at every line of a call, one after another, without signals.

Python runs a handler in the main thread between two bytecodes of whatever runs there. `Strike` does
the same at the n-th line of the given modules, so a test that goes through all n has tried each
place at which a handler could find the library. A plain run tries a sample of the lines;
MQCORE_ROUNDS=1 tries all.
"""

import os
import random
import sys
import threading

from hangs import watched
from lock_order import GRAPH

STEP = 1 if os.environ.get("MQCORE_ROUNDS") else 3


class Strike:
    """In the `with` block, handler() runs at the n-th line executed in these modules on this
    thread."""

    def __init__(self, modules, n, handler):
        self.files = {module.__file__ for module in modules}
        self.n, self.handler = n, handler
        self.seen = 0       # lines
        self.ran = False

    def _trace(self, frame, event, _):
        if frame.f_code.co_filename not in self.files or self.ran:
            return None
        if event == "line":
            self.seen += 1
            if self.seen > self.n:
                self.ran = True
                sys.settrace(None)
                with GRAPH.handler():
                    self.handler()
        return self._trace

    def __enter__(self):
        self.watch = watched()
        self.watch.__enter__()
        self.before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_):
        sys.settrace(self.before)
        self.watch.__exit__(None, None, None)


def at_each_line(modules, scene, seed, late=None, step=STEP):
    """scene() returns (call, handler) of a fresh scene. How many lines the call has. `late`:
    another thread calls the handler once the call has rested for so many seconds, because it waits
    for just that."""
    n = random.Random(seed).randrange(step)
    while True:
        call, handler = scene()
        with Strike(modules, n, handler) as strike:
            over = threading.Event()
            other = threading.Thread(target=_end, args=(strike, late, over))
            if late is not None:
                other.start()
            call()
        over.set()
        if late is not None:
            other.join()
        if not strike.ran:
            if late is None:
                handler()
            return strike.seen
        n += step


def _end(strike, late, over):
    seen = 0
    while not over.wait(late):
        if strike.ran:
            return
        if strike.seen and strike.seen == seen:
            strike.handler()
            return
        seen = strike.seen
