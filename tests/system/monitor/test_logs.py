"""log_events() and MQCORE_DEBUG: what is logged, how often, and where it comes from."""

import gc
import logging
import os
import subprocess
import sys
import threading

import pytest
from doc_examples import FORK
from programs import environment
from waiting import until

import mqcore as mq
from mqcore import events
from mqcore.api import event_log
from mqcore.api.event_log import Limit

BLOCKED = """
import threading, mqcore as mq
pull = mq.Pull(bind="inproc://x")
def waits():
    try:
        pull.recv(timeout=2.5)      # the blocked line
    except mq.Timeout:
        pass
thread = threading.Thread(target=waits)
thread.start()
def quietly(sock):                  # without a line of its own in the call
    threading.excepthook = lambda args: None
    return threading.Thread(target=sock.recv, kwargs={"timeout": 2.5}, name="lonely")
pair = mq.Pair(bind="inproc://y")
lonely = quietly(pair)
lonely.start()
push = mq.Push()
try:
    push.send(b"x", timeout=2.5)    # another one
except mq.Timeout:
    pass
thread.join()
lonely.join()
pull.close()
pair.close()
push.close(0)
"""
LEAKS = """
import gc, mqcore as mq
def makes():
    return mq.Pull(bind="inproc://x")
leaked = makes()
closed = mq.Push(connect="inproc://x")
closed.close()
with mq.Pull(bind="inproc://y"):
    pass
dropped = mq.Pull(bind="inproc://z")
del dropped
gc.collect()
"""


LEAVES = """
import logging, mqcore as mq
class Leaves(logging.Handler):
    seen = []
    def emit(self, record):
        self.seen.append(record)
        if len(self.seen) == 1:
            raise SystemExit
logging.getLogger("mqcore.debug").addHandler(Leaves())
with mq.Pull(bind="inproc://x") as pull:
    while len(Leaves.seen) < 2:
        try:
            pull.recv(timeout=3)
        except mq.Timeout:
            pass
"""


class Records(logging.Handler):
    """Keeps records, and hands each to `wait()`."""

    def __init__(self):
        super().__init__()
        self.records = []
        self.arrived = threading.Condition()

    def emit(self, record):
        with self.arrived:
            self.records.append(record)
            self.arrived.notify_all()

    def until(self, done):
        with self.arrived:
            assert self.arrived.wait_for(lambda: any(map(done, self.records)), 60)
            return next(filter(done, self.records))


@pytest.fixture
def logger():
    made = logging.Logger("test", logging.DEBUG)
    made.records = Records()
    made.addHandler(made.records)
    return made


def kind(name):
    return lambda record: record.mq_event == name


def test_a_socket_logs_structured_records(ctx, logger):
    with mq.Pull(bind="tcp://127.0.0.1:0", context=ctx) as pull:
        with mq.log_events(pull, logger) as log:
            with mq.Push(connect=pull.endpoints[0].url, context=ctx):
                record = logger.records.until(kind("Connected"))
            gone = logger.records.until(kind("Disconnected"))
    assert (record.levelname, record.mq_pattern, record.mq_peer) == ("INFO", "pull", 1)
    assert record.mq_address.startswith("tcp://127.0.0.1:")
    assert record.getMessage().startswith("pull 1: Connected ")
    assert record.mq_suppressed == 0
    assert gone.mq_peer == 1
    assert {one.mq_socket for one in logger.records.records} == {1}
    assert log.logged == len(logger.records.records)


def test_a_context_logs_all_sockets(ctx, logger):
    with mq.log_events(ctx, logger):
        pull = mq.Pull(bind="inproc://x", context=ctx)
        push = mq.Push(connect="inproc://x", context=ctx)
        logger.records.until(lambda record: record.mq_pattern == "push"
                             and record.mq_event == "Connected")
        push.close()
        pull.close()
    assert {one.mq_pattern for one in logger.records.records} == {"pull", "push"}
    assert not ctx._hub.observers


def test_the_log_of_a_socket_ends_with_it(ctx, logger):
    pull = mq.Pull(bind="inproc://x", context=ctx)
    log = mq.log_events(pull, logger)
    pull.close()
    log._thread.join()
    assert not log._thread.is_alive()
    assert not ctx._hub.observers
    assert logger.records.records[-1].mq_event == "Closed"
    log.close()
    with pytest.raises(mq.SocketClosed):
        mq.log_events(pull)


