"""Readers that follow share one inotify instance, which is there as long as one of them waits."""

import errno
import os
import threading

import pytest

from mqcore import journal
from mqcore.journal.store import notify

LIMIT = 20.0


def instances():
    found = 0
    for fd in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{fd}") == "anon_inode:inotify"
        except FileNotFoundError:
            continue
    return found


def test_a_hundred_followers_have_one_instance(tmp_path):
    writers = [journal.open(tmp_path, "a", topic=f"t{i}") for i in range(5)]
    readers = [journal.open(tmp_path, topic=f"t{i % 5}") for i in range(100)]
    found = []

    def follow(reader):
        found.append(next(reader.follow(0, timeout=LIMIT))[0])

    threads = [threading.Thread(target=follow, args=(reader,)) for reader in readers]
    for thread in threads:
        thread.start()
    while any(reader._followers == 0 for reader in readers):
        pass
    assert instances() == 1
    for i, writer in enumerate(writers):
        writer.append(b"%d" % i)
        writer.flush()
    for thread in threads:
        thread.join(LIMIT)
    assert sorted(found) == sorted(b"%d" % (i % 5) for i in range(100))
    assert instances() == 0 and notify._hub is None
    for end in (*writers, *readers):
        end.close()


def test_it_is_the_event_that_wakes(tmp_path, monkeypatch):
    """Not the look every half second."""
    monkeypatch.setattr("mqcore.journal.waiting.POLL", 1000.0)
    with journal.open(tmp_path, "a") as writer, journal.open(tmp_path) as reader:
        for i in range(20):
            sent = threading.Timer(0.01, lambda: (writer.append(b"x"), writer.flush()))
            sent.start()
            assert next(reader.follow(i, timeout=LIMIT)).first == i
            sent.join()


def test_watches_come_and_go(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    b.mkdir()
    one, same, other = notify.watch_folder(a), notify.watch_folder(a), notify.watch_folder(b)
    (a / "file").touch()
    for fd in (one, same):
        os.set_blocking(fd, True)
        os.read(fd, 8)
    with pytest.raises(BlockingIOError):
        os.read(other, 8)
    notify.unwatch_folder(one)
    (a / "file").write_bytes(b"more")
    os.read(same, 8)
    notify.unwatch_folder(same)
    (b / "file").touch()
    os.set_blocking(other, True)
    os.read(other, 8)
    notify.unwatch_folder(other)
    assert notify._hub is None and instances() == 0
    assert notify.watch_folder(tmp_path / "none") == -1 and notify._hub is None


def test_a_forked_child_has_its_own(tmp_path):
    """While its parent follows, it follows too."""
    with journal.open(tmp_path, "a") as writer, journal.open(tmp_path) as reader:
        writer.append(b"first")
        writer.flush()
        follow = reader.follow(0, timeout=LIMIT)
        assert next(follow)[0] == b"first"
        assert notify._hub is not None
        back, there = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                with journal.open(tmp_path) as own:
                    follow = own.follow(1, timeout=LIMIT)
                    os.write(there, b"+")
                    os.write(there, next(follow)[0])
            finally:
                os._exit(0)
        os.close(there)
        assert os.read(back, 1) == b"+"
        writer.append(b"second")
        writer.flush()
        assert next(follow)[0] == b"second"
        assert os.read(back, 100) == b"second"
        os.close(back)
        os.waitpid(child, 0)
        follow.close()


def test_without_inotify_it_looks_often(tmp_path, monkeypatch):
    def none_left():
        raise OSError(errno.EMFILE, "no instance is left")

    monkeypatch.setattr(notify, "inotify_open", none_left)
    with journal.open(tmp_path, "a") as writer, journal.open(tmp_path) as reader:
        sent = threading.Timer(0.05, lambda: (writer.append(b"x"), writer.flush()))
        sent.start()
        assert next(reader.follow(0, timeout=LIMIT))[0] == b"x"
        sent.join()
