"""`mq top`: what it shows, in a pipe and in a terminal; how it ends."""

import dataclasses
import io
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from fcntl import ioctl
from types import SimpleNamespace

import pytest
from monitored import child, end
from programs import environment, run
from programs import mq as command
from rich.console import Console
from waiting import until

import mqcore as mq
from mqcore import monitor
from mqcore.cli.keyboard import Keys
from mqcore.cli.top import SORTS, TIMES, cells, chosen, duration, number, place
from mqcore.cli.top_view import Looking, View
from mqcore.monitor import protocol
from mqcore.monitor.rates import Rates

ESCAPES = "\x1b[2J\x07"
BUSY = """
import sys, threading, mqcore as mq
pull = mq.Pull(bind="inproc://jobs")
push = mq.Push(connect="inproc://jobs")
pub = mq.Pub(bind="inproc://news", send_hwm=5)
sub = mq.Sub(topics=b"", connect="inproc://news", recv_hwm=5)
pub.wait_subscribers(b"", timeout=30)
for _ in range(100):
    pub.send(b"x")
stop = threading.Event()
def work():
    while not stop.is_set():
        push.send(b"job"); pull.recv(); stop.wait(0.002)
thread = threading.Thread(target=work); thread.start()
print("ready", flush=True)
sys.stdin.readline()
stop.set(); thread.join()
"""


@pytest.fixture
def busy():
    process = child(BUSY, MQCORE_MONITOR="1")
    yield process
    end(process)


class Terminal:
    """A program in a pseudo-terminal of 24 lines of 120 columns."""

    def __init__(self, *words):
        self.master, slave = pty.openpty()
        ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
        self.slave = slave
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [sys.executable, *map(str, words)], stdin=slave, stdout=slave, stderr=slave,
            env={**environment(), "TERM": "xterm", "COLUMNS": "120", "LINES": "24"},
            start_new_session=True, preexec_fn=lambda: ioctl(0, termios.TIOCSCTTY, 0))
        self.seen = b""

    def until(self, text, patience=120.0):
        """Read until this text is on the screen after what was read before."""
        limit = time.monotonic() + patience
        while text.encode() not in self.seen:
            left = limit - time.monotonic()
            assert left > 0 and select.select([self.master], [], [], left)[0], self.seen
            self.seen += os.read(self.master, 65536)
        self.seen = self.seen.partition(text.encode())[2]

    def press(self, keys):
        os.write(self.master, keys.encode())

    def end(self):
        """The exit status, and all that was printed at the end."""
        while self.process.poll() is None:
            if select.select([self.master], [], [], 0.05)[0]:
                self.seen += os.read(self.master, 65536)
        while select.select([self.master], [], [], 0)[0]:
            self.seen += os.read(self.master, 65536)
        return self.process.returncode, self.seen

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal():
    running = []

    def start(*words):
        running.append(Terminal(*command("top", "--interval", 0.1, *words)))
        return running[-1]

    yield start
    for one in running:
        one.close()


def test_once_prints_a_table_with_rates(busy):
    def table():
        status, out, err = run(*command("top", "--once", "--interval", 0.3))
        assert (status, err) == (0, "")
        lines = [line.split() for line in out.decode().splitlines()]
        assert lines[0][:4] == ["program", "pid", "#", "pattern"]
        return {line[3]: line for line in lines[1:]}

    rows = table()
    assert set(rows) == {"push", "pull", "pub", "sub"}
    assert rows["pull"][1] == str(busy.pid)
    until(lambda: float(table()["pull"][7].rstrip("k")) > 0)    # not every interval has a message
    assert "full" in rows["pub"]


def test_json_has_sockets_peers_and_drops_by_reason(busy):
    def shown():
        status, out, err = run(*command("top", "--once", "--format", "json", "--interval", 0.3,
                                        "--sort", "drops"))
        assert (status, err) == (0, "")
        found = json.loads(out)
        first = found["sockets"][0]
        assert first["pattern"] in ("pub", "sub")
        assert first["drops"] == sum(first["dropped"].values()) > 0
        assert all(len(sock["peers"]) == 1 for sock in found["sockets"])
        pull, = (sock for sock in found["sockets"] if sock["pattern"] == "pull")
        # on a busy machine it may get nothing in an interval
        return pull["peers"][0]["in_rate"] > 0 and pull["in_rate"] > 0
    until(shown)


def test_filter_and_urls(busy):
    url, = monitor.discover()
    status, out, _ = run(*command("top", url, "--once", "--interval", 0.1, "-f", "INPROC pul"))
    assert status == 0
    assert [line.split()[3] for line in out.decode().splitlines()[1:]] == ["pull"]


def test_nothing_to_show_is_explained():
    status, out, err = run(*command("top", "--once", "--interval", 0.1))
    assert status == 0
    assert len(out.splitlines()) == 1
    assert "MQCORE_MONITOR=1" in err


def test_a_pipe_is_no_terminal():
    status, _, err = run(*command("top"))
    assert status == 2
    assert "--once" in err


