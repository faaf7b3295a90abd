"""A signal handler raises in a blocking call, or in join(): nothing is left of it."""

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import threading

import pytest
import trio
from echoing import Echo
from waiting import until

import mqcore as mq
from mqcore import cluster
from mqcore.base.waits import Event
from mqcore.cluster import blocking, calling, loops

pytestmark = pytest.mark.keeps(threads=2, why="trio keeps its threads for ten seconds")
LIMIT = 50.0


class Raised(Exception):
    """What the handler raises."""


@contextlib.contextmanager
def raising(monkeypatch, done=True):
    """Each blocking call within raises when its result is there, or when it begins to wait."""
    class Interrupted(Event):
        def wait(self, timeout=None):
            while done and not super().wait(timeout):
                pass
            raise Raised

    with monkeypatch.context() as patch, pytest.raises(Raised):
        patch.setattr(calling, "Event", Interrupted)
        yield


@contextlib.contextmanager
def in_trio(key):
    """A node that has joined in a trio loop, in a thread."""
    joined = Event()
    made = []

    async def main():
        stop = trio.Event()
        async with cluster.ajoin(key, udp=False) as node:
            made.extend((node, stop, trio.lowlevel.current_trio_token()))
            joined.set()
            await stop.wait()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    joined.wait()
    node, stop, token = made
    try:
        yield node
    finally:
        token.run_sync_soon(stop.set)
        thread.join()


@pytest.fixture(params=["asyncio", "trio"])
def net(key, request):
    with in_trio(key) if request.param == "trio" else cluster.join(key, udp=False) as made:
        yield made


@contextlib.contextmanager
def busy(net):
    """The loop does nothing else within."""
    at_work, go_on = Event(), Event()

    def work():
        at_work.set()
        go_on.wait()

    soon = net.loop.loop.call_soon_threadsafe if net.loop.loop else net.loop.token.run_sync_soon
    soon(work)
    at_work.wait()
    try:
        yield
    finally:
        go_on.set()


def interrupted_at(number, function):
    """Call it. A signal handler raises at that call or return of a Python function within the
    blocking call. Whether there were so many."""
    steps = itertools.count()
    made = []

    def within(frame):
        while frame is not None and frame.f_code.co_name != "_call":
            frame = frame.f_back
        return frame is not None

    def trace(frame, event, arg):
        if event in ("call", "return") and frame.f_code.co_name != "_call" and within(frame) \
                and next(steps) == number:
            sys.settrace(None)
            raise Raised
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        made.append(function())
    except Raised:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("done", [True, False])
def test_what_a_call_begins_ends(net, key, monkeypatch, done):
    fed = cluster.Key.generate()
    with mq.Rep(bind="tcp://127.0.0.1:0") as rep:
        with raising(monkeypatch, done):
            net.serve("echo", Echo()).start()
        until(lambda: not net.services)
        with raising(monkeypatch, done):
            net.subscribe("a.>").start()
        until(lambda: not net.topics.feeds)
        with raising(monkeypatch, done):
            net.adopt("old", rep.endpoints[0].url)
        until(lambda: not net.adopted)
        with raising(monkeypatch, done):
            net.federate("west", fed, udp=False).start()
        until(lambda: not net.gateways)
        with net.serve("echo", Echo()):
            with raising(monkeypatch, done):
                net.tunnel("echo", timeout=LIMIT).__enter__()
            until(lambda: not net.tunnels.open)
            with raising(monkeypatch, done):
                net.request("echo", b"", timeout=LIMIT)
            until(lambda: not net.requests.pending)
            assert net.request("echo", b"on", timeout=LIMIT) == b"on"
    assert net.drain(LIMIT) is True


def test_what_a_call_has_taken_comes_again(net, key, monkeypatch):
    with net.serve("echo", Echo()), net.subscribe("a.>") as feed, \
            net.tunnel("echo", timeout=LIMIT) as tunnel:
        events = net.events()
        for body in (b"1", b"2"):
            assert net.publish("a.b", body) == 1
            tunnel.send(body)
        with cluster.join(key, udp=False, seeds=[net.url]):
            for take in (lambda: feed.recv(timeout=LIMIT), lambda: tunnel.recv(timeout=LIMIT),
                         lambda: events.next(LIMIT)):
                with raising(monkeypatch):
                    take()
            assert [feed.recv(timeout=LIMIT).body for _ in range(2)] == [b"1", b"2"]
            assert [tunnel.recv(timeout=LIMIT) for _ in range(2)] == [b"1", b"2"]
            assert events.next(LIMIT).kind == "joined"
        assert feed.delivered == 2


@pytest.mark.parametrize("call", [
    lambda net, feed: net.request("echo", b"", timeout=LIMIT),
    lambda net, feed: feed.recv(timeout=LIMIT),
    lambda net, feed: net.serve("other", Echo()).start(),
    lambda net, feed: net.subscribe("b.>").start(),
], ids=["request", "recv", "serve", "subscribe"])
def test_wherever_it_is_interrupted_the_loop_goes_on_and_nothing_is_left(net, call):
    with net.serve("echo", Echo()), net.subscribe("a.>") as feed:
        net.publish("a.b", b"1")
        number = 0
        while interrupted_at(number, lambda: call(net, feed)):
            number += 1
            assert net.request("echo", b"on", timeout=LIMIT) == b"on"
            until(lambda: list(net.services) == ["echo"] and net.topics.feeds == {feed}
                  and feed.waiting == 1)
        assert number > 3


