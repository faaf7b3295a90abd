"""`mq cat`: patterns, formats, pipes, ends and exit statuses."""

import json
import signal
import subprocess
import sys

import pytest
import zmq
from programs import mq, run


def listening(program) -> str:
    """The real address, which it says on stderr."""
    return program.line("err").removeprefix("listening on ")


def test_lines_travel_from_one_end_to_the_other(start):
    pull = start(*mq("cat", "pull", "--bind", "tcp://127.0.0.1:0", "-n", 3))
    url = listening(pull)
    status, _, err = run(*mq("cat", "push", url, "-v"), stdin=b"one\ntwo\n\n")
    assert (status, err) == (0, "sent 3\n")
    assert pull.result()[:2] == (0, "one\ntwo\n\n")


@pytest.mark.parametrize(
    ("form", "given", "sent"),
    [
        ("hex", b"00ff,61\n\n", [[b"\x00\xff", b"a"], [b""]]),
        ("json", b'"a"\n["a", {"hex": "00"}]\n{"parts": ["x"]}\n', [[b"a"], [b"a", b"\0"], [b"x"]]),
        ("raw", b"a\nb", [[b"a\nb"]]),
        ("ascii", b"a\r\n\\x00\tb", [[b"a"], [b"\\x00\tb"]]),
    ],
)
def test_formats_in(start, form, given, sent):
    with zmq.Context() as context, context.socket(zmq.PULL) as pull:
        pull.linger, pull.rcvtimeo = 0, 20000
        url = f"tcp://127.0.0.1:{pull.bind_to_random_port('tcp://127.0.0.1')}"
        assert run(*mq("cat", "push", url, "-f", form), stdin=given)[0] == 0
        assert [pull.recv_multipart() for _ in sent] == sent


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("hex", b"00ff5c,61\n"),
        ("ascii", b"\\x00\\xff\\\\\ta\n"),
        ("raw", b"\x00\xff\\a"),
    ],
)
def test_formats_out(start, url, form, shown):
    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.linger = 0
        push.bind(url)
        push.sndtimeo = 20000
        pull = start(*mq("cat", "pull", url, "-f", form, "-n", 1))
        push.send_multipart([b"\x00\xff\\", b"a"])
        out, _ = pull.process.communicate(timeout=200)
    assert out == shown


def test_json_reads_what_json_wrote(start, url):
    message = {"parts": ["text", {"hex": "ff"}]}
    pull = start(*mq("cat", "pull", "-b", url, "-n", 1, "-f", "json"))
    listening(pull)     # the other one waits a second for somebody to take its message
    assert run(*mq("cat", "push", url, "-f", "json"), stdin=json.dumps(message).encode())[0] == 0
    status, out, _ = pull.result()
    found = json.loads(out)
    assert status == 0 and found["parts"] == message["parts"]
    assert found["at"] > 0


@pytest.mark.parametrize(
    ("form", "given"),
    [
        ("hex", b"00\nxy\n"),
        ("json", b'"a"\n[\n'),
        ("json", b'"a"\n[]\n'),
        ("json", b'"a"\n[1]\n'),
    ],
)
def test_bad_input_names_its_line(url, form, given):
    status, _, err = run(
        *mq("cat", "push", "-b", url, "-o", "linger=0", "-f", form, "-t", 0.01), stdin=given
    )
    # nobody takes the first line, or the second is found wrong: never a traceback
    assert status in (1, 3) and "Traceback" not in err
    status, _, err = run(*mq("cat", "push", url, "-o", "linger=0", "-f", form), stdin=given)
    assert status == 1 and "line 2 of the input" in err


def test_request_and_echo(start, url):
    rep = start(*mq("cat", "rep", "--bind", url, "-n", 2))
    listening(rep)
    status, out, err = run(*mq("cat", "req", url, "-d", "hello", "-d", "there", "-t", 20))
    assert (status, out, err) == (0, b"hello\nthere\n", "")
    assert rep.result()[:2] == (0, "hello\nthere\n")


