"""Context(monitor=): what a context publishes, who may read it, and how it ends."""

import os
import signal
import socket
import subprocess
import sys
import threading
from urllib.parse import quote

import pytest
from monitored import child, end, kill
from waiting import until

import mqcore as mq
from mqcore import monitor
from mqcore.monitor import place


def test_a_snapshot_has_the_exact_counters():
    with mq.Context(monitor=True) as context:
        pull = mq.Pull(bind="tcp://127.0.0.1:0", context=context)
        push = mq.Push(connect=pull.endpoints[0].url, context=context)
        for _ in range(10):
            push.send(b"abc")
            pull.recv()
        with monitor.Client() as client:
            shot, = client.snapshots()
            text, = client.explain(1)
        first, second = shot.sockets
        assert (first.pattern, first.received) == ("pull", 10)
        assert (second.pattern, second.sent) == ("push", 10)
        assert second.peers[0].offered == 10
        assert shot.process.pid == os.getpid()
        assert "10 received" in text


def test_events_arrive_and_observers_leave(folder):
    with mq.Context(monitor=True) as context, monitor.Client() as client:
        pull = mq.Pull(bind="tcp://127.0.0.1:0", context=context)
        found = []
        reader = threading.Thread(target=lambda: found.append(next(client.events(timeout=30))))
        reader.start()
        context._monitor._events.wait_subscribers(b"event.Closed", timeout=30)
        while not context._hub.observers:       # the agent's thread reads the subscription next
            threading.Event().wait(0.01)
        pull.close()
        reader.join()
        assert (found[0].socket, found[0].pattern, found[0].context) == \
            (1, "pull", context._monitor.id)
    assert list(folder.iterdir()) == []


def test_off_costs_nothing(folder):
    with mq.Context() as context, mq.Pull(bind="inproc://x", context=context):
        assert context._monitor is None
        assert not context._hub.observers
    assert not folder.exists()


def test_two_contexts_with_one_name():
    settings = monitor.Publish(name="shop")
    with mq.Context(monitor=settings), mq.Context(monitor=settings):
        found = monitor.look()
        assert [shot.context.name for shot in found] == ["shop", "shop"]
        assert found[0].context.id != found[1].context.id


@pytest.mark.parametrize("code", ["kept = mq.Context()", "kept = mq.Context.default()",
                                  "kept = [mq.Context()]; kept.append(kept)"])
def test_a_program_ends_that_leaves_a_monitored_context_open(code, folder):
    """It has no socket, so nothing else closes the context before the interpreter is gone."""
    process = child(f"import sys, mqcore as mq\n{code}\nprint('ready', flush=True)\n"
                    "sys.stdin.readline()", MQCORE_MONITOR="1")
    assert end(process) == 0
    assert list(folder.iterdir()) == []


def test_the_environment_publishes_and_exit_removes_the_files(folder):
    process = child(MQCORE_MONITOR="1")
    shot, = monitor.look()
    assert shot.process.pid == process.pid
    assert end(process) == 0
    assert list(folder.iterdir()) == []


def test_a_killed_process_is_not_listed(folder):
    process = child(MQCORE_MONITOR="1")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    assert len(list(folder.iterdir())) == 2
    assert monitor.discover() == []
    for path in folder.iterdir():
        os.utime(path, (0, 0))
    with mq.Context(monitor=True):
        assert [shot.process.pid for shot in monitor.look()] == [os.getpid()]
        assert len(list(folder.iterdir())) == 2


def test_a_look_removes_both_files_of_a_killed_process(folder):
    kill(child(MQCORE_MONITOR="1"))
    for path in folder.iterdir():
        os.utime(path, (0, 0))
    assert monitor.look() == [] == list(folder.iterdir())


def test_a_context_is_found_behind_any_number_of_other_files(folder, monkeypatch):
    monkeypatch.setattr(place, "MOST", 4)
    with mq.Context(monitor=True) as context:
        for number in range(20):
            (folder / f"a{number}").touch()
        assert monitor.discover() == [context._monitor.url]


