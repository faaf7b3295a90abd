"""fork: the parent goes on untouched, inherited sockets raise Forked, new ones in the child
work."""

import fcntl
import multiprocessing
import os
import signal
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor

import pytest
from turmoil import exchange, served

import mqcore


def in_child(fn) -> int:
    """Fork, run fn in the child; its exit status (0: fn returned)."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(20)
            fn()
            status = 0
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_burst_goes_on_while_children_come_and_go(seed):
    count = 60_000
    with mqcore.Context() as context:
        pull = context.socket("pull")
        push = context.socket("push", connect=str(pull.bind("tcp://127.0.0.1:*")))
        got = []

        def drink():
            for _ in range(count):
                got.append(int(pull.recv(timeout=20)))

        def pour():
            for i in range(count):
                push.send(b"%d" % i)

        threads = [threading.Thread(target=drink), threading.Thread(target=pour)]
        for thread in threads:
            thread.start()

        def child():
            for sock in (push, pull):
                with pytest.raises(mqcore.Forked):
                    sock.send(b"x") if sock is push else sock.recv(timeout=0)
                sock.close()
            with pytest.raises(mqcore.Forked):
                context.socket("push")
            exchange()

        for _ in range(5):
            assert in_child(child) == 0
        for thread in threads:
            thread.join(30)
        assert got == list(range(count))


def test_large_messages_held_across_a_fork():
    with mqcore.Context() as context:
        pull = context.socket("pull")
        push = context.socket("push", connect=str(pull.bind("tcp://127.0.0.1:*")))
        push.send(bytes(300_000))
        held = [pull.recv_msg(timeout=10)]
        push.send(bytes(300_000))

        def child():
            assert len(held[0].parts[0]) == 300_000
            held.clear()
            exchange()

        assert in_child(child) == 0
        assert len(pull.recv(timeout=10)) == 300_000
        held.clear()


def test_the_peer_of_the_parent_sees_its_end_though_a_child_lives_on():
    """A descriptor left open in a child would keep the connection up."""
    with mqcore.Context(linger=0) as context:
        pull = context.socket("pull")
        at = str(pull.bind("tcp://127.0.0.1:*"))
        other = mqcore.Context(linger=0)
        push = other.socket("push", connect=at, reconnect=None)
        push.send(b"x")
        assert pull.recv(timeout=10) == b"x"
        pid = os.fork()
        if pid == 0:
            try:
                time.sleep(20)
            finally:
                os._exit(0)
        try:
            other.close()
            end = time.monotonic() + 5
            while pull.peers() and time.monotonic() < end:
                time.sleep(0.01)
            assert not pull.peers()
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_endpoints_of_the_parent_may_be_closed_in_a_child():
    with mqcore.Context(linger=0) as context:
        pull = context.socket("pull")
        bound = pull.bind("tcp://127.0.0.1:*")
        push = context.socket("push")
        endpoints = [bound, push.connect(bound, wait=10), push.connect("inproc://nobody")]

        def child():
            for endpoint in endpoints:
                endpoint.close()
                assert endpoint.state == "closed"

        assert in_child(child) == 0
        push.send(b"x")
        assert pull.recv(timeout=10) == b"x"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_multiprocessing(method):
    with mqcore.Context() as context:
        pull = context.socket("pull", bind="tcp://127.0.0.1:*")
        process = multiprocessing.get_context(method).Process(target=served)
        process.start()
        process.join(30)
        assert process.exitcode == 0
        process.close()
        pull.close()
    if method == "forkserver":
        multiprocessing.forkserver._forkserver._stop()
    if method in ("spawn", "forkserver"):
        from multiprocessing import resource_tracker
        resource_tracker._resource_tracker._stop()


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_process_pool():
    with mqcore.Context() as context:
        pull = context.socket("pull", bind="tcp://127.0.0.1:*")
        with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
            assert all(pid != os.getpid() for pid in pool.map(served, range(4)))
        assert not pull.closed


def test_every_descriptor_is_closed_on_exec(tmp_path):
    before = set(os.listdir("/proc/self/fd"))
    with mqcore.Context() as context:
        pull = context.socket("pull")
        urls = [str(pull.bind(at)) for at in ("tcp://127.0.0.1:*", f"ipc://{tmp_path}/s")]
        pushes = [context.socket("push", connect=url) for url in urls]
        for push in pushes:
            push.send(b"x")
            pull.recv(timeout=10)
        pull.fileno()
        new = set(os.listdir("/proc/self/fd")) - before
        leaky = []
        for name in new:
            try:
                if not fcntl.fcntl(int(name), fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
                    leaky.append((name, os.readlink(f"/proc/self/fd/{name}")))
            except OSError:
                pass  # the listing's own
        assert len(new) > 8 and not leaky
