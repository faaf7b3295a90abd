"""norm over libnorm: the suite of all transports, the cases of multicast, the process beside us."""

import os
import signal
import subprocess
import sys

import mqcore_norm_process as process
import processes
import pytest
from mqcore_norm import norm

import mqcore as mq
from mqcore.testing import MulticastSuite, until
from mqcore.testing.multicast_suite import ISOLATED, LIMIT, hear

pytestmark = pytest.mark.skipif(bool(norm.unavailable()), reason=norm.unavailable() or "-")


class TestNorm(MulticastSuite):
    scheme, group, rate = "norm", "239.192.8.1", "norm_rate"

    def test_its_processes_end_with_the_socket(self, mq_context):
        url = self.fresh()
        pub, sub = mq_context.socket("pub", bind=url), mq_context.socket("sub", bind=url)
        until(lambda: len(processes.workers(url)) == 2)
        pub.close()
        until(lambda: len(processes.all_of(url)) == 2)
        sub.close()
        until(lambda: not processes.all_of(url))

    def test_its_processes_end_with_a_program_that_was_killed(self, tmp_path):
        url = self.fresh()
        program = ("import sys, mqcore as mq\nsub = mq.Sub(bind=sys.argv[1])\nprint('on', "
                   "flush=True)\nsys.stdin.read()\n")
        child = subprocess.Popen([sys.executable, *ISOLATED, "-c", program, url],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert child.stdout.readline() == b"on\n"
            until(lambda: len(processes.all_of(url)) == 2)
        finally:
            child.kill()
            child.communicate()
        until(lambda: not processes.all_of(url))

    @pytest.mark.parametrize("sends", [False, True], ids=["idle", "sent"])
    def test_a_publisher_without_work_takes_no_time(self, mq_context, sends):
        url = self.fresh()
        pub = mq_context.socket("pub", bind=url)
        until(lambda: processes.workers(url))
        [pid] = processes.workers(url)
        if sends:
            pub.send(b"message")
        until(lambda: processes.load(pid) < 0.2)

    def test_its_process_ends_after_a_close_that_does_not_wait(self, mq_context):
        url = self.fresh()
        pub = mq_context.socket("pub", bind=url)
        pub.wait_peers(1, LIMIT)
        pub.send(b"message")
        pub.close(linger=0)
        until(lambda: not processes.all_of(url), LIMIT)

    @pytest.mark.parametrize("end", ["pub", "sub"])
    def test_libnorm_ends_its_process_and_another_one_goes_on(self, mq_context, end):
        """What was lost by it is counted exactly."""
        url = self.fresh()
        first = mq_context.socket(end, bind=url, **self.bounds(end))
        until(lambda: processes.workers(url))
        [victim] = processes.workers(url)
        other = "sub" if end == "pub" else "pub"
        second = mq_context.socket(other, bind=url, **self.bounds(other))
        pub, sub = (first, second) if end == "pub" else (second, first)
        sub.subscribe(b"")
        hear(pub, sub)
        for n in range(400):
            pub.send(b"%d" % n + bytes(3000))
            if n == 200:
                os.kill(victim, signal.SIGKILL)
                until(lambda: len(set(processes.workers(url)) - {victim}) == 2)
        seen = []
        sent = 400
        while not seen or seen[-1] != sent - 1:
            try:
                seen.append(int(sub.recv(timeout=0.1).rstrip(b"\0")))
            except mq.RecvTimeout:              # the last one may be lost, and needs a later one
                pub.send(b"%d" % sent + bytes(3000))
                sent += 1
        assert seen == sorted(set(seen))
        assert sum(sub.stats().lost.values()) == sent - len(seen)

    def bounds(self, pattern):
        return {"nodrop": True} if pattern == "pub" else {"recv_hwm": None, "recv_hwm_bytes": None}

    def test_a_forked_child_keeps_nothing_open(self, mq_context):
        url = self.fresh()
        sub = mq_context.socket("sub", topics=[b""], bind=url)
        sub.wait_peers(1, LIMIT)
        ready, go = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            os.write(ready[1], b"1")
            os.read(go[0], 1)
            os._exit(0)
        try:
            os.read(ready[0], 1)
            sub.close()
            until(lambda: not processes.all_of(url))
        finally:
            os.write(go[1], b"1")
            os.waitpid(child, 0)
            for fd in (*ready, *go):
                os.close(fd)


STUCK = """
import socket, sys, time
import mqcore_norm_process as process
process.STUCK = 1
process.Receiver.begin = lambda self: time.sleep(600)
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
process.Receiver(theirs, {"group": "239.192.8.1", "port": int(sys.argv[1]), "node": 1,
                          "interface": "lo", "hops": 1, "loop": True}, process.library())
"""


def test_a_libnorm_that_is_stuck_when_it_begins_is_ended():
    """A forged packet may be the first one that it gets."""
    port = TestNorm().fresh().rpartition(":")[2]
    done = subprocess.run([sys.executable, *ISOLATED, "-c", STUCK, port], timeout=LIMIT,
                          check=False)
    assert done.returncode == -signal.SIGALRM


# -- errors ----------------------------------------------------------------------------------------

def test_without_the_library_the_error_says_what_to_install(monkeypatch, mq_context):
    monkeypatch.setattr(process, "LIBRARIES", ("libnorm.so.none",))
    with pytest.raises(mq.BindError, match="apt-get install libnorm1"):
        mq_context.socket("sub").bind("norm://lo;239.192.8.1:5555")


def test_without_a_python_for_its_process_there_is_a_clear_error(monkeypatch, mq_context):
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(mq.BindError, match=r"sys\.executable"):
        mq_context.socket("sub").bind("norm://lo;239.192.8.1:5555")


def test_a_process_that_does_not_start_is_a_clear_error(monkeypatch, mq_context, tmp_path):
    monkeypatch.setattr(process, "__file__", str(tmp_path / "nothing.py"))
    with pytest.raises(mq.BindError, match="does not start"):
        mq_context.socket("pub").connect("norm://lo;239.192.8.1:5555")