def test_rep_answers_with_a_text(start, url):
    rep = start(*mq("cat", "rep", "--bind", url, "-n", 1, "-d", "fine", "-q"))
    assert run(*mq("cat", "req", url, "-d", "how are you"))[1] == b"fine\n"
    status, out, err = rep.result()
    assert (status, out) == (0, "") and "answered 1" in err


def test_a_publisher_waits_for_its_first_subscriber(start, url):
    pub = start(*mq("cat", "pub", "--bind", url), stdin=True)
    pub.send(b"b not wanted\na first\n")
    sub = start(*mq("cat", "sub", url, "-s", "a", "-n", 2))
    assert sub.line() == "a first"
    pub.send(b"a second\n")
    pub.process.stdin.close()
    pub.process.stdin = None
    assert sub.result()[:2] == (0, "a second\n")
    assert pub.result()[0] == 0


def test_pairs_talk_both_ways(start, url):
    left = start(*mq("cat", "pair", "--bind", url, "-n", 1, "-d", "from left"))
    status, out, _ = run(*mq("cat", "pair", url, "-n", 1, "-d", "from right"))
    assert (status, out) == (0, b"from left\n")
    assert left.result()[:2] == (0, "from right\n")


def test_router_answers_by_name(start, url):
    router = start(*mq("cat", "router", "--bind", url, "-f", "json", "-n", 1), stdin=True)
    dealer = start(*mq("cat", "dealer", url, "-o", "routing_id=bob", "-d", "hi", "-n", 1))
    assert json.loads(router.line())["to"] == "bob"
    assert router.process.poll() is None or router.process.returncode == 0
    dealer.kill()
    router.kill()


def test_several_addresses(start, tmp_path):
    urls = [f"ipc://{tmp_path}/{i}" for i in range(2)]
    pull = start(*mq("cat", "pull", "-b", urls[0], "-b", urls[1], "-n", 2))
    assert [listening(pull) for _ in urls] == urls
    for url, text in zip(urls, ("a", "b"), strict=True):
        assert run(*mq("cat", "push", url, "-d", text))[0] == 0
    assert sorted(pull.result()[1].split()) == ["a", "b"]


def test_files_and_parts(start, url, tmp_path):
    (tmp_path / "file").write_bytes(b"\x00content")
    pull = start(*mq("cat", "pull", "-b", url, "-n", 1, "-f", "hex"))
    listening(pull)
    assert run(*mq("cat", "push", url, "-d", "head", "-F", tmp_path / "file", "-m"))[0] == 0
    assert pull.result()[1] == b"head".hex() + "," + b"\x00content".hex() + "\n"


def test_count_repeats_data_and_rate_paces_it(start, url):
    pull = start(*mq("cat", "pull", "-b", url, "-n", 5))
    listening(pull)
    status, _, err = run(*mq("cat", "push", url, "-d", "x", "-n", 5, "-r", 100, "-v"))
    assert (status, err) == (0, "sent 5\n")
    assert pull.result()[1] == "x\n" * 5


def test_timeouts_have_their_own_status(url):
    status, out, err = run(*mq("cat", "pull", "--bind", url, "-t", 0.05))
    assert (status, out) == (3, b"") and "mq: " in err and "Traceback" not in err
    status, _, err = run(*mq("cat", "pub", "--bind", url, "-d", "x", "-t", 0.05))
    assert status == 3 and "Traceback" not in err


