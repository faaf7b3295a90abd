"""Threads that make calls at random beside an end of something, in tests/system/lifecycle: in this
process, in a forked child, in a program that is killed or ends."""

import contextlib
import faulthandler
import os
import subprocess
import sys
import threading
import traceback
from pathlib import Path

import pytest

PROGRAM = """
import sys, threading, time
sys.path[:0] = {path!r}
import {module}, mqcore as mq
context = mq.Context()
crew = {module}.crew_of(context, {seed!r}, {urls!r})
over, failed = threading.Event(), []
threads = [threading.Thread(target=crew.work, args=(over, failed), daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
print("ready", flush=True)
{then}
"""


class AtWork:
    """A subclass has work(until, failed), which calls until the event is set, and appends to
    `failed` what no call may raise."""

    @contextlib.contextmanager
    def at_work(self, threads):
        """So many threads that call, until the block ends. They end then, and nothing failed."""
        until, failed = threading.Event(), []
        workers = [threading.Thread(target=self.work, args=(until, failed), daemon=True)
                   for _ in range(threads)]
        for worker in workers:
            worker.start()
        try:
            yield
        finally:
            until.set()
            for worker in workers:
                worker.join(20)
        if any(worker.is_alive() for worker in workers):
            faulthandler.dump_traceback(all_threads=True)
            pytest.fail("a call does not return")
        assert not failed, failed


def in_a_fork(run):
    """Run it in a forked child, which ends with status 0 unless run() raises."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            run()
            status = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def program(test, seed, urls, then):
    """A process in which the crew_of(context, seed, urls) of this test file is at work: it prints
    "ready", and runs the statement `then` in its main thread."""
    path = [str(Path(test).parent), str(Path(__file__).parent)]
    text = PROGRAM.format(path=path, module=Path(test).stem, seed=seed, urls=urls, then=then)
    return subprocess.Popen([sys.executable, "-W", "ignore", "-c", text], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def ends_well(child):
    """Such a process ends by itself, with status 0."""
    out, err = child.communicate(timeout=200)
    assert child.returncode == 0 and out == "ready\n", err
    assert "Fatal" not in err, err