def test_the_log_of_a_socket_ends_with_it_also_if_the_garbage_collector_finds_it(ctx, logger):
    gc.disable()        # it would find the socket before this test expects it to warn
    try:
        ring = [mq.Pull(bind="inproc://x", context=ctx)]
        ring.append(ring)
        log = mq.log_events(ring[0], logger)
        del ring
        with pytest.warns(ResourceWarning, match="unclosed") as told:
            until(lambda: gc.collect() >= 0 and told)       # an event keeps it until it is logged
    finally:
        gc.enable()
    log._thread.join()
    assert not log._thread.is_alive() and not ctx._hub.observers
    assert logger.records.records[-1].mq_event == "Closed"


def test_events_of_a_socket_that_is_being_collected_are_no_error(ctx, logger):
    with mq.Context(monitor=True) as monitored, mq.log_events(monitored, logger) as log:
        with mq.Pull(bind="inproc://x", context=monitored):
            logger.records.until(kind("Listening"))
            garbage = events.Listening(0.0, None, "inproc://y", None, "")
            log._observed(garbage)
            monitored._monitor._observed(garbage)
        assert monitored._monitor.counts["failed"] == 0
        assert monitored._monitor.counts["events_lost"] == 1
        logger.records.until(kind("Closed"))
    assert "inproc://y" not in [one.mq_endpoint for one in logger.records.records]


def test_a_burst_is_suppressed_and_counted(ctx, logger):
    pull = mq.Pull(context=ctx)
    with mq.log_events(pull, logger, rate=5) as log:
        for _ in range(200):
            pull.bind("inproc://x").close()
    listening = [one for one in logger.records.records if one.mq_event == "Listening"]
    assert len(listening) < 200
    assert sum(one.mq_suppressed for one in listening) + \
        sum(not one.getMessage().startswith("socket") for one in listening) == 200
    assert log.suppressed > 0
    pull.close()


def test_the_limit():
    now = [0.0]
    limit = Limit(2.0, lambda: now[0])
    assert [limit.admit((1, "a")) for _ in range(4)] == [True, True, False, False]
    assert limit.admit((2, "a")) and limit.admit((1, "b"))
    assert limit.suppressed == {(1, "a"): 2}
    now[0] += 0.5
    assert [limit.admit((1, "a")) for _ in range(2)] == [True, False]
    now[0] += 1000
    assert [limit.admit((1, "a")) for _ in range(3)] == [True, True, False]


