"""What tests of the pollers share: a thread that waits, and socket habits of the engine."""

import threading
import time

LONG = 20.0  # only a lost wake-up takes so long


class Later(threading.Thread):
    """Runs fn and keeps what it returned."""

    def __init__(self, fn, *args):
        super().__init__(daemon=True)
        self.fn, self.args, self.error = fn, args, None
        self.start()

    def run(self):
        try:
            self.answer = self.fn(*self.args)
        except BaseException as error:
            self.error = error

    def result(self):
        self.join(LONG * 2)
        assert not self.is_alive(), "still waiting"
        if self.error is not None:
            raise self.error
        return self.answer


def fill(sock):
    """Write until the kernel takes no more."""
    while True:
        try:
            sock.send(b"x" * 65536)
        except BlockingIOError:
            return


def empty(sock):
    while True:
        try:
            if not sock.recv(1 << 20):
                return
        except BlockingIOError:
            return


def what_of(found):
    """{tag: every bit that was reported of it}"""
    out = {}
    for tag, what in found:
        out[tag] = out.get(tag, 0) | what
    return out


def asleep(thread):
    """True once the thread sleeps in the kernel: then what follows comes to a sleeper. A thread
    that has not got there yet would only make the test easier."""
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        with open(f"/proc/self/task/{thread.native_id}/stat") as f:
            if f.read().rsplit(")", 1)[1].split()[0] == "S":
                return True
    return False