def test_names_that_are_not_ascii(folder):
    process = child("import sys, mqcore as mq; sys.argv = ['\\u6728' * 50 + '.py']\n"
                    "from mqcore import monitor\n"
                    "context = mq.Context(monitor=monitor.Publish(name='\\udcff\\u6728'))\n"
                    "print('ready', flush=True); sys.stdin.readline()")
    shot, = monitor.look()
    assert shot.process.program == "\u6728" * 40
    assert shot.context.name == "\\udcff\u6728"
    assert end(process) == 0


@pytest.mark.parametrize("value", ["maybe", "relative/path"])
def test_a_bad_variable_is_no_error(monkeypatch, value, caplog):
    monkeypatch.setenv("MQCORE_MONITOR", value)
    with mq.Context() as context:
        assert context._monitor is None
    assert "has no effect" in caplog.text
    with mq.Context(monitor=True):
        assert len(monitor.look()) == 1


#: makes a context, becomes another user if it can, makes another one, and closes both or none
DROPS = """
import os, sys, mqcore as mq
def work(name):
    context = mq.Context()
    push, pull = (context.socket(pattern) for pattern in ("push", "pull"))
    push.bind("inproc://" + name)
    pull.connect("inproc://" + name)
    push.send(b"x")
    assert pull.recv(timeout=30) == b"x"
    return context
first = work("first")
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
second = work("second")
if sys.argv[1] == "close":
    first.close()
    second.close()
"""


@pytest.mark.parametrize("ends", ["close", "leave"])
@pytest.mark.parametrize("where", ["1", "mine", "read-only/x", "/proc/self/x", "/dev/null/x",
                                   "/nonexistent/x"])
def test_a_program_that_gives_up_its_rights_goes_on(tmp_path, where, ends):
    (tmp_path / "read-only").mkdir(mode=0o555)
    value = where if where == "1" else str(tmp_path / where)
    done = subprocess.run([sys.executable, "-c", DROPS, ends], capture_output=True, text=True,
                          timeout=60, env={**os.environ, "MQCORE_MONITOR": value})
    assert done.returncode == 0, done.stderr
    assert all("has no effect" in line for line in done.stderr.splitlines()), done.stderr


def test_a_forked_child_leaves_it_alone():
    with mq.Context(monitor=True) as context:
        number = os.fork()
        if not number:
            context._monitor.close()
            context._monitor.leave()
            os._exit(0)
        assert os.waitpid(number, 0)[1] == 0
        assert len(monitor.look()) == 1


@pytest.mark.parametrize("request_bytes", [
    b"", b"{}", b"\xff" * 100, b"[" * 4000, b'{"op":"snapshot","most":-1}',
    b'{"op":"hello","v":9}'], ids=["empty", "untyped", "binary", "deep", "negative", "later"])
def test_nonsense_is_answered_with_a_failure(request_bytes):
    with mq.Context(monitor=True) as context, mq.Context() as other, \
            mq.Surveyor(connect=context._monitor.url, context=other) as asks:
        asks.wait_peers(1, timeout=30)
        answer = next(iter(asks.survey(request_bytes, deadline=5.0)))
        assert isinstance(monitor.protocol.decode_answer(bytes(answer)), monitor.Failure)
        assert len(monitor.look()) == 1


def test_bytes_of_no_protocol_do_no_harm():
    with mq.Context(monitor=True) as context:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(context._monitor.url.removeprefix("ipc://"))
            peer.sendall(b"GET / HTTP/1.0\r\n\r\n" * 100)
        assert len(monitor.look()) == 1


def test_an_exposed_address_is_refused():
    with pytest.raises(mq.UsageError, match="every machine"):
        mq.Context(monitor="tcp://*:0")


@pytest.mark.parametrize("name", ["my shop", "50%", "%41", "a?b", "a#b"])
def test_a_folder_with_any_characters(monkeypatch, folder, name):
    monkeypatch.setenv("MQCORE_MONITOR", str(folder.parent / name))
    with mq.Context(monitor=True) as context, monitor.Client() as client:
        assert (folder.parent / name).is_dir()
        assert [shot.context.id for shot in client.snapshots()] == [context._monitor.id]


@pytest.mark.parametrize("name", ["my shop", "50%", "a#b"])
def test_a_path_with_any_characters(folder, name):
    path = folder.parent / f"{name}.sock"
    url = f"ipc://{quote(str(path))}"
    with mq.Context(monitor=url) as context:
        assert path.stat().st_mode & 0o777 == 0o600
        assert [shot.context.id for shot in monitor.look(url)] == [context._monitor.id]


