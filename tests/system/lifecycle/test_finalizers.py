"""Finalizers and signal handlers that close sockets, contexts and endpoints, beside every blocking
call, in a child process that must end. MQCORE_ROUNDS: ten times as many."""

import _thread
import contextlib
import gc
import os
import re
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
from finalizers import SCENES

import mqcore as mq
from mqcore import nng, zmq
from mqcore.base import waits
from mqcore.testing import until
from mqcore.zmq.auth.thread import ThreadAuthenticator

PROGRAM = Path(__file__).parents[2] / "support" / "finalizers.py"
ROUNDS = 20_000 if os.environ.get("MQCORE_ROUNDS") else 2_000   # of a scene, in the slow run
NOBODY = "tcp://127.0.0.1:9"


@pytest.mark.parametrize("rounds", [400, pytest.param(ROUNDS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scene", SCENES)
def test_garbage_is_closed_beside_calls(scene, rounds, seed):
    done = subprocess.run([sys.executable, PROGRAM, scene, str(rounds), str(seed)],
                          capture_output=True, text=True, timeout=3000)
    last = done.stderr[-3000:]
    assert done.returncode == 0, last
    found = re.fullmatch(r"(\d+) closed; left:(.*)\n", done.stdout)
    assert found and int(found[1]) >= rounds, (done.stdout, last)
    assert found[2] == "", (done.stdout, last)
    assert "Error" not in last, last


class Cycle:
    """Garbage that only the collector frees."""

    def __init__(self, call, *things):
        self.call, self.things, self.me = call, things, self

    def __del__(self):
        self.call()


@pytest.fixture
def unraisable(monkeypatch):
    """What finalizers raise, which Python only prints."""
    found = []
    monkeypatch.setattr(sys, "unraisablehook", found.append)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield found


@pytest.mark.parametrize("first", ["own", "other"])
def test_a_close_after_the_own_finalizer_does_nothing(ctx, unraisable, first):
    """The order of finalizers in a cycle is arbitrary."""
    reports = []

    def litter():
        sock = ctx.socket("pub", connect=NOBODY, linger=0)
        Cycle(lambda: reports.append([sock.close(), sock.close(0)]))
        if first == "own":
            sock.__del__()
    litter()
    gc.collect()
    until(lambda: not ctx.sockets)
    assert reports and not unraisable


def test_endpoints_end_from_the_finalizer_of_garbage(ctx, unraisable):
    def litter():
        sock = ctx.socket("sub", topics=[b"a"], linger=0)
        end, far = sock.bind("tcp://127.0.0.1:0"), sock.connect(NOBODY)

        def close():
            # its own finalizer may have run before
            with contextlib.suppress(mq.SocketClosed, mq.AddressError):
                sock.unsubscribe(b"a")
                sock.unbind(end)
                sock.disconnect(far)
            end.close()
            far.close()
            sock.close()
        Cycle(close, sock)
        return end, far
    end, far = litter()
    gc.collect()
    until(lambda: not ctx.sockets)
    assert not unraisable and end.state == far.state == "closed"


def in_garbage(call):
    """call() in a finalizer that the garbage collector runs."""
    Cycle(call)
    gc.collect()


def test_what_joins_a_thread_is_closed_by_the_collector(ctx, unraisable):
    """Not there: the thread may need what the finalizer has interrupted."""
    device = mq.device(ctx.socket("pull", bind="inproc://in"), ctx.socket("push"))
    log = mq.log_events(ctx)
    line = nng.Pair0(listen="inproc://nng")
    line.add_post_pipe_connect_cb(lambda pipe: None)
    context = zmq.Context()
    auth = ThreadAuthenticator(context)
    auth.start()
    watched = context.socket(zmq.PAIR)
    watched.get_monitor_socket().close(0)
    joined = []
    before = threading.Thread.join

    def join(thread, *args):
        joined.append((thread.name, waits.guest()))
        before(thread, *args)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "join", join)
        for call in (device.stop, log.close, line.close, auth.stop, lambda: watched.close(0)):
            in_garbage(call)
        until(lambda: not device.running and device._reports is not None)
        until(lambda: line._core._links.report is not None)
        until(lambda: auth.thread is None and watched._shared._left)
    assert not any(guest for _, guest in joined)
    until(lambda: not [thread.name for thread in threading.enumerate() if thread.name in (
        "mqcore-nng", "mqcore-zmq-monitor", "mqcore-zmq-auth", "mqcore-log")])
    context.term()
    mq.Context.default().close(0)   # the one of nng's sockets
    assert not unraisable


@pytest.mark.parametrize("what", ["socket", "context", "endpoint", "zmq-socket", "zmq-context"])
def test_what_is_closed_by_a_guest_is_closed_soon(what):
    """On the control thread, which every close() needs; as a finalizer there does."""
    context = mq.Context(linger=0)
    alias = zmq.Context()
    try:
        sock = context.socket("push", connect=NOBODY)
        end = sock.bind("tcp://127.0.0.1:0")
        old = alias.socket(zmq.PUSH)
        old.connect(NOBODY)
        close, closed = {
            "socket": (sock.close, lambda: sock._links.report is not None),
            "context": (context.close, lambda: context._report is not None),
            "endpoint": (end.close, lambda: end.state == "closed"),
            "zmq-socket": (lambda: old.close(0), lambda: old._shared._left),
            "zmq-context": (lambda: alias.destroy(0), lambda: alias._home.closed),
        }[what]
        ran = threading.Event()
        (alias._home._context if "zmq" in what else context)._hub.loop.call(
            lambda: (close(), ran.set()))
        assert ran.wait(20)
        until(closed)
        assert {"socket": lambda: sock.closed, "zmq-socket": lambda: old.closed}.get(
            what, lambda: True)()
    finally:
        context.close()
        alias.destroy(0)


def test_a_close_waits_until_threads_can_be_started(ctx, unraisable, monkeypatch):
    """Nothing is closed inside the finalizer instead, and nothing stays open."""
    refused = []

    def refuse(*arguments):
        refused.append(arguments)
        raise RuntimeError("can't start new thread")

    def litter():
        sock = ctx.socket("pull", bind="tcp://127.0.0.1:0", linger=0)
        Cycle(sock.close)
    other = mq.Context()
    other.socket("pull", bind="tcp://127.0.0.1:0", linger=0)
    dropped = mq.Context()
    dropped.socket("pull").close()
    hub = dropped._hub
    litter()
    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", refuse)
        gc.collect()
        in_garbage(other.close)
        del dropped
        assert len(refused) >= 3 and ctx.sockets and not other.closed and not hub.closed
    until(lambda: not ctx.sockets and other.closed and not hub.started)
    assert not unraisable


FORKS = """
import gc, os, mqcore
context = mqcore.Context()
kept = context.socket("pull", bind="tcp://127.0.0.1:0")
socks = lambda: {name for name in (os.readlink(f"/proc/self/fd/{n}") if os.path.exists(
    f"/proc/self/fd/{n}") else "" for n in os.listdir("/proc/self/fd")) if "socket:" in name}

class Litter:
    def __init__(self):
        self.sock, self.me = context.socket("pull", bind="tcp://127.0.0.1:0"), self

    def __del__(self):
        if os.getpid() == parent:
            kids.append(os.fork())
        if os.getpid() == parent:
            self.sock.close()

parent, kids = os.getpid(), []
Litter()
kept_only = [socks()]
gc.collect()
if os.getpid() != parent:
    os._exit(len(socks() & kept_only[0]))
print([os.waitpid(kid, 0)[1] for kid in kids])
"""


def test_a_fork_in_a_finalizer_leaves_the_child_nothing(tmp_path):
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS], capture_output=True,
                          text=True, timeout=100)
    assert (done.stdout, done.stderr) == ("[0]\n", "")


def test_a_guest_is_where_a_thread_holds_a_lock():
    lock, seen = waits.YieldingLock(), []

    def holder():
        seen.append(waits.guest())
        with lock:
            seen.append(waits.guest())
            with lock:
                pass
            seen.append(waits.guest())
            with waits.Released():
                seen.append(waits.guest())
        seen.append(waits.guest())
        with waits.Busy(only_calls=True):
            seen.append(waits.guest())
        with waits.Busy():
            seen.append(waits.guest())
        seen.append(waits.guest())

    thread = threading.Thread(target=holder)
    thread.start()
    thread.join()
    assert seen == [False, True, True, True, False, True, True, False]
    seen.clear()
    holder()    # the main thread yields its locks and waits
    assert seen == [False, False, False, False, False, False, True, False]
