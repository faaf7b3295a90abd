"""A look through many small blocks: a journal server takes it in slices, and others come first."""

import threading
import time

import pytest

from mqcore import journal
from mqcore.journal.reader import Reader
from mqcore.journal.store import segment
from mqcore.journal.store.segment import Unfinished

LIMIT = 60.0
N = 600


@pytest.fixture
def where(tmp_path, monkeypatch):
    """Three segments of single messages; every look ends after four of them."""
    monkeypatch.setattr(segment, "STRIDE", 1024)
    with journal.open(tmp_path, "a", fsync="never") as writer:
        for i in range(N):
            writer.append(b"%d" % i, time=1000 + (i if i % 7 else i - 5))
            writer.flush()
            if i in (200, 400):
                writer.rotate()
    return tmp_path


def first_not_before(when):
    return next(i for i in range(N + 1) if i == N or (i if i % 7 else i - 5) >= when - 1000)


def test_each_look_goes_on_where_the_last_one_ended(where):
    with journal.open(where) as reader:
        for ask, wanted in ((lambda: reader.end, N), (lambda: int(reader.read(530)[0]), 530),
                            (lambda: reader.at(1333.5), first_not_before(1333.5)),
                            (lambda: reader.at(1007.5), first_not_before(1007.5))):
            reader._hurry(0)
            looks = 0
            while True:
                looks += 1
                try:
                    assert ask() == wanted
                    break
                except Unfinished:
                    assert looks < N
            assert looks > 1 or wanted in (530, first_not_before(1007.5))


def test_times_as_by_reading_all(where, rng):
    with journal.open(where) as reader, journal.open(where) as hurried:
        hurried._hurry(0)
        for _ in range(60):
            when = rng.uniform(995, 1000 + N + 5)
            wanted = first_not_before(when)
            assert reader.at(when) == wanted
            for _ in range(N):
                try:
                    assert hurried.at(when) == wanted
                    break
                except Unfinished:
                    continue
            else:
                raise AssertionError("it does not come to an end")
            if rng.random() < 0.5:
                assert int(reader.read(at := rng.randrange(N))[0]) == at


@pytest.mark.parametrize("indexes", [1, 16])
def test_a_server_answers_others_meanwhile(where, serve, ctx, monkeypatch, indexes):
    """Readers that look into different segments of one partition do not undo each other's work;
    where they do, since there are too many of them, they get more time."""
    hurry = Reader._hurry

    def much(reader, until):
        now = time.monotonic()
        hurry(reader, now + (until - now) / 2000)

    monkeypatch.setattr(Reader, "_hurry", much)
    monkeypatch.setattr(segment, "INDEXES", indexes)
    running = serve(where)
    failed = []

    def ask(first):
        try:
            with journal.open(running.urls[0], context=ctx, timeout=LIMIT) as reader:
                for i in range(first, N, 67):
                    assert int(reader.read(i)[0]) == i
                    assert reader.at(1000.5 + i) == first_not_before(1000.5 + i)
                assert reader.end == N
                found = [message for records in reader.follow(first, timeout=LIMIT)
                         for message in records.to_list()
                         if int(message) < N - 1 or reader.close()]
                assert found == [b"%d" % i for i in range(first, N - 1)]
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=ask, args=(first,)) for first in (3, 210, 390, 590)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = running.stats()
    assert not failed and (stats.failed, stats.refused, stats.errors) == (0, 0, 0)
