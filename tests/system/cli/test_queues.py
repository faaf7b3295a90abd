"""`mq queue`: what the commands print and how they end."""

import json

import pytest
from click.testing import CliRunner
from programs import mq as command
from programs import run

import mqcore as library
from mqcore import journal
from mqcore.cli import cli


@pytest.fixture(scope="module", autouse=True)
def default_context():
    """Commands use it; its threads and descriptors stay, so they are here before any is counted."""
    with library.Pull(bind="inproc://queue-commands"), \
            library.Push(connect="inproc://queue-commands"):
        pass


@pytest.fixture
def server(tmp_path, url, ctx):
    with journal.serve_queues(tmp_path / "j", url, context=ctx):
        yield url


def mq(*args, status=0, stdin=None):
    answer = CliRunner().invoke(cli, ["queue", *map(str, args)], input=stdin)
    assert answer.exit_code == status, (answer.output, answer.exception)
    return answer.stdout


def test_put_and_get(server):
    mq("put", server, "work", "first", "second", "--header", "a=b")
    mq("put", server, "work", stdin="third\nfourth\n")
    assert mq("peek", server, "work", "-n", "3") == "first\nsecond\nthird\n"
    row = json.loads(mq("get", server, "work", "--format", "json"))
    assert (row["body"], row["attempts"], row["headers"]) == ("first", 1, [["a", "b"]])
    assert mq("get", server, "work", "-n", "0", "--wait", "0") == "second\nthird\nfourth\n"
    assert json.loads(mq("stats", server, "work", "--json"))["acknowledged"] == 4


def test_nothing_came(server):
    status, out, err = run("-m", "mqcore", "queue", "get", server, "work", "--wait", "0.05")
    assert status == 3 and not out and "no job in the queue 'work'" in str(err)


def test_list_and_purge(server):
    mq("put", server, "b", "x", "--delay", "1h")
    mq("put", server, "a", "y")
    rows = [json.loads(line) for line in mq("list", server, "--json").splitlines()]
    assert [(row["queue"], row["ready"], row["delayed"]) for row in rows] == \
        [("a", 1, 0), ("b", 0, 1)]
    assert mq("list", server).split()[0] == "queue"
    assert mq("purge", server, "b") == "1\n"
    assert "purged" in mq("stats", server, "b")


def test_wrong_arguments(server):
    mq("put", server, "work", "x", "--header", "nonsense", status=2)
    mq("put", server, "work", "x", "--priority", "99", status=2)


def test_nothing_is_printed_that_a_terminal_obeys(server):
    mq("put", server, "work", stdin=b"\x1b[2J\x07\n")
    assert "\x1b" not in mq("get", server, "work")


def test_serve(start, url, tmp_path):
    server = start(*command("queue", "serve", tmp_path / "new", "--bind", url, "--every", "0",
                            "--max-attempts", "3"))
    assert server.line() == url
    mq("put", url, "work", "x")
    with journal.queue(url, "work") as queue:
        assert queue.configure().max_attempts == 3
    assert server.end()[0] == 143