def test_the_limit_holds_for_more_keys_than_it_knows(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(event_log, "KEYS", 100)
    limit = Limit(2.0, lambda: now[0])
    keys = [(number, "a") for number in range(1000)]
    assert sum(limit.admit(key) for _ in range(5) for key in keys) == 2 * 100 + 2
    assert len(limit._keys) <= 101
    now[0] += 1000          # all of them may be forgotten
    assert sum(limit.admit(key) for _ in range(5) for key in keys) == 2 * 100 + 2


def test_what_was_suppressed_is_reported_while_other_events_come(ctx, logger):
    with mq.log_events(ctx, logger, rate=1):
        quiet, busy = mq.Pull(context=ctx), mq.Pull(context=ctx)
        for _ in range(50):
            quiet.bind("inproc://x").close()

        def reported():
            busy.bind("inproc://y").close()
            return any(one.mq_socket == quiet._links.number and one.mq_suppressed
                       for one in logger.records.records)
        until(reported, 60)
        quiet.close()
        busy.close()


def test_a_logger_that_hangs_holds_up_nothing(ctx, monkeypatch):
    monkeypatch.setattr(event_log, "BACKLOG", 10)
    entered, released = threading.Event(), threading.Event()

    class Slow(logging.Handler):
        seen = []

        def emit(self, record):
            self.seen.append(record)
            entered.set()
            assert released.wait(60)

    logger = logging.Logger("slow", logging.DEBUG)
    logger.addHandler(Slow())
    pull = mq.Pull(context=ctx)
    log = mq.log_events(ctx, logger, rate=1e6)
    pull.bind("inproc://x").close()
    assert entered.wait(60)
    for _ in range(50):
        pull.bind("inproc://x").close()     # does not wait for the handler
    assert len(log._queue) == 10
    released.set()
    log.close()
    assert log.logged + log.suppressed == 102
    assert "too slow" in Slow.seen[-1].getMessage()
    assert Slow.seen[-1].mq_suppressed == log.suppressed
    pull.close()


def test_the_log_of_a_socket_ends_with_it_also_if_its_logger_is_too_slow(ctx, monkeypatch):
    monkeypatch.setattr(event_log, "BACKLOG", 10)
    entered, released = threading.Event(), threading.Event()

    class Slow(logging.Handler):
        def emit(self, record):
            entered.set()
            assert released.wait(60)

    logger = logging.Logger("slow", logging.DEBUG)
    logger.addHandler(Slow())
    pull = mq.Pull(context=ctx)
    log = mq.log_events(pull, logger)
    pull.bind("inproc://x").close()
    assert entered.wait(60)
    for _ in range(50):
        pull.bind("inproc://x").close()
    pull.close()
    released.set()
    log._thread.join()
    assert not log._thread.is_alive() and not ctx._hub.observers


def test_a_logger_that_is_too_slow_says_so_while_events_go_on(ctx, monkeypatch):
    """The handler makes more events than it logs, so the queue is never empty."""
    monkeypatch.setattr(event_log, "BACKLOG", 20)
    monkeypatch.setattr(event_log, "PAUSE", 0.01)
    told, over = threading.Event(), threading.Event()
    pull = mq.Pull(context=ctx)

    class Busy(logging.Handler):
        def emit(self, record):
            if "too slow" in record.getMessage():
                told.set()
            if not told.is_set() and not over.is_set():
                for _ in range(20):
                    pull.bind("inproc://x").close()

    logger = logging.Logger("busy", logging.DEBUG)
    logger.addHandler(Busy())
    with mq.log_events(ctx, logger, rate=1e6):
        pull.bind("inproc://x").close()
        found = told.wait(60)
        over.set()
    pull.close()
    assert found


def test_a_handler_may_use_sockets(ctx):
    """As mqcore.zmq.log's handler does: the control plane does not wait for it."""
    out, back = mq.Push(bind="inproc://log", context=ctx), mq.Pull(connect="inproc://log",
                                                                  context=ctx)
    with mq.Context() as other:
        class Sends(logging.Handler):
            def emit(self, record):
                out.send(record.getMessage().encode())

        logger = logging.Logger("sends", logging.DEBUG)
        logger.addHandler(Sends())
        with mq.log_events(other, logger), mq.Pull(bind="inproc://y", context=other):
            assert back.recv(timeout=60).startswith(b"pull 1: Listening")
    out.close(0)
    back.close(0)


def test_a_broken_handler_is_counted(ctx):
    class Broken(logging.Handler):
        def emit(self, record):
            raise RuntimeError("no")

    logger = logging.Logger("broken", logging.DEBUG)
    logger.addHandler(Broken())
    pull = mq.Pull(context=ctx)
    with mq.log_events(pull, logger) as log:
        pull.bind("inproc://x")
    assert log.suppressed >= 1
    pull.close()


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()],
                         ids=lambda error: type(error).__name__)
def test_a_handler_that_wants_to_end_its_thread_is_reported_and_the_log_goes_on(
        ctx, logger, capsys, error):
    class Leaves(logging.Handler):
        def emit(self, record):
            if record.mq_endpoint == "inproc://x":
                raise error

    logger.handlers.insert(0, Leaves())
    pull = mq.Pull(context=ctx)
    with mq.log_events(pull, logger) as log:
        pull.bind("inproc://x").close()
        pull.bind("inproc://y").close()
        logger.records.until(lambda record: record.mq_endpoint == "inproc://y")
    assert type(error).__name__ in capsys.readouterr().err
    assert log.suppressed >= 1 and not ctx._hub.observers
    pull.close()


def test_a_program_whose_excepthook_exits_keeps_the_log(ctx, logger, monkeypatch):
    """Many end the process so, after they have reported the error."""
    class Leaves(logging.Handler):
        def emit(self, record):
            if record.mq_endpoint == "inproc://x":
                raise SystemExit

    def leave(*_):
        called.append(1)
        sys.exit(1)

    called = []
    monkeypatch.setattr(sys, "excepthook", leave)
    logger.handlers.insert(0, Leaves())
    with mq.Pull(context=ctx) as pull, mq.log_events(pull, logger):
        pull.bind("inproc://x").close()
        pull.bind("inproc://y").close()
        logger.records.until(lambda record: record.mq_endpoint == "inproc://y")
    assert called


