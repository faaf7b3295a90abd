"""`mq device`: what stands between really passes messages, counts them and ends cleanly."""

import re
import signal

import pytest
from programs import mq, run

import mqcore
from mqcore.cli.device import KINDS


def addresses(program, names=("front", "back")):
    found = dict(program.line().split() for _ in names)
    assert list(found) == list(names)
    return [found[name] for name in names]


def test_a_queue_between_request_and_reply(start):
    device = start(
        *mq("device", "queue", "--front", "tcp://127.0.0.1:0", "--back", "tcp://127.0.0.1:*")
    )
    front, back = addresses(device)
    assert re.fullmatch(r"tcp://127\.0\.0\.1:[1-9]\d*", front)
    workers = [start(*mq("cat", "rep", back)) for _ in range(2)]
    status, out, _ = run(*mq("cat", "req", front, "-d", "hello", "-n", 6))
    assert (status, out) == (0, b"hello\n" * 6)
    for worker in workers:
        worker.kill()
    status, _, err = device.end(signal.SIGINT)
    assert status == 130 and "Traceback" not in err
    assert re.search(r"forth 6\b", err) and re.search(r"\bback 6\b", err)


def test_a_streamer_deals_out(start, tmp_path):
    urls = [f"ipc://{tmp_path}/{name}" for name in ("in", "out")]
    device = start(*mq("device", "streamer", "--front", urls[0], "--back", urls[1], "--every", 0))
    assert addresses(device) == urls
    pull = start(*mq("cat", "pull", urls[1], "-n", 10))
    assert run(*mq("cat", "push", urls[0], "-d", "x", "-n", 10))[0] == 0
    assert pull.result()[:2] == (0, "x\n" * 10)
    status, _, err = device.end()
    assert (status, err) == (143, "")


def test_a_forwarder_with_a_capture(start, tmp_path):
    names = ("front", "back", "capture")
    urls = [f"ipc://{tmp_path}/{name}" for name in names]
    device = start(
        *mq("device", "forwarder", "--front", urls[0], "--back", urls[1], "--capture", urls[2])
    )
    assert addresses(device, names) == urls
    copies = start(*mq("cat", "sub", urls[2], "-s", "a"))
    pub = start(*mq("cat", "pub", urls[0]), stdin=True)
    sub = start(*mq("cat", "sub", urls[1], "-s", "a", "-n", 1))
    pub.send(b"a message\n")
    assert sub.result()[:2] == (0, "a message\n")
    pub.kill()
    copies.kill()
    device.kill()


def test_hooks_filter_change_sample_and_tap(start, tmp_path, monkeypatch):
    (tmp_path / "rules.py").write_text(
        "def wanted(message):\n    return message.body != b'no'\n"
        "def louder(message):\n    return message.body.upper()\n"
    )
    names = ("front", "back", "tap")
    urls = [f"ipc://{tmp_path}/{name}" for name in names]
    monkeypatch.chdir(tmp_path)
    device = start(
        *mq("device", "streamer", "--front", urls[0], "--back", urls[1], "--tap", urls[2]),
        *("--filter", "rules:wanted", "--transform", "rules:louder", "--sample", "1"),
    )
    assert addresses(device, names) == urls
    pull = start(*mq("cat", "pull", urls[1], "-n", 2))
    push = start(*mq("cat", "push", urls[0]), stdin=True)
    push.send(b"yes\nno\nagain\n")
    assert pull.result()[:2] == (0, "YES\nAGAIN\n")
    push.kill()
    status, _, err = device.end(signal.SIGINT)
    assert status == 130 and "Traceback" not in err
    assert re.search(r"rules:wanted#2.passed 2  rules:wanted#2.dropped 1", err)
    assert re.search(r"rules:louder#3.changed 2", err) and "sample#4.passed 2" in err


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (("queue", "--front", "tcp://127.0.0.1:0"), "--back"),
        (("mixer",), "mixer"),
        (("streamer", "--sample", "2"), "--sample"),
    ],
)
def test_mistakes(args, word):
    status, _, err = run(*mq("device", *args))
    assert status == 2 and word in err


def test_every_kind_is_a_device():
    with mqcore.Context() as context:
        for ends in KINDS.values():
            with mqcore.device(*map(context.socket, ends), allow_bus=True) as running:
                assert running.running
    assert {"bus", "pair1", "respondent", "router"} < {front for front, _ in KINDS.values()}
