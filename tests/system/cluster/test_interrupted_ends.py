"""What ends a node, or its program, on trio: Ctrl-C at each line of the call that joins or closes,
after which it can be closed again; and a handler that exits."""

import os
import signal
import sys
import threading
from contextlib import nullcontext, suppress

import pytest
import trio

from mqcore import cluster
from mqcore.base.waits import Event

pytestmark = pytest.mark.keeps(threads=2, why="trio keeps its threads for ten seconds")
LIMIT = 50.0
FOLDER = os.path.dirname(cluster.__file__)


@pytest.fixture
def ctrl_c():
    """It is Python's, as trio wants it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Striking:
    """Within `with`, SIGINT comes in this task at the entry or line of that number, of the
    functions of clusters. `struck`: there were so many."""

    def __init__(self, number):
        self._left = number
        self.struck = ""

    def __enter__(self):
        self._task = trio.lowlevel.current_task()
        self._before = sys.gettrace()
        sys.settrace(self._trace)

    def __exit__(self, *exc):
        sys.settrace(self._before)

    def _trace(self, frame, event, arg):
        code = frame.f_code
        if not code.co_filename.startswith(FOLDER) or not trio.lowlevel.in_trio_task() \
                or trio.lowlevel.current_task() is not self._task:
            return None
        # CPython looks for signals where a coroutine begins, and not where it goes on
        if event == "line" or event == "call" and frame.f_lineno == code.co_firstlineno:
            self._left -= 1
            if self._left < 0:
                self.struck = f"{code.co_name}, line {frame.f_lineno}"
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return self._trace


class Stuck:
    async def request(self, it):
        await trio.sleep(LIMIT)


async def ask(net):
    with suppress(cluster.ClusterError):
        await net.arequest("it", b"", timeout=LIMIT)


def system_tasks():
    return sum(len(nursery.child_tasks)
               for nursery in trio.lowlevel.current_root_task().child_nurseries)


async def gone(before):
    """All that a node has begun in this run has ended."""
    with trio.fail_after(LIMIT):
        while system_tasks() > before:
            await trio.sleep(0.001)


async def close(net, strike):
    await net.__aenter__()
    await net.aserve("it", Stuck()).astart()
    await net.asubscribe("t").astart()
    async with trio.open_nursery() as tasks:
        tasks.start_soon(ask, net)
        assert await net.until(lambda: net.services["it"].busy, LIMIT)
        with strike:
            await net.aclose()


async def drain(net, strike):
    await net.__aenter__()
    await net.aserve("it", Stuck()).astart()
    with strike:
        await net.adrain(LIMIT)


async def join(net, strike):
    with strike:
        await net.__aenter__()


@pytest.mark.parametrize("end", [close, drain, join])
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_node_that_is_closed_again_ends(key, rng, ctrl_c, end, every):
    async def main():
        before = system_tasks()
        net = cluster.ajoin(key, udp=False)
        try:
            await end(net, strike)
            await trio.sleep(LIMIT if strike.struck else 0)
        except* KeyboardInterrupt:
            heard.append(strike.struck)
        with trio.fail_after(LIMIT):
            await net.aclose()
        assert net.ended
        await gone(before)
        if hasattr(net, "directory"):
            async with cluster.ajoin(key, listen=net.url, udp=False):
                pass

    number = rng.randrange(every)
    while True:
        strike, heard = Striking(number), []
        trio.run(main)
        if not strike.struck:
            break
        assert heard == [strike.struck]
        number += every
    assert number > 100


class Exits:
    async def request(self, it):
        raise SystemExit(7)


def in_thread(main):
    """Run it in another thread, which raises what the run does."""
    raised = []

    def run():
        try:
            trio.run(main)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    raise raised[0]


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN,
                                     lambda number, frame: None],
                         ids=["default", "ignored", "own"])
@pytest.mark.parametrize("run", [trio.run, in_thread])
def test_a_handler_that_exits_interrupts_the_main_task(key, ctrl_c, run, handler):
    """It needs no signal, and what the program waits for as it ends goes on."""
    seen = []

    async def main():
        async with cluster.ajoin(key, udp=False) as net, \
                cluster.ajoin(key, udp=False, seeds=[net.url]) as other:
            await net.aserve("it", Exits()).astart()
            await other.aserve("stuck", Stuck()).astart()
            try:
                try:
                    await net.arequest("it", b"", timeout=LIMIT)
                except cluster.RemoteError as error:
                    seen.append((error.kind, error.text))
                await trio.sleep(LIMIT)
            finally:
                with trio.CancelScope(shield=True), suppress(cluster.RequestTimeout):
                    await other.arequest("stuck", b"", timeout=0.01)
                seen.append("cleaned up")
                assert await net.until(lambda: net.ended, LIMIT)
                assert not other.closed

    signal.signal(signal.SIGINT, handler)
    with pytest.raises(KeyboardInterrupt):
        run(main)
    assert seen == [("SystemExit", "7"), "cleaned up"]


async def returns(net):
    """The main task has left its node open."""


async def waits(net):
    """A task of another library's has failed, so trio has cancelled all tasks, the node's, too."""
    async def fail():
        raise ValueError

    trio.lowlevel.spawn_system_task(fail)
    with trio.CancelScope(shield=True), pytest.raises(cluster.ClusterError):
        await net.arequest("it", b"", timeout=LIMIT)


@pytest.mark.parametrize(("end", "raised"), [(returns, None), (waits, trio.TrioInternalError)])
def test_a_node_leaves_as_its_run_ends(key, end, raised):
    held, nets = Event(), []

    class Held:
        def request(self, it):
            held.wait()

    async def main():
        nets.append(await cluster.ajoin(key, udp=False, seeds=[other.url]).__aenter__())
        await nets[0].await_members("it", timeout=LIMIT)
        await end(nets[0])

    with cluster.join(key, udp=False) as other, other.serve("it", Held()):
        events, kinds = other.events(), []
        with pytest.raises(raised) if raised else nullcontext():
            trio.run(main)
        held.set()
        assert nets[0].ended and nets[0].links.socket.closed
        while not {"left", "failed"} & set(kinds):
            kinds.append(events.next(LIMIT).kind)
        assert "failed" not in kinds
