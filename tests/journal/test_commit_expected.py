"""commit_offset(expected=): a consumer that comes late sets nobody back."""

import asyncio
import contextlib
import fcntl
import json
import os
import random
import subprocess
import sys
import threading

import pytest

import mqcore as mq
from mqcore import journal
from mqcore.errors import UsageError
from mqcore.journal.store import commits


@pytest.fixture(params=["folder", "server"])
def reader(request, tmp_path, ctx):
    with journal.open(tmp_path, "a") as writer:
        writer.append_many([b"%d" % i for i in range(100)])
    with contextlib.ExitStack() as stack:
        if request.param == "folder":
            yield stack.enter_context(journal.open(tmp_path))
            return
        server = stack.enter_context(
            journal.serve(tmp_path, "tcp://127.0.0.1:0", groups=True, context=ctx))
        yield stack.enter_context(journal.open(f"{server.urls[0]}/default", context=ctx))


def test_only_from_where_it_is_expected(reader):
    reader.commit_offset("g", 10, expected=None)
    with pytest.raises(journal.GroupMoved, match="'g' is at 10, and was expected never") as caught:
        reader.commit_offset("g", 20, expected=None)
    assert (caught.value.group, caught.value.offset) == ("g", 10)
    reader.commit_offset("g", 20, expected=10)
    with pytest.raises(journal.GroupMoved, match="'g' is at 20, and was expected to be at 10"):
        reader.commit_offset("g", 15, expected=10)
    with pytest.raises(journal.GroupMoved, match="'h' has never committed") as caught:
        reader.commit_offset("h", 15, expected=0)
    assert caught.value.offset == -1
    assert reader.groups() == {"g": 20}


def test_a_commit_that_is_repeated_has_been_made(reader):
    """As by a client whose connection broke before the answer came."""
    for _ in range(2):
        reader.commit_offset("g", 10, expected=None)
    for _ in range(2):
        reader.commit_offset("g", 20, expected=10)
    assert reader.committed_offset("g") == 20


def test_a_late_commit_that_expects_another_place_is_told(tmp_path, ctx, monkeypatch):
    """Below what its group has committed meanwhile, and over another connection."""
    with journal.open(tmp_path, "a") as writer:
        writer.append_many([b"%d" % i for i in range(100)])
    head = {"v": 1, "topic": "default", "partition": 0, "op": "commit", "group": "g",
            "token": 1}
    with (journal.serve(tmp_path, "tcp://127.0.0.1:0", groups=True, context=ctx) as server,
          mq.Dealer(context=ctx, connect=server.urls[0], recv_timeout=20) as peer):
        # a member of the group
        monkeypatch.setattr(server._rosters, "check", lambda request: None)

        def code(**facts):
            peer.send(json.dumps({**head, "id": 1, **facts}).encode())
            return json.loads(peer.recv_parts()[0]).get("error", {}).get("code")
        assert code(offset=50) is None
        assert code(offset=20) is None
        assert code(offset=20, expected=10) == "group_moved"
        assert code(offset=60, expected=50) is None


def test_backwards_too(reader):
    reader.commit_offset("g", 20)
    reader.commit_offset("g", 5, expected=20)
    reader.commit_offset("g", 0)
    assert reader.committed_offset("g") == 0


def test_awaitable(reader):
    async def main():
        await reader.acommit_offset("g", 10, expected=None)
        with pytest.raises(journal.GroupMoved):
            await reader.acommit_offset("g", 20, expected=9)
    asyncio.run(main())


@pytest.mark.parametrize("expected", [-1, True, "never", 1.0, b"any", [1]])
def test_what_is_no_place(reader, expected):
    with pytest.raises(UsageError, match="is no place of a group"):
        reader.commit_offset("g", 10, expected=expected)
    assert reader.groups() == {}


STEPS = """
import sys
from mqcore import journal
with journal.open(sys.argv[1]) as reader:
    won = 0
    while (at := reader.committed_offset("g") or 0) < 100:
        try:
            reader.commit_offset("g", at + 1, expected=at or None)
            won += 1
        except journal.GroupMoved as error:
            assert error.offset > at
print(won)
"""


def test_of_many_processes_each_step_is_made_once(tmp_path):
    """Without the lock, two would both find 7 and both write 8."""
    with journal.open(tmp_path, "a") as writer:
        writer.append_many([b""] * 100)
    programs = [subprocess.Popen([sys.executable, "-c", STEPS, tmp_path], text=True,
                                 stdout=subprocess.PIPE) for _ in range(3)]
    done = [program.communicate(timeout=120)[0] for program in programs]
    # each pair of commit and look is one; a repetition of the same step by another counts as made
    assert all(program.returncode == 0 for program in programs)
    assert sum(map(int, done)) >= 100
    with journal.open(tmp_path) as reader:
        assert reader.committed_offset("g") == 100


def test_nobody_goes_backwards(tmp_path):
    """Threads that move on by random steps: what a look finds never falls."""
    with journal.open(tmp_path, "a") as writer:
        writer.append_many([b""] * 1000)
    errors = []

    def move(seed):
        rng, last = random.Random(seed), 0
        try:
            with journal.open(tmp_path) as reader:
                while (at := reader.committed_offset("g") or 0) < 1000:
                    assert at >= last
                    last = at
                    with contextlib.suppress(journal.GroupMoved):
                        reader.commit_offset("g", min(1000, at + rng.randint(1, 40)),
                                             expected=at or None)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=move, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_another_process_that_hangs(reader, tmp_path, monkeypatch):
    monkeypatch.setattr(commits, "PATIENCE", 0.1)
    monkeypatch.setattr(commits.commit, "__defaults__", ("any", 0.1, None))
    reader.commit_offset("g", 10)
    folder = os.open(tmp_path / "default" / "0" / "groups", os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    with pytest.raises(journal.JournalBusy, match="another process has been committing in"):
        reader.commit_offset("g", 20)
    assert reader.committed_offset("g") == 10 and reader.first == 0    # the rest goes on
    os.close(folder)
    reader.commit_offset("g", 20)
    assert reader.committed_offset("g") == 20


def test_where_the_file_system_has_no_such_lock(tmp_path, monkeypatch):
    def flock(fd, how):
        raise OSError(95, "Operation not supported")
    with journal.open(tmp_path, "a") as writer:
        writer.append_many([b""] * 100)
    with journal.open(tmp_path) as reader:
        monkeypatch.setattr(commits.fcntl, "flock", flock)
        reader.commit_offset("g", 10, expected=None)
        with pytest.raises(journal.GroupMoved):
            reader.commit_offset("g", 20, expected=None)
