"""A device that is refused leaves its sockets as they were: a survey that they have in flight is
answered, and the next device gets them."""

import threading

import pytest

import mqcore as mq
from mqcore import journal
from mqcore.base.threads import Thread


@pytest.fixture
def ends(ctx):
    """A respondent with a survey to answer, and a surveyor whose respondent has answered."""
    replier = ctx.socket("respondent", bind="inproc://front")
    asker = ctx.socket("surveyor", bind="inproc://back")
    client = ctx.socket("surveyor", connect="inproc://front", deadline=60.0)
    server = ctx.socket("respondent", connect="inproc://back")
    for one in (client, asker):
        one.wait_peers(1, timeout=60)
    client.send(b"question")
    assert replier.recv_parts(timeout=60) == [b"question"]
    asker.deadline = 60.0
    asker.send(b"question")
    assert server.recv(timeout=60) == b"question"
    server.send(b"answer")
    return replier, asker, client, server


def check_as_before(ends):
    """And usable for a device."""
    replier, asker, client, server = ends
    replier.send(b"answer")
    assert client.recv_parts(timeout=60) == asker.recv_parts(timeout=60) == [b"answer"]
    with mq.device(replier, asker):
        check_passes(client, server)


def check_passes(client, server):
    client.send(b"question")
    assert server.recv(timeout=60) == b"question"
    server.send(b"answer")
    assert client.recv(timeout=60) == b"answer"


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("wrong", ["hook", "capture", "busy capture", "busy", "closed"])
def test_what_is_wrong_elsewhere(ctx, ends, wrong, swapped):
    replier, asker = ends[:2]
    front, back, more = replier, asker, {}
    busy = ctx.socket("respondent"), ctx.socket("surveyor"), ctx.socket("push")
    with mq.device(*busy[:2], capture=busy[2]):
        if wrong == "hook":
            more = {"hooks": [mq.Hook.compiled(5)]}
        elif "capture" in wrong:
            more = {"capture": ctx.socket("pull") if wrong == "capture" else busy[2]}
        elif wrong == "busy":
            front, back = (replier, busy[1]) if swapped else (busy[0], asker)
        else:
            front, back = (replier, ctx.socket("surveyor")) if swapped else \
                (ctx.socket("respondent"), asker)
            (back if swapped else front).close()
        with pytest.raises(mq.Error, match="compiled hook|cannot be the cap|owns this|is closed"):
            mq.device(*((back, front) if swapped else (front, back)), **more)
    check_as_before(ends)


@pytest.mark.parametrize("kind", ["device", "recorder"])
def test_no_thread_for_it(ends, monkeypatch, tmp_path, kind):
    start = Thread.start

    def scarce(self, *args):
        if self._thread.name in ("mqcore-device", "mqcore-record"):
            raise RuntimeError("can't start new thread")
        start(self, *args)

    with monkeypatch.context() as patch, journal.open(tmp_path, "a") as log:
        patch.setattr(Thread, "start", scarce)
        with pytest.raises(RuntimeError, match="start new thread"):
            mq.device(ends[0], ends[1] if kind == "device" else log)
    check_as_before(ends)


def test_a_call_that_waits_goes_on(ctx):
    replier = ctx.socket("respondent", bind="inproc://waiting")
    client = ctx.socket("surveyor", connect="inproc://waiting", deadline=60.0)
    client.wait_peers(1, timeout=60)
    busy = ctx.socket("respondent"), ctx.socket("surveyor")
    got = []

    def answer():
        for _ in range(50):
            got.append(replier.recv_parts(timeout=60))
            replier.send(b"answer")

    wrong = {"back": busy[1]}, {"back": ctx.socket("surveyor"), "capture": ctx.socket("pull")}
    with mq.device(*busy):
        thread = threading.Thread(target=answer)
        thread.start()
        for _ in range(50):
            for more in wrong:
                with pytest.raises(mq.UsageError):
                    mq.device(replier, **more)
            client.send(b"question")
            assert client.recv(timeout=60) == b"answer"
        thread.join()
    assert got == [[b"question"]] * 50


def test_one_of_several_that_begin_at_once(ctx):
    """In either order of the ends."""
    for number in range(30):
        urls = [f"inproc://{end}{number}" for end in ("front", "back")]
        ends = ctx.socket("respondent", bind=urls[0]), ctx.socket("surveyor", bind=urls[1])
        gate, made, refused = threading.Barrier(4), [], []

        def begin(*ends, gate=gate, made=made, refused=refused):
            gate.wait()
            try:
                made.append(mq.device(*ends))
            except mq.UsageError as error:
                refused.append(error)

        threads = [threading.Thread(target=begin, args=pair) for pair in (ends, ends[::-1]) * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        [device] = made
        assert len(refused) == 3
        with device, ctx.socket("surveyor", connect=urls[0], deadline=60.0) as client, \
                ctx.socket("respondent", connect=urls[1]) as server:
            for one in (client, server):
                one.wait_peers(1, timeout=60)
            check_passes(client, server)