def test_levels_are_not_formatted_in_vain(ctx, logger):
    logger.setLevel(logging.WARNING)
    with mq.Pull(context=ctx) as pull, mq.log_events(pull, logger) as log:
        pull.bind("inproc://x")
    assert (log.logged, logger.records.records) == (0, [])


@pytest.mark.parametrize("wrong", [
    {"source": 1}, {"logger": 1}, {"rate": 0}, {"rate": True}, {"rate": "x"}, {"rate": 1e9}])
def test_wrong_arguments(ctx, wrong):
    given = {"source": ctx, **wrong}
    with pytest.raises(mq.UsageError):
        mq.log_events(given.pop("source"), given.pop("logger", None), **given)
    assert not ctx._hub.observers


def test_a_forked_child_leaves_it_alone(ctx, logger):
    with mq.log_events(ctx, logger) as log:
        number = os.fork()
        if not number:
            log.close()
            os._exit(0)
        assert os.waitpid(number, 0)[1] == 0
        with mq.Pull(bind="inproc://x", context=ctx):
            logger.records.until(kind("Listening"))


# -- MQCORE_DEBUG ----------------------------------------------------------------------------------


def debugged(code, tmp_path, value="1"):
    path = tmp_path / "program.py"
    path.write_text(code)
    done = subprocess.run([sys.executable, "-W", FORK, path], capture_output=True, text=True,
                          timeout=120, env={**environment(), "MQCORE_DEBUG": value})
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines(), path


def line_of(code, text):
    return next(n for n, line in enumerate(code.splitlines(), 1) if text in line)


def test_blocked_calls_are_explained(tmp_path):
    lines, path = debugged(BLOCKED, tmp_path)
    recv = [line for line in lines if f"{path}:{line_of(BLOCKED, 'the blocked')} in waits" in line]
    send = [line for line in lines
            if f"{path}:{line_of(BLOCKED, 'another one')} in <module>" in line]
    assert recv and send
    assert [line for line in lines if "the thread 'lonely': A pair socket" in line]
    assert all(line.startswith("blocked for ") for line in lines)
    assert "no peer has connected yet" in recv[0]
    assert "neither bound nor connected" in send[0]


def test_a_handler_that_wants_to_end_the_thread_does_not(tmp_path):
    lines, _ = debugged(LEAVES, tmp_path)
    assert lines[-1] == "SystemExit"


def test_leaked_sockets_are_named_with_their_place(tmp_path):
    lines, path = debugged(LEAKS, tmp_path)
    assert len(lines) == 2
    dropped, leaked = lines
    assert "inproc://z" in dropped and "dropped without close()" in dropped
    assert f"{path}:{line_of(LEAKS, 'dropped =')} in <module>" in dropped
    assert "inproc://x" in leaked and "still open when the program ended" in leaked
    assert f"{path}:{line_of(LEAKS, 'return')} in makes" in leaked


def test_sockets_that_one_line_has_leaked_are_named_together(tmp_path):
    code = "import mqcore as mq\nkept = [mq.Pull() for _ in range(200)]\nlast = mq.Push()\n"
    lines, path = debugged(code, tmp_path)
    assert len(lines) == 2
    assert "like 199 more that were made there" in lines[0] and f"{path}:2 in" in lines[0]
    assert "more" not in lines[1] and f"{path}:3 in" in lines[1]


def test_a_monitors_own_sockets_are_no_leak(tmp_path, monkeypatch):
    monkeypatch.setenv("MQCORE_MONITOR", "1")
    lines, _ = debugged("import mqcore as mq\nwith mq.Pull(bind='inproc://x'): pass\n", tmp_path)
    assert lines == []


@pytest.mark.parametrize("value", ["", "0"])
def test_off_says_nothing(tmp_path, value):
    assert debugged(LEAKS, tmp_path, value)[0] == []


def test_a_forked_child_debugs_itself(tmp_path):
    code = """
import os, mqcore as mq
parent = mq.Pull(bind="inproc://x")
number = os.fork()
if number:
    os.waitpid(number, 0)
    parent.close()
else:
    child = mq.Pull(bind="inproc://child")
    try:
        child.recv(timeout=2.5)
    except mq.Timeout:
        pass
    child.close()
    os._exit(0)
"""
    lines, _ = debugged(code, tmp_path)
    assert lines and all("inproc://child" in line for line in lines)