def test_undelivered_messages_are_an_error(url):
    status, _, err = run(*mq("cat", "push", url, "-d", "x", "-o", "linger=0.05"))
    assert status == 1 and "1 of the messages could not be delivered" in err


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (("cat", "push"), "URL"),
        (("cat", "nonsense", "tcp://127.0.0.1:1"), "nonsense"),
        (("cat", "push", "tcp://x", "-d", "1"), "port"),
        (("cat", "push", "xyz://x", "-d", "1"), "xyz"),
        (("cat", "push", "tcp://127.0.0.1:1", "-s", "a"), "--topic"),
        (("cat", "push", "tcp://127.0.0.1:1", "-o", "linger"), "name=value"),
        (("cat", "push", "tcp://127.0.0.1:1", "-o", "lingr=1"), "lingr"),
        (("cat", "push", "tcp://127.0.0.1:1", "-i", 1, "-r", 1), "--rate"),
    ],
)
def test_mistakes_are_one_sentence(args, word):
    status, _, err = run(*mq(*args))
    assert status in (1, 2) and word in err and "Traceback" not in err


def test_ctrl_c_ends_it_cleanly(start):
    pull = start(*mq("cat", "pull", "--bind", "tcp://127.0.0.1:0"))
    listening(pull)
    status, out, err = pull.end(signal.SIGINT)
    assert (status, out) == (130, "") and "Traceback" not in err


def test_term_ends_it_cleanly(start):
    pull = start(*mq("cat", "pull", "--bind", "tcp://127.0.0.1:0"))
    listening(pull)
    status, _, err = pull.end(signal.SIGTERM)
    assert status == 143 and "Traceback" not in err


def test_a_reader_that_leaves_is_no_error(start, url):
    with subprocess.Popen(
        [sys.executable, *map(str, mq("cat", "pull", "-b", url))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as pull:
        try:
            assert pull.stderr.readline().startswith(b"listening")
            pull.stdout.close()
            assert run(*mq("cat", "push", url, "-d", "x"))[0] == 0
            assert pull.wait(200) == 0 and b"Traceback" not in pull.stderr.read()
        finally:
            pull.kill()


def test_an_open_input_does_not_keep_it(start, url):
    """The pair has had its one message; that standard input is still open is no reason to stay."""
    left = start(*mq("cat", "pair", "--bind", url, "-n", 1), stdin=True)
    right = start(*mq("cat", "pair", url, "-d", "from right"))
    assert left.line() == "from right"
    assert left.process.wait(200) == 0
    right.kill()


def test_bad_input_ends_both_ways(url):
    status, _, err = run(*mq("cat", "pair", "--bind", url, "-f", "hex"), stdin=b"xy\n")
    assert status == 1 and "line 1 of the input" in err


@pytest.mark.parametrize("args", [
    ("push", "tcp://127.0.0.1"), ("push", "nosuch://x"), ("push", "tcp://127.0.0.1:1", "-o", "x=1"),
    ("pull", "tcp://127.0.0.1:1", "-d", "x"), ("sub", "tcp://127.0.0.1:1", "-F", "x")])
def test_wrong_arguments_have_their_own_status(args):
    status, _, err = run(*mq("cat", *args))
    assert status == 2 and err and "Traceback" not in err


@pytest.mark.parametrize("where", ["tcp", "udp"])
def test_groups(start, where):
    bound = ("--bind", f"{where}://127.0.0.1:0")
    dish = start(*mq("cat", "dish", *bound, "-g", "a", "-g", "b", "-n", 2))
    url = listening(dish)
    for group in ("c", "b", "a"):
        wanted = 0 if group == "c" and where == "tcp" else 1      # nobody joins it
        status, _, err = run(*mq("cat", "radio", url, "-g", group, "-d", group, "-w", wanted))
        assert status == 0, err
    status, out, _ = dish.result()
    assert (status, sorted(out.split())) == (0, ["a", "b"])


def test_groups_are_for_radio_and_dish():
    for words, text in (
        (("push", "-g", "a"), "--group is for radio and dish"),
        (("radio", "-g", "a", "-g", "b"), "a radio sends to one --group"),
    ):
        status, _, err = run(*mq("cat", *words, "tcp://127.0.0.1:1"))
        assert status == 2 and text in err