def test_keys_open_a_socket_filter_and_quit(busy, terminal):
    screen = terminal("--sort", "program")
    screen.until("4 of 4 sockets")
    screen.press("/pul\r")
    screen.until("1 of 4 sockets")
    screen.press("\r")
    screen.until("pull 1")
    screen.until("high-water marks")
    screen.press("\x1b")
    screen.until("1 of 4 sockets")
    screen.press("\x1b")
    screen.until("4 of 4 sockets")
    screen.press("s")
    screen.until("sort rate")
    screen.press("r")
    screen.until("(reverse)")
    screen.press(" ")
    screen.until("paused")
    screen.press("\x1b[B\x1b[B\x1b[6~q")
    status, _ = screen.end()
    assert status == 0
    assert termios.tcgetattr(screen.slave) == screen.before


@pytest.mark.parametrize(("how", "expected"), [("\x03", 130), (signal.SIGTERM, 143)],
                         ids=["Ctrl-C", "SIGTERM"])
def test_it_leaves_a_clean_terminal(busy, terminal, how, expected):
    screen = terminal()
    screen.until("4 of 4 sockets")
    assert termios.tcgetattr(screen.slave) != screen.before
    if isinstance(how, str):
        screen.press(how)
    else:
        screen.process.send_signal(how)
    status, seen = screen.end()
    assert status == expected
    assert b"Traceback" not in seen
    assert seen.rindex(b"\x1b[?1049l") > seen.rfind(b"\x1b[?1049h")     # the main screen
    assert seen.rindex(b"\x1b[?25h") > seen.rfind(b"\x1b[?25l")         # a cursor
    assert termios.tcgetattr(screen.slave) == screen.before


def test_a_program_that_ends_leaves_the_list(terminal):
    process = child(BUSY, MQCORE_MONITOR="1")
    screen = terminal()
    screen.until("4 of 4 sockets")
    end(process)
    screen.until("0 of 0 sockets")
    screen.press("q")
    assert screen.end()[0] == 0


def test_escape_sequences_of_a_program_do_not_reach_the_terminal():
    with mq.Context(monitor=True) as context, mq.Pull(bind="inproc://x", context=context):
        forged = json.loads(protocol.encode(monitor.look()[0]))
    forged["sockets"][0] |= {"pattern": ESCAPES, "lost": {ESCAPES: 1},
                             "latencies": {ESCAPES: {"sum": 1, "counts": {"1": 1}}}}
    row, = Rates().update([protocol.decode_answer(json.dumps(forged).encode())])
    view = View(SimpleNamespace(failure=ESCAPES), "rate", "")
    view._rows, view._detail = [row], row
    shown = io.StringIO()
    screen = Console(file=shown, width=200, color_system=None)
    screen.print(view.draw())
    view.opened = place(row)
    screen.print(view.draw())
    assert shown.getvalue().count("x1b") >= 6 and "\x1b" not in shown.getvalue()
    assert all(cell.isprintable() for cell in cells(row))


def test_escape_sequences_of_peers_do_not_reach_the_terminal(terminal):
    with mq.Context(monitor=monitor.Publish(name="\x1b[31mred\x07")) as context, \
            mq.Pull(bind="inproc://x", context=context):
        screen = terminal()
        screen.until("1 of 1 sockets")
        screen.until("\\x1b[31mred\\x07")
        screen.press("q")
        assert screen.end()[0] == 0


def test_keys_in_pieces():
    reader, writer = os.pipe()
    try:
        keys = Keys(reader)
        os.write(writer, b"a\x1b[A\x1b[5~\x1b[99;99q\x01\x7f\x1bOB")
        assert keys.wait(10) == ["a", "up", "page up", "backspace", "down"]
        os.write(writer, b"\x1b")
        assert keys.wait(10) == ["escape"]
        assert keys.wait(0) == []
        os.close(writer)
        writer = -1
        keys.wait(10)
        assert keys.ended
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)


@pytest.mark.parametrize(("seconds", "text"), [
    (0, "0 ns"), (1.5e-8, "15 ns"), (0.99996e-3, "1 ms"), (0.99996, "1 s"), (2.5e-5, "25 us"),
    (998.4, "998 s"), (2199.023255552, "37 min"), (5.9999e4, "16.7 h"), (1e7, "116 d")])
def test_times_are_short(seconds, text):
    assert duration(seconds) == text


def test_times_take_at_most_seven_characters():
    """Also where one unit ends and the next begins."""
    sizes = {unit: size for unit, size, _ in TIMES}
    for size in sizes.values():
        for factor in (0.9949, 0.9995, 1.0, 9.995, 16.66, 99.95, 99.96, 999.49, 999.5, 999.51):
            text = duration(size * factor)
            value, unit = text.split()
            assert len(text) <= 7 and "e" not in value, text
            assert float(value) * sizes[unit] == pytest.approx(size * factor, rel=0.05), text


def test_numbers_are_short():
    values = [0, 0.04, 3.25, 10, 999, 999.6, 12345, 1e6, 999_600, 5e9, 1e15, 1e18]
    assert [number(value) for value in values] == \
        ["0", "0.0", "3.2", "10", "999", "1.0k", "12.3k", "1.0M", "1.0M", "5.0G", "1P", "1000P"]
    assert all(len(number(10.0 ** n * 7)) <= 5 for n in range(18))


