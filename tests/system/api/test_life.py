"""Ctrl-C, forgotten sockets, fork, the end of the interpreter."""

import gc
import subprocess
import sys
import threading
import warnings

import pytest

import mqcore as mq
from mqcore.control.links import SocketLinks
from mqcore.testing import until

LIMIT = 60.0


def run(code, **kw):
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True,
                          text=True, timeout=200, **kw)


INTERRUPT = """
import os, select, signal, threading
import mqcore as mq
context = mq.Context(linger=0)
pull, push, req = context.socket("pull"), context.socket("push"), context.socket("req")
rep = context.socket("rep", bind="inproc://x")
req.connect("inproc://x")
pub, stream = context.socket("pub"), pull.events()
slow = context.socket("push", connect="inproc://nobody", linger=None)
slow.send(b"x")
calls = {
    "recv": pull.recv, "recv_many": pull.recv_many, "recv_batch": pull.recv_batch,
    "recv_msg": pull.recv_msg, "send": lambda: push.send(b""), "send_many": lambda:
    push.send_many([b""]), "request": lambda: req.request(b"x"), "wait_peers": pull.wait_peers,
    "wait_subscribers": pub.wait_subscribers, "poll": lambda: mq.poll([pull]),
    "iterate": lambda: list(pull), "events": stream.get,
    "connect": lambda: push.connect("inproc://nobody", wait=None), "close": slow.close}
for name, call in calls.items():
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()       # in here: a busy machine may need longer for it
        call()
    except KeyboardInterrupt:
        print(name)
    timer.join()
assert slow.closed and slow.close().undelivered == 1
rep.close(); req.close(); context.close(0)
"""


def test_ctrl_c_ends_every_blocking_call():
    out = run(INTERRUPT)
    assert out.stderr == "" and out.returncode == 0
    assert out.stdout.split() == [
        "recv", "recv_many", "recv_batch", "recv_msg", "send", "send_many", "request", "wait_peers",
        "wait_subscribers", "poll", "iterate", "events", "connect", "close"]


def test_a_script_that_ends_delivers():
    with mq.Context() as context, context.socket("pull", bind="tcp://127.0.0.1:0") as pull:
        out = run(f"import mqcore as mq\ns = mq.Push(connect={pull.endpoints[0].url!r})\n"
                  "for i in range(1000): s.send(b'%d' % i)")
        assert (out.stderr, out.returncode) == ("", 0)
        assert [pull.recv(timeout=5) for _ in range(1000)] == [b"%d" % i for i in range(1000)]


def test_a_script_that_cannot_deliver_says_so():
    out = run("import mqcore as mq\n"
              "s = mq.Push(connect='inproc://nobody', linger=0.05)\ns.send(b'x')")
    assert "1 message(s) could not be delivered" in out.stderr and out.returncode == 0


@pytest.mark.parametrize("cycle", [False, True])
def test_a_forgotten_socket_delivers_and_warns(cycle):
    context = mq.Context()
    pull = context.socket("pull")
    push = context.socket("push", connect="inproc://later", linger=10)
    push.send(b"x")
    if cycle:
        ring = [push]
        ring.append(ring)
        del ring
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del push
        gc.collect()
    said = [str(w.message).split(":")[0] for w in caught]
    assert said == ["unclosed <mqcore.Push connect inproc"]
    pull.bind("inproc://later")
    assert pull.recv(timeout=5) == b"x"
    until(lambda: context.sockets == (pull,))
    pull.close()
    context.close()


def test_a_forgotten_context_ends_its_threads():
    context = mq.Context()
    context.socket("pull").close()
    del context
    gc.collect()  # the leak watch sees the rest