def test_what_the_loop_has_not_begun_never_does(net, monkeypatch):
    with net.subscribe("a.>") as feed:
        net.publish("a.b", b"1")
        for call in (lambda: feed.recv(timeout=LIMIT), lambda: net.serve("echo", Echo()).start(),
                     lambda: net.subscribe("b.>").start(), lambda: net.publish("a.b", b"2")):
            with raising(monkeypatch, done=False), busy(net):
                call()
        assert feed.recv(timeout=LIMIT).body == b"1"
        assert not net.services and net.topics.feeds == {feed} and not feed.waiting


def test_what_ends_all_the_same_after_it_is_given_up_is_undone():
    undone, troubles = [], []

    async def stubborn():
        call.give_up()
        return 1

    for undo in (undone.append, lambda made: 1 / 0):
        call = calling.Calling(stubborn, (), undo, troubles.append)
        asyncio.run(call.run())
        assert undone == [1]
        call.give_up()      # once more
    assert undone == [1] and [type(one) for one in troubles] == [ZeroDivisionError]


def test_a_second_start_that_is_interrupted_leaves_the_first_one(net, monkeypatch):
    with net.subscribe("a.>") as feed, net.serve("echo", Echo()) as service:
        for done in (True, False):
            with raising(monkeypatch, done):
                feed.start()
        with pytest.raises(mq.StateError):
            service.start()
        assert net.publish("a.b", b"1") == 1 and feed.recv(timeout=LIMIT).body == b"1"
        assert not feed.closed and list(net.services) == ["echo"]


def test_a_second_start_that_is_cancelled_leaves_the_first_one(net, monkeypatch):
    begun, ended, cancels = Event(), Event(), []

    async def stuck():
        begun.set()
        try:
            await net.until(lambda: False, None)
        finally:
            ended.set()

    async def begin():
        cancels.append(net.loop.spawn(feed.astart))

    async def cancel():
        cancels[0]()

    with net.subscribe("a.>") as feed:
        with monkeypatch.context() as patch:
            patch.setattr(net, "barrier", stuck)
            net.loop.call(begin)
            begun.wait()
            net.loop.call(cancel)
            ended.wait()
        assert net.publish("a.b", b"1") == 1 and not feed.closed


@pytest.mark.parametrize("leaving", [False, True])
def test_what_is_cancelled_has_ended_only_where_the_node_leaves(net, monkeypatch, leaving):
    calls = []

    class Kept(calling.Calling):
        def __init__(self, *args):
            super().__init__(*args)
            calls.append(self)

    async def stop():
        calls[-1].cancel()
        await net.until(lambda: False, LIMIT)

    with monkeypatch.context() as patch:
        patch.setattr(loops, "Calling", Kept)
        patch.setattr(net.loop, "leaving", leaving)
        if leaving:
            assert net.loop.end(stop, otherwise="ended") == "ended"
        else:
            with pytest.raises(cluster.NodeClosed, match="cancelled"):
                net.loop.end(stop, otherwise="ended")
    with net.serve("echo", Echo()):
        assert net.request("echo", b"on", timeout=LIMIT) == b"on"


def test_a_second_signal_while_the_first_one_is_handled(net, monkeypatch):
    give_up = type(net.loop)._give_up
    given_up = []

    def interrupted(self, call):
        given_up.append(call)
        if len(given_up) == 1:
            raise Raised
        give_up(self, call)

    monkeypatch.setattr(type(net.loop), "_give_up", interrupted)
    with raising(monkeypatch):
        net.serve("echo", Echo()).start()
    until(lambda: not net.services)
    assert len(given_up) == 2


class Late:
    """It answers when the handler has forked."""

    def __init__(self):
        self.forked = Event()

    def request(self, it):
        assert self.forked.wait(LIMIT)
        return it.body


def test_a_handler_that_forks_in_a_call(net, monkeypatch):
    """The child returns from the handler into the call, and its process has no loop."""
    late, children = Late(), []

    class Forking(Event):
        def wait(self, timeout=None):
            if not children:
                children.append(os.fork())
                if children[0]:
                    late.forked.set()
                else:
                    signal.alarm(int(LIMIT))    # it ends, whatever it waits for
            return super().wait(timeout)

    with net.serve("late", late), monkeypatch.context() as patch:
        patch.setattr(calling, "Event", Forking)
        status = 1
        try:
            assert net.request("late", b"it", timeout=LIMIT) == b"it"
        except mq.Forked:
            status = 0
        finally:
            if children == [0]:
                os._exit(status)
        until(lambda: os.waitpid(children[0], os.WNOHANG) == (children[0], 0))


class Answers:
    def broadcast(self, it):
        return it.body


def test_an_interrupted_step_of_a_survey_takes_nothing(net, key, monkeypatch):
    with net.serve("all", Answers()), cluster.join(key, udp=False, seeds=[net.url]) as other, \
            other.serve("all", Answers()):
        net.wait_members("all", 2, timeout=LIMIT)
        survey = net.survey("all", b"x", deadline=LIMIT)
        for _ in range(3):
            with raising(monkeypatch):
                next(iter(survey))
        assert {answer.peer.id for answer in survey} == {net.id, other.id}
        assert survey._waiting == 0


def test_a_thread_whose_start_was_interrupted_ends(key, monkeypatch):
    made = []

    class Interrupted(blocking.Thread):
        def start(self):
            made.append(self)
            super().start()
            raise Raised

    monkeypatch.setattr(blocking, "Thread", Interrupted)
    with pytest.raises(Raised), cluster.join(key, udp=False):
        pass
    made[0].join()


def test_a_block_that_is_interrupted_as_it_ends_leaves(key, monkeypatch):
    with pytest.raises(Raised), cluster.join(key, udp=False) as net:
        [leave] = {blocking.Joined._leave}

        def interrupted(self):
            monkeypatch.undo()
            assert blocking.Joined._leave is leave
            raise Raised

        monkeypatch.setattr(blocking.Joined, "_leave", interrupted)
    until(lambda: net.ended)
