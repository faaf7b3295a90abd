"""A blocking call in a thread in which asyncio or trio runs: one warning for each place that calls,
which names the twin; none where nothing has to wait."""

import asyncio
import subprocess
import sys
import threading
import warnings

import pytest

import mqcore as mq
from mqcore.binding import blocking

LATE = 0.01


@pytest.fixture(autouse=True)
def first_calls(monkeypatch):
    """No place has called before, in another test's loop."""
    monkeypatch.setattr(blocking, "_seen", set())


@pytest.fixture
def pull(ctx):
    return ctx.socket("pull", bind="inproc://blocking")


def warned(loop, fn):
    """What a call inside the loop warned of."""
    async def main():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                try:
                    fn()
                except mq.Timeout:
                    pass
        return [str(one.message) for one in caught if one.category is mq.BlockingCallWarning]
    return loop.run(main)


BLOCKS = "blocks the event loop that runs in this thread, and all its tasks; "


def test_receives_name_their_twins_once_for_each_place(pull, loop):
    def calls():
        for call in (lambda: pull.recv(timeout=LATE),
                     lambda: pull.recv_msg(
                         timeout=LATE),
                     lambda: pull.recv_many(10, timeout=LATE)):
            try:
                call()
            except mq.RecvTimeout:
                pass

    assert warned(loop, calls) == [f"{name}() {BLOCKS}`await` its twin a{name}() instead"
                                   for name in ("recv", "recv_msg", "recv_many")]


def test_sends_requests_and_waits_name_their_twins(ctx, loop):
    push = ctx.socket("push", immediate=True, send_timeout=LATE)
    req = ctx.socket("req", recv_timeout=LATE)
    assert "asend()" in warned(loop, lambda: push.send(b""))[0]
    assert "asend_parts()" in warned(loop, lambda: push.send_parts([b"", b""]))[0]
    assert "arequest()" in warned(loop, lambda: req.request(b""))[0]
    assert "await_peers()" in warned(loop, lambda: req.wait_peers(1, LATE))[0]
    assert "aconnect()" in warned(loop, lambda: push.connect("tcp://127.0.0.1:1", wait=LATE))[0]
    assert "apoll()" in warned(loop, lambda: mq.poll([push], LATE))[0]
    req.connect("tcp://127.0.0.1:1")
    with req.new_context() as context:
        context.send(b"")
        assert "arecv()" in warned(loop, lambda: context.recv(timeout=LATE))[0]


def test_a_for_over_a_socket(ctx, loop):
    pull = ctx.socket("pull", recv_timeout=LATE, bind="inproc://for")

    def every():
        for _ in pull.messages():
            raise AssertionError

    assert warned(loop, every) == [f"this `for` over a socket {BLOCKS}use `async for` instead"]


def test_what_need_not_wait_does_not_warn(ctx, pull, loop):
    push = ctx.socket("push", connect="inproc://blocking")
    push.wait_peers(1, 5)

    def calls():
        with pytest.raises(mq.RecvTimeout):
            pull.recv(timeout=0)
        mq.poll([pull], 0)
        push.send(b"")
        assert pull.recv() == b""
        push.wait_peers(1)

    assert warned(loop, calls) == []


def test_threads_beside_a_loop_do_not_warn(pull, loop):
    thread = threading.Thread(target=pytest.raises, args=(mq.RecvTimeout, pull.recv),
                              kwargs={"timeout": LATE})

    async def main():
        thread.start()
        while thread.is_alive():
            await loop.sleep(0.001)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loop.run(main)


def test_the_warning_points_at_the_caller(pull):
    async def main():
        with pytest.warns(mq.BlockingCallWarning) as caught, pytest.raises(mq.RecvTimeout):
            pull.recv(timeout=LATE)
        assert caught[0].filename == __file__
    asyncio.run(main())


def test_as_an_error_it_leaves_the_message_where_it_was(ctx, pull):
    push = ctx.socket("push", connect="inproc://blocking")

    async def main():
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(mq.BlockingCallWarning):
                pull.recv(timeout=1)

    asyncio.run(main())
    push.send(b"still here")
    assert pull.recv(timeout=5) == b"still here"


def test_a_program_that_imports_ipykernel_is_no_notebook():
    program = """
import asyncio, sys, types, warnings
import mqcore as mq
sys.modules["ipykernel"] = types.ModuleType("ipykernel")
async def main():
    with mq.Pull(bind="inproc://program") as pull, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            pull.recv(timeout=0.01)
        except mq.RecvTimeout:
            print([one.category.__name__ for one in caught])
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=60)
    assert (done.stdout, done.stderr) == ("['BlockingCallWarning']\n", "")


def test_a_cell_of_a_notebook_may_wait():
    """Its kernel runs each cell on its own loop."""
    program = """
import asyncio, sys, types, warnings
warnings.simplefilter("error")
import mqcore as mq
sys.modules["ipykernel"] = types.ModuleType("ipykernel")
cell = compile('''
with mq.Pull(bind="inproc://cell") as pull:
    try:
        pull.recv(timeout=0.01)
    except mq.RecvTimeout:
        print("waited")
''', "<cell>", "exec")
shell = types.ModuleType("IPython.core.interactiveshell")     # which runs the cells
exec("def run_code(cell, names): exec(cell, names)", vars(shell))
async def kernel():
    shell.run_code(cell, globals())
asyncio.run(kernel())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=60)
    assert (done.stdout, done.stderr) == ("waited\n", "")


def test_what_else_programs_wait_for_names_its_twin(ctx, loop):
    sub = ctx.socket("sub", connect="tcp://127.0.0.1:1")
    endpoint = sub.endpoints[0]
    assert "await_ready()" in warned(loop, lambda: endpoint.wait_ready(LATE))[0]
    with sub.events() as events, mq.Poller() as poller:
        assert any("aget()" in text for text in warned(loop, lambda: [
            events.get(LATE) for _ in range(100)]))
        poller.register(sub)
        assert warned(loop, lambda: poller.poll(LATE)) == [
            f"poll() {BLOCKS}`await` its twin apoll() instead"]
    front, back = ctx.socket("pull", bind="inproc://f"), ctx.socket("push", bind="inproc://b")
    with mq.device(front, back) as device:
        assert "await_stopped()" in warned(loop, lambda: device.wait_stopped(LATE))[0]
        assert warned(loop, lambda: device.wait_stopped(0)) == []
