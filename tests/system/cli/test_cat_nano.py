"""`mq cat --PATTERN`: nanocat's and nngcat's words, held against these two themselves."""

import os
import shutil
import signal
import socket
import subprocess
import threading

import pytest
import zmq
from programs import mq

import mqcore
from mqcore.cli import run as cli_run
from mqcore.cli.nanocat import FORMATS, speaks_nanocat
from mqcore.testing import until
from mqcore.testing.keeper import Keeper

TOOLS = [pytest.param(tool, marks=pytest.mark.skipif(
    not shutil.which(tool), reason=f"{tool} is not installed")) for tool in ("nngcat", "nanocat")]
SHOWN = ["ascii", "quoted", "hex", "raw", "msgpack"]
#: where the two tools differ, ours does as nanocat
BODIES = {"nanocat": bytes(range(256)), "nngcat": bytes(set(range(256)) - {9})}


class Tool:
    """One of the two, running; output is read from its pipe."""

    def __init__(self, tool, *args):
        self.process = subprocess.Popen([tool, *map(str, args)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)

    def read(self, size):
        return self.process.stdout.read(size)

    def result(self):
        """(status, output), when it has ended by itself."""
        out, err = self.process.communicate(timeout=200)
        return self.process.returncode, out, err

    def end(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def tool_of():
    """Starts nngcat or nanocat; it ends with the test."""
    running = []

    def start(*args):
        running.append(Tool(*args))
        return running[-1]

    yield start
    for tool in running:
        tool.end()


@pytest.fixture
def ctx(monkeypatch):
    """The command in this process uses a context that ends with the test."""
    context = Keeper()
    monkeypatch.setattr(mqcore, "socket", context.socket)
    yield context
    context.finish()


@pytest.fixture
def ours(ctx, capfdbinary):
    """`mq cat` in this process: (status, output, error output)."""
    def call(*args):
        capfdbinary.readouterr()
        status = cli_run(["cat", *map(str, args)])
        out, err = capfdbinary.readouterr()
        return status, out, err.decode()
    return call


@pytest.fixture
def aside(ctx, capfdbinary):
    """The same in a thread, listening at -X PATH or --bind; called, it waits for its end and gives
    (status, output)."""
    threads = []

    def start(*args):
        words, found = list(map(str, args)), []
        capfdbinary.readouterr()
        threads.append(threading.Thread(target=lambda: found.append(cli_run(["cat", *words]))))
        threads[-1].start()
        path = words[words.index("-X") + 1] if "-X" in words else \
            words[words.index("--bind") + 1].removeprefix("ipc://")
        until(lambda: os.path.exists(path) or found)

        def finish():
            until(lambda: found, 100)
            return found[0], capfdbinary.readouterr()[0]
        return finish

    yield start
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()


# -- formats ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("form", SHOWN)
def test_formats_are_theirs(tool, form, tool_of):
    """All bytes, and the sizes where msgpack changes its form; what the tool prints is what ours
    does. They come from an SP PUSH by hand."""
    bodies = [BODIES[tool], b"", b"a" * 255, b"b" * 256, b"c" * 65536]
    shown = b"".join(map(FORMATS[form], bodies))
    if (tool, form) == ("nngcat", "ascii"):
        shown = shown.replace(b"\n", b"")       # it has none between messages
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pull = tool_of(tool, "--pull", "--connect-local", listener.getsockname()[1], f"--{form}")
        with listener.accept()[0] as push:
            push.sendall(b"\0SP\0\0\x50\0\0")
            push.sendall(b"".join(len(body).to_bytes(8, "big") + body for body in bodies))
            assert pull.read(len(shown)) == shown


def test_no_format_shows_nothing():
    assert FORMATS["no"](b"x") == b""


def test_the_command_shows_a_message(aside, url):
    """From a pyzmq peer, its parts joined."""
    for form, name in (("--hex", "hex"), ("-Q", "quoted"), ("--format=msgpack", "msgpack")):
        pull = aside("--pull", "--bind", url, "--wire", "zmtp", form, "-C", 1)
        with zmq.Context() as context, context.socket(zmq.PUSH) as push:
            push.linger, push.sndtimeo = 0, 20000
            push.connect(url)
            push.send_multipart([b"a\tb", b"\x00\n"])
            assert pull() == (0, FORMATS[name](b"a\tb\x00\n"))


# -- the language ----------------------------------------------------------------------------------

@pytest.mark.parametrize(("args", "nano"), [
    (["--req", "-l", "1"], True), (["-l", "1", "--req0"], True), (["--pair1"], True),
    (["push", "tcp://x", "-d", "--push"], False), (["push", "--", "--push"], False),
    (["req", "--data", "--rep0"], False), (["pull", "-b", "tcp://x"], False)])
def test_a_patterns_option_chooses_the_language(args, nano):
    assert speaks_nanocat(args) is nano


@pytest.mark.parametrize(("args", "words"), [
    ("--req -l 1", "--req needs --data"),
    ("--push --pull -l 1", "--pull conflicts with --push"),
    ("--push -D x", "--connect URL"),
    ("--pull -D x -l 1", "only receives"),
    ("--push -D x -F y -l 1", "only once"),
    ("--push -D x -l 70000", "70000"),
    ("--pull -l 1 -A --hex", "--hex conflicts with the format ascii"),
    ("--pull -l 1 --format latin", "latin"),
    ("--push -l 1 -D x --subscribe a", "--subscribe is for --sub"),
    ("--push -l 1 -D x -i never", "never"),
    ("--pull -l 1 --topic a", "--topic"),
    ("--pull --connect xyz://a", "xyz"),
])
def test_mistakes_are_one_sentence(args, words, ours):
    status, out, err = ours(*args.split())
    assert (status, out) == (2, b"") and words in err and "Traceback" not in err


def test_help_is_of_the_language(ours):
    status, out, _ = ours("--sub", "--help")
    assert status == 0 and b"--recv-maxsz" in out and b"cat --PATTERN" in out
    status, out, _ = ours("--help")
    assert status == 0 and b"nanocat's and nngcat's" in out and b"--recv-maxsz" not in out


def test_timeouts(url, ours):
    """Nothing to receive is an end in order, nobody to send to is not."""
    assert ours("--pull", "--bind", url, "--recv-timeout", 0.05, "-q") == (0, b"", "")
    status, _, err = ours("--push", "--bind", url, "-D", "x", "--send-timeout", 0.05)
    assert status == 3 and "Traceback" not in err
    status, _, err = ours("push", url, "-d", "x", "-t", 0.05)
    assert status == 3 and "could not be delivered" in err


# -- with the tools themselves: who listens knows both families, who connects speaks SP ------------

@pytest.mark.parametrize("tool", TOOLS)
def test_the_tool_asks_us(tool, aside, tool_of, tmp_path):
    """Our rep; pyzmq asks at the same port."""
    url = f"ipc://{tmp_path}/s"
    rep = aside("--rep", "-X", tmp_path / "s", "-D", "pong", "-A", "-C", 2)
    asks = tool_of(tool, "--req", "--connect", url, "-D", "p\x01ng", "-Q")
    assert asks.result()[:2] == (0, b'"pong"\n')
    with zmq.Context() as context, context.socket(zmq.REQ) as req:
        req.linger, req.rcvtimeo = 0, 20000
        req.connect(url)
        req.send(b"zmq")
        assert req.recv() == b"pong"
    assert rep() == (0, b"p.ng\nzmq\n")


@pytest.mark.parametrize("tool", TOOLS)
def test_we_ask_the_tool(tool, ours, tool_of, tmp_path):
    rep = tool_of(tool, "--rep", "--bind", f"ipc://{tmp_path}/s", "-D", "pong", "--raw")
    asked = ours("--req", "-x", tmp_path / "s", "-D", "ping", "-C", 3, "-A")
    assert asked[:2] == (0, b"pong\n" * 3)
    assert rep.read(12) == b"ping" * 3


@pytest.mark.parametrize("tool", TOOLS)
def test_surveys_both_ways(tool, ours, start, tool_of, tmp_path):
    respondent = tool_of(tool, "--respondent", "--bind", f"ipc://{tmp_path}/s", "-D", "here",
                         "--raw")
    until(lambda: os.path.exists(tmp_path / "s"), 100)
    until(lambda: ours("--surveyor", "-x", tmp_path / "s", "-D", "who", "-Q",    # ends after 0.5 s
                       "--recv-timeout", 0.5)[:2] == (0, b'"here"\n'), 100)
    assert respondent.read(3) == b"who"
    # ours answers until theirs has shown an answer: their surveys end after a second, and an answer
    # may be late for any of them
    answers = start(*mq("cat", "--respondent", "-X", tmp_path / "t", "-D", "me", "-A"))
    until(lambda: os.path.exists(tmp_path / "t"), 100)
    asks = tool_of(tool, "--surveyor", "--connect", f"ipc://{tmp_path}/t", "-D", "and?", "-Q",
                   "-i", 1)
    assert asks.read(5) == b'"me"\n'
    status, out, _ = answers.end(signal.SIGINT)
    assert status == 130 and out.startswith("and?\n")


@pytest.mark.parametrize("tool", TOOLS)
def test_one_way(tool, ours, aside, start, tool_of, tmp_path):
    pull = aside("--pull", "-X", tmp_path / "s", "-A", "-C", 1)
    assert tool_of(tool, "--push", "--connect", f"ipc://{tmp_path}/s", "-D",
                   "job").result()[0] == 0
    assert pull() == (0, b"job\n")
    sub = tool_of(tool, "--sub", "--bind", f"ipc://{tmp_path}/q", "--subscribe", "x", "--raw")
    until(lambda: os.path.exists(tmp_path / "q"))
    assert ours("--pub", "-x", tmp_path / "q", "-D", "xyz", "-C", 2)[0] == 0
    # nanomsg forgets what it has not handed out yet when the publisher leaves: here one stays
    pub = start(*mq("cat", "--pub", "-x", tmp_path / "q", "-D", "xyz", "-i", 0.05))
    assert sub.read(9) == b"xyzxyzxyz"
    assert pub.end(signal.SIGINT)[0] == 130


def test_we_subscribe_to_the_tool(ours, tool_of, tmp_path):
    """Who publishes sends everything: the subscriber filters."""
    if not shutil.which("nanocat"):
        pytest.skip("nanocat is not installed")
    tool_of("nanocat", "--pub", "--bind", f"ipc://{tmp_path}/p", "-D", "a topic", "-i", 0.02)
    until(lambda: os.path.exists(tmp_path / "p"))
    assert ours("--sub", "-x", tmp_path / "p", "--subscribe", "b",
                "--recv-timeout", 0.2)[:2] == (0, b"")
    assert ours("--sub", "-x", tmp_path / "p", "--subscribe", "a", "-C", 2,
                "-A")[:2] == (0, b"a topic\n" * 2)


@pytest.mark.parametrize(("tool", "pattern"), [
    ("nanocat", "bus"), ("nanocat", "pair"), ("nngcat", "pair0"), ("nngcat", "pair1")])
def test_talks(tool, pattern, start, tool_of, tmp_path):
    """Both send what they have, then show what comes."""
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    theirs = tool_of(tool, f"--{pattern}", "--bind", f"ipc://{tmp_path}/s", "-D", "theirs",
                     "--raw", *(["-i", 0.1] if pattern == "bus" else []))
    until(lambda: os.path.exists(tmp_path / "s"))
    ours = start(*mq("cat", f"--{pattern}", "-x", tmp_path / "s", "-D", "ours", "-A"))
    assert theirs.read(4) == b"ours" and ours.line() == "theirs"
    assert ours.end(signal.SIGINT)[0] == 130


def test_the_size_limit(aside, url):
    """-Z closes the connection of who sends more; what fits comes."""
    pull = aside("--pull", "--bind", url, "-Z", 100, "-A", "-C", 1)
    with mqcore.Context() as context, context.socket("push", reconnect=0.02) as push:
        events = push.events()
        push.connect(url)
        push.send(bytes(200))
        assert any(events.get(20).kind == "Disconnected" for _ in range(20))
        push.wait_peers(1, 20)
        push.send(b"small")
        assert pull() == (0, b"small\n")