@pytest.mark.parametrize("length", [30, 60, 70])
def test_in_a_long_folder_the_name_of_the_program_is_cut(monkeypatch, folder, length):
    path = folder.parent / ("f" * (length - len(str(folder.parent)) - 1))
    monkeypatch.setenv("MQCORE_MONITOR", str(path))
    monkeypatch.setattr("sys.argv", ["n" * 40 + ".py"])
    monkeypatch.delattr("__main__.__spec__")
    with mq.Context() as context:
        assert len(place.parse(context._monitor.events).address) <= 107
        shot, = monitor.look()
        assert shot.process.program == "n" * 40


def test_a_folder_that_is_too_long_is_no_error(monkeypatch, folder, caplog):
    monkeypatch.setenv("MQCORE_MONITOR", str(folder.parent / ("f" * 90)))
    for _ in range(3):
        with mq.Context() as context:
            assert context._monitor is None
    assert caplog.text.count("is too long") == 1
    assert "MQCORE_MONITOR=/its/path" in caplog.text


def test_the_folder_follows_from_the_environment_alone(monkeypatch, folder):
    """A disk that fills up must not move it: programs that run would not be found."""
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("TMPDIR", str(folder.parent))
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    assert place.folder() == folder.parent / f"mqcore-{os.getuid()}"
    (long := folder.parent / ("l" * 80)).mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    assert str(place.folder()) == f"/tmp/mqcore-{os.getuid()}"
    monkeypatch.setenv("TMPDIR", "/nowhere")
    assert str(place.folder()) == f"/tmp/mqcore-{os.getuid()}"


def test_a_program_whose_name_is_unusual_is_not_disturbed(monkeypatch):
    monkeypatch.setenv("MQCORE_MONITOR", "1")
    monkeypatch.delattr("__main__.__spec__")
    for argv in ([None], [], [b"bytes"]):
        monkeypatch.setattr("sys.argv", argv)
        with mq.Context() as context, mq.Pull(bind="inproc://x", context=context):
            pass


def test_a_context_with_two_addresses_is_one(folder):
    with mq.Context(monitor=True) as context:
        url = context._monitor.url
        other = url.replace("/mqcore/", "/./mqcore/")
        with monitor.Client([url, other]) as client:
            shot, = client.snapshots()
            assert client.malformed == 0
            assert client.url_of(shot.context.id) in (url, other)
            assert client.url_of("none") == ""


def test_events_of_a_context_that_listens_everywhere():
    with mq.Context(monitor=monitor.Publish("tcp://*:0", insecure=True)) as context:
        port = context._monitor.url.rpartition(":")[2]
        with monitor.Client(f"tcp://127.0.0.1:{port}") as client:
            found = []
            reader = threading.Thread(target=lambda: found.append(next(client.events(timeout=30))))
            reader.start()
            context._monitor._events.wait_subscribers(b"event.Closed", timeout=30)
            while not context._hub.observers:
                threading.Event().wait(0.01)
            mq.Pull(bind="inproc://x", context=context).close()
            reader.join()
            assert found[0].context == context._monitor.id


def test_contexts_that_have_ended_are_forgotten(folder):
    with monitor.Client() as client:
        for _ in range(3):
            with mq.Context(monitor=True) as context:
                list(client.events(timeout=0.01))
                assert client.url_of(context._monitor.id) == context._monitor.url
        until(lambda: not list(client.events(timeout=0.01)) and not client._publishers)
        client.snapshots()
        assert client._answered == client._endpoints == client._numbers == {}


@pytest.mark.parametrize(("url", "via", "found"), [
    ("tls+tcp://0.0.0.0:5", "tls+tcp://a.example:7?backlog=3", "tls+tcp://a.example:5"),
    ("tcp://[::]:5", "tcp://[2001:db8::1]:7", "tcp://[2001:db8::1]:5"),
    ("tcp://*:5", "", "tcp://*:5"),
    ("ipc:///m-events.sock", "ipc:///m.sock", "ipc:///m-events.sock"),
    ("tcp://192.0.2.1:5", "tcp://a.example:7", "tcp://192.0.2.1:5")])
def test_events_are_read_where_the_context_is_reached(url, via, found):
    assert place.as_reached(url, via) == found
