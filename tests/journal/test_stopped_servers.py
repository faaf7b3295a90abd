"""Servers that were stopped (SIGSTOP) while leases and time-outs passed. What their clients said
meanwhile waits in the kernel, and counts."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from waiting import until

from mqcore import journal
from mqcore.journal.groups.roster import Roster

QUEUES = """
import sys
from mqcore import journal
with journal.serve_queues(sys.argv[1], "tcp://127.0.0.1:0",
                          defaults=journal.QueueOptions(visibility=1.0)) as server:
    print(server.urls[0], flush=True)
    sys.stdin.read()
"""

class Stopped:
    """A server in a process that can be stopped."""

    def __init__(self, program, where):
        self.process = subprocess.Popen([sys.executable, "-c", program, str(where)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.url = self.process.stdout.readline().strip()

    def stop(self):
        os.kill(self.process.pid, signal.SIGSTOP)
        until(lambda: " T " in Path(f"/proc/{self.process.pid}/stat").read_text())

    def go_on(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def end(self):
        self.go_on()
        self.process.communicate()


@pytest.fixture
def server(request, tmp_path):
    made = Stopped(request.param, tmp_path / "j")
    yield made
    made.end()


@pytest.mark.parametrize("server", [QUEUES], indirect=True)
def test_a_job_that_was_acknowledged_in_time_is_not_given_away(ctx, server):
    with journal.queue(server.url, "work", context=ctx, timeout=60) as queue, ThreadPoolExecutor(
            1) as thread:
        for _ in range(2):
            queue.put(b"job")
            job = queue.get(timeout=60)
            server.stop()
            done = thread.submit(job.ack)
            time.sleep(2.5)               # the time-out passes, and this time must not count
            server.go_on()
            done.result(60)               # or JobLost
        assert queue.stats().redelivered == 0


def test_members_are_not_blamed_for_a_time_in_which_nothing_was_read():
    roster = Roster(grace=0.0)
    roster.partitions(100.0, [0, 1])
    roster.beat(100.0, "a", 1, 2.0, 5.0, {}, 0)
    roster.pardon(107.0, 7.0)
    roster.expire(108.9)
    assert list(roster.members) == ["a"]
    roster.expire(109.1)
    assert not roster.members
