"""A signal handler raises in a blocking call, or in join(): nothing is left of it."""

import asyncio
import contextlib

import pytest
from echoing import Echo
from waiting import until

import mqcore as mq
from mqcore import cluster
from mqcore.cluster import blocking, loops

LIMIT = 50.0


class Raised(Exception):
    """What the handler raises."""


@contextlib.contextmanager
def raising(monkeypatch, done=True):
    """Each blocking call within raises when its result is there, or when it begins to wait."""
    wait = loops.wait

    def interrupted(futures, limit):
        while done and not wait(futures, limit).done:
            pass
        raise Raised

    with monkeypatch.context() as patch, pytest.raises(Raised):
        patch.setattr(loops, "wait", interrupted)
        yield


@pytest.fixture
def net(key):
    with cluster.join(key, udp=False) as made:
        yield made


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


class Answers:
    def __init__(self, silent=False):
        self.silent = silent

    async def broadcast(self, it):
        await asyncio.sleep(LIMIT if self.silent else 0.0)
        return it.body


@pytest.mark.parametrize("done", [True, False])
def test_a_survey_ends_with_the_answers_that_had_come(net, key, monkeypatch, done):
    """An answer that the call has taken comes again, or it waits for one."""
    with net.serve("all", Answers()), cluster.join(key, udp=False, seeds=[net.url]) as other, \
            other.serve("all", Answers(silent=not done)):
        net.wait_members("all", 2, timeout=LIMIT)
        survey = net.survey("all", b"x", deadline=LIMIT)
        peers = {next(iter(survey)).peer.id}
        until(lambda: not done or survey._answers)
        with raising(monkeypatch, done):
            if not done:
                interrupted = loops.wait
                monkeypatch.setattr(loops, "wait", lambda *args: (
                    until(lambda: survey._nap), interrupted(*args)))
            next(iter(survey))
        until(lambda: not net.surveys.open and len(survey._answers) == done)
        peers |= {answer.peer.id for answer in survey}
        assert peers == ({net.id, other.id} if done else {net.id})
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