def shot(clock, sent, context="c"):
    return monitor.Snapshot(
        v=1, at=0.0, clock=clock, events="", context=monitor.ContextFacts(id=context, name=""),
        process=monitor.Process(pid=1, host="", program="p", uid=0, started=0.0, python="",
                                mqcore=""),
        sockets=[monitor.SocketFacts(number=1, pattern="push", sent=sent)])


def test_rates_of_two_looks():
    rates = Rates()
    assert rates.update([shot(1.0, 100)])[0].out_rate == 0.0
    assert rates.update([shot(3.0, 300)])[0].out_rate == 100.0
    assert rates.update([shot(3.0, 300)])[0].out_rate == 100.0      # the same look again
    assert rates.update([shot(4.0, 300)])[0].out_rate == 0.0
    rates.update([])
    assert rates.update([shot(5.0, 900)])[0].out_rate == 0.0        # forgotten meanwhile


def test_rates_of_a_clock_that_stands_still_are_numbers():
    """JSON has no word for infinity."""
    rates = Rates()
    for clock, sent in ((0.0, -(1 << 63)), (5e-324, (1 << 63) - 1)):
        row, = rates.update([shot(clock, sent)])
        json.dumps(dataclasses.asdict(row), allow_nan=False)


def test_orders_are_total():
    rows = Rates().update([shot(1.0, n, f"c{n}") for n in range(5)])
    for sort in SORTS:
        assert chosen(rows, sort, "") == chosen(rows[::-1], sort, "")
        assert chosen(rows, sort, "", reverse=True) == chosen(rows, sort, "")[::-1]


def test_a_screen_of_a_thousand_sockets(monkeypatch):
    from rich.console import Console

    from mqcore.cli.top_view import View

    class Many:
        failure = ""

        def snapshots(self, **how):
            return [shot(1.0, n, f"c{n}") for n in range(1000)]

    view = View(Many(), "rate", "")
    view.look()
    console = Console(width=120, height=24, file=open(os.devnull, "w"), record=True)
    with console.file:
        console.print(view.draw())
    text = console.export_text()
    assert "1000 of 1000 sockets in 1000 contexts" in text
    assert len(text.splitlines()) <= 24


def test_a_program_that_is_stopped_holds_up_no_key(busy, terminal):
    screen = terminal("--sort", "program")
    screen.until("4 of 4 sockets")
    busy.send_signal(signal.SIGSTOP)
    try:
        screen.until("0 of 0 sockets")
        screen.press("/none\r")
        screen.until("filter none")
        screen.press("\x1b")
    finally:
        busy.send_signal(signal.SIGCONT)
    screen.until("4 of 4 sockets")
    screen.press("q")
    assert screen.end()[0] == 0


class Asked:
    """A client whose program does not answer before `go` is set."""

    failure = ""

    def __init__(self):
        self.go = threading.Event()
        self.closed = False

    def snapshots(self, **how):
        assert self.go.wait(60)
        if self.closed:
            raise mq.ContextClosed("closed")
        return [shot(1.0, 1)]

    def close(self):
        self.closed = True
        self.go.set()


def test_keys_are_taken_while_a_look_waits():
    client = Asked()
    view = View(client, "rate", "")
    with Looking(view, client, 0.01) as looking:
        view.press("s")
        assert view.sort == "out" and looking.looks() == 0
        client.go.set()
        until(lambda: view._rows)
        view.press("enter")
        assert view.hurry
        looking.hurry()
        until(lambda: view._asked)
        view.press("escape")
        assert view.opened is None


def test_an_error_of_a_look_ends_the_command():
    class Broken(Asked):
        def snapshots(self, **how):
            raise mq.UsageError("a folder of another user")

    client = Broken()
    with Looking(View(client, "rate", ""), client, 0.01) as looking:
        until(lambda: looking._error)
        with pytest.raises(mq.UsageError):
            looking.looks()


def test_a_terminal_that_draws_nothing_is_refused(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    master, slave = pty.openpty()
    try:
        done = subprocess.run([sys.executable, *command("top")], stdin=slave, stdout=slave,
                              stderr=subprocess.PIPE, env=environment(), timeout=120)
    finally:
        os.close(master)
        os.close(slave)
    assert done.returncode == 2 and b"--once" in done.stderr


def test_names_that_the_terminal_does_not_have_are_no_error(terminal, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    with mq.Context(monitor=True) as context, mq.Pull(bind="inproc://\u6728", context=context):
        screen = terminal()
        screen.until("inproc://\\u6728")
        screen.press("q")
        assert screen.end()[0] == 0


@pytest.mark.parametrize("words", [("top", "--once", "--interval", "0.1"), ("map",), ("metrics",
                                   "--once"), ("top", "--once", "--format", "json")])
def test_a_command_without_standard_output_ends(words):
    done = subprocess.run(["/bin/sh", "-c", 'exec "$@" >&-', "sh", sys.executable,
                           *command(*words)], stderr=subprocess.PIPE, env=environment(),
                          timeout=120)
    assert done.returncode == 0 and b"Traceback" not in done.stderr