FORK = """
import os, sys
import mqcore as mq
default = mq.Context.default()
pull = mq.Pull(bind="tcp://127.0.0.1:0")
push = mq.Push(connect=pull.endpoints[0])
push.send(b"1")
assert pull.recv(timeout=5) == b"1"
pid = os.fork()
if pid == 0:
    try:
        for call in (pull.recv, lambda: push.send(b""), pull.peers, lambda: default.socket("push"),
                     default.close):
            try:
                call()
            except mq.Forked:
                pass
            else:
                raise AssertionError(call)
        pull.close()
        assert "parent" in repr(pull) and mq.Context.default() is not default
        with mq.Push(connect=pull._links.endpoints[0].url) as own:
            own.send(b"child")
        mq.Context.default().close()
        del pull, push
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert pull.recv(timeout=5) == b"child"
push.send(b"2")
assert pull.recv(timeout=5) == b"2"
push.close(); pull.close()
"""


def test_fork():
    out = run(FORK)
    assert (out.stderr, out.returncode) == ("", 0)


def test_default_context_is_one_and_comes_back():
    first = mq.Context.default()
    assert first is mq.Context.default()
    with mq.Pull() as pull:
        assert pull.context is first
    first.close()
    second = mq.Context.default()
    assert second is not first
    second.close()


def test_close_report(linked):
    pull, push = linked("pull", "push")
    push.send_many([b"abc"] * 10)
    for _ in range(10):
        pull.recv(timeout=5)
    report = push.close(5)
    assert report and (report.written, report.undelivered) == (10, 0)
    assert [p.written for p in report.peers.values()] == [10]




# -- sent away -------------------------------------------------------------------------------------

@pytest.mark.parametrize("reconnect", [1.0, None])
def test_an_inproc_peer_that_is_refused_comes_back_after_a_pause(mq_context, mq_clock, reconnect):
    """And leaves no trace; without `reconnect` it stops, as over any other transport."""
    mq_clock.govern(mq_context)
    first = mq_context.socket("pair", bind="inproc://one")
    second = mq_context.socket("pair", connect="inproc://one")
    second.wait_peers(1, 5)
    third = mq_context.socket("pair", reconnect=reconnect, reconnect_max=1.0)
    at = third.connect("inproc://one")
    until(lambda: at.state in ("waiting", "stopped"))
    until(lambda: len(first.peers()) == 1 and not third.peers())
    assert "refused" in str(at.error)
    if reconnect is None:
        assert at.state == "stopped"
        return
    pause = mq_clock.until_next()
    assert 0.5 <= pause <= 1.0
    second.close()
    until(lambda: not first.peers())
    mq_clock.advance(pause - 1e-6)
    assert at.state == "waiting" and first.peers() == []
    mq_clock.advance(2e-6)
    third.wait_peers(1, 5)
    third.send(b"now", timeout=5)
    assert first.recv(timeout=5) == b"now"


def test_a_socket_that_is_just_being_made_is_closed_with_the_context(monkeypatch):
    """close() finds it, finished; no further one is made."""
    begun, go = threading.Event(), threading.Event()
    marks = SocketLinks._marks

    def slowly(links):
        begun.set()
        assert go.wait(LIMIT)
        return marks(links)

    monkeypatch.setattr(SocketLinks, "_marks", slowly)
    context, made = mq.Context(), {}
    maker = threading.Thread(target=lambda: made.update(sock=context.socket("pull")))
    maker.start()
    assert begun.wait(LIMIT)
    closer = threading.Thread(target=lambda: made.update(report=context.close(0)))
    closer.start()
    until(lambda: context._hub.closing)
    with pytest.raises(mq.ContextClosed, match="being closed"):
        context.socket("push")
    go.set()
    for thread in (maker, closer):
        thread.join(LIMIT)
    assert set(made) == {"sock", "report"} and made["sock"].closed and context.closed


def test_a_device_that_nobody_stopped_ends_with_the_program():
    done = run("""if True:
        import mqcore as mq
        for _ in range(4):
            front, back = mq.Pair(), mq.Pair()
            front.bind("tcp://127.0.0.1:0")
            back.bind("tcp://127.0.0.1:0")
            mq.device(front, back)
        del front, back
    """)
    assert (done.returncode, done.stderr) == (0, "")
