"""`mq bridge`: what it moves, how it ends."""

import re
import signal

import pytest
from programs import mq, run

from mqcore import journal


def test_help_has_an_example():
    status, out, err = run(*mq("bridge", "--help"))
    assert (status, err) == (0, "") and b"  mq bridge pull+bind:" in out


def test_the_list_has_the_settings():
    status, out, err = run(*mq("bridge", "--list"))
    assert (status, err) == (0, "")
    assert re.search(rb"^redis\b", out, re.M) and re.search(rb"^ +deduplicate\b", out, re.M)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_it_settles_before_it_ends(start, url, tmp_path, ctx, number, status):
    program = start(*mq("bridge", f"rep+bind:{url}", f"journal:{tmp_path}/j?topic=t"))
    with ctx.socket("req", connect=url) as client:
        for n in range(5):
            client.request(b"%d" % n, timeout=60)
    found, _, err = program.end(number)
    assert found == status and "Traceback" not in err
    assert re.search(r"acknowledged 5\b", err) and re.search(r"\bheld 0\b", err)
    with journal.open(tmp_path / "j", topic="t") as log:
        assert log.read(0).to_list() == [b"%d" % n for n in range(5)]


@pytest.mark.parametrize(("args", "word"), [
    (("pull+bind:ipc://x",), "TARGET"),
    (("nothing://x", "journal:y"), "nothing"),
    (("journal:x", "journal:y"), "group"),
    (("pull:ipc://x", "journal:y?tpic=a"), "topic"),     # not a folder called "y?tpic=a"
    (("journal:x?grup=a&group=b", "journal:y"), "group"),
    (("pull:ipc://x", "journal:y", "--dead", "nothing://z"), "nothing"),
])
def test_mistakes(args, word):
    status, _, err = run(*mq("bridge", *args))
    assert status == 2 and word in err and "Traceback" not in err


