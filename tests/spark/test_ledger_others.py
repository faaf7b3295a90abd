"""What one query left behind, or is doing, is nothing to the others of the same path; no Spark
session is needed."""

import shutil

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

from staged import cut_short, entries, publish, stage_to, values  # noqa: E402

from mqcore import journal  # noqa: E402
from mqcore.spark import entries as book  # noqa: E402
from mqcore.spark import ledger  # noqa: E402
from mqcore.spark.staging import HOME  # noqa: E402


def write(where, query, label, topics, batch=0, timeout=5.0):
    return ledger.publish(str(where), query, batch, stage_to(where, query, label, 3, topics, batch),
                          timeout)


def three(label):
    return [b"%s %d" % (label, i) for i in range(3)]


@pytest.mark.parametrize("after", [0, 1])
def test_what_others_left_is_completed_where_it_is_met(tmp_path, monkeypatch, after):
    """Then all of it; and not by a query that writes elsewhere."""
    cut_short(monkeypatch, tmp_path, "dead", b"dead", ["a", "b"], after)
    there = values(tmp_path, "a"), values(tmp_path, "b")
    assert write(tmp_path, "live", b"live", ["c"])
    assert (values(tmp_path, "a"), values(tmp_path, "b")) == there
    assert write(tmp_path, "live", b"live", ["b"], 1)
    assert values(tmp_path, "a") == three(b"dead")
    assert values(tmp_path, "b") == three(b"dead") + three(b"live")


def test_a_journal_of_another_query_that_is_in_use_is_not_in_the_way(tmp_path, monkeypatch, caplog):
    cut_short(monkeypatch, tmp_path, "dead", b"dead", ["a", "b", "c"])
    with journal.open(tmp_path, "a", topic="b"):
        assert write(tmp_path, "live", b"live", ["d"])
        assert caplog.text == ""
        assert write(tmp_path, "live", b"live", ["c"], 1, timeout=0.1)
    assert "dead" in caplog.text and "process" in caplog.text       # reported
    assert values(tmp_path, "c") == three(b"dead") + three(b"live")
    assert values(tmp_path, "b") == []
    assert write(tmp_path, "live", b"more", ["b"], 2)
    assert values(tmp_path, "b") == three(b"dead") + three(b"more")


@pytest.mark.parametrize("after", [0, 1])
def test_staged_files_of_the_dead_that_are_lost_hinder_nobody_else(tmp_path, monkeypatch, caplog,
                                                                   after):
    cut_short(monkeypatch, tmp_path, "dead", b"dead", ["a", "b"], after)
    shutil.rmtree(tmp_path / HOME / "staging" / "dead")
    for batch in range(3):
        assert write(tmp_path, "live", b"live", ["b"], batch)
    assert values(tmp_path, "b") == three(b"live") * 3
    again = stage_to(tmp_path, "dead", b"again", 3, ["a", "b"])
    if after:           # the query itself must not go on
        assert "staged files are missing" in caplog.text
        with pytest.raises(journal.JournalError, match=r"0 of 3 .*; restore the files") as caught:
            publish(tmp_path, "dead", 0, again)
        assert not isinstance(caught.value, OSError)
        assert values(tmp_path, "a") == three(b"dead")
    else:               # nothing of it was stored, so it is as if it had never been promised
        assert "given up" in caplog.text
        assert publish(tmp_path, "dead", 0, again)
        assert values(tmp_path, "a") == three(b"again")


def test_a_job_whose_staged_files_are_lost_is_forgotten(tmp_path, monkeypatch):
    cut_short(monkeypatch, tmp_path, "job-dead", b"dead", ["a", "b"], 0)
    shutil.rmtree(tmp_path / HOME / "staging" / "job-dead")
    assert write(tmp_path, "live", b"live", ["a"])
    assert entries(tmp_path) == ["live.json"]


def test_a_publication_that_takes_long_is_waited_for_by_its_own_query_alone(tmp_path):
    """The error is ours, and says who it is."""
    home = book.home_of(str(tmp_path))
    with book.alone(home, "q", 0):
        assert write(tmp_path, "other", b"live", ["a"], timeout=0.1)
        with pytest.raises(journal.JournalLocked, match=r"is publishing for q.*timeoutMs") as error:
            write(tmp_path, "q", b"late", ["a"], timeout=0.1)
        assert error.value.pid > 0
    assert write(tmp_path, "q", b"late", ["a"])
    assert values(tmp_path, "a") == three(b"live") + three(b"late")


def test_what_a_live_process_publishes_is_left_to_it(tmp_path, monkeypatch, caplog):
    cut_short(monkeypatch, tmp_path, "busy", b"busy", ["a", "b"], 0)
    with book.alone(tmp_path / HOME, "busy", 0):    # as if it were still at it
        assert write(tmp_path, "live", b"live", ["b"])
    assert values(tmp_path, "b") == three(b"live") and caplog.text == ""


def test_the_lock_of_a_job_that_another_waits_for_may_go(tmp_path):
    """Whoever gets a lock that was removed meanwhile takes the new one."""
    home = book.home_of(str(tmp_path))
    with book.alone(home, "job-1", 0):
        book.forget(home, "job-1")
        with book.alone(home, "job-1", 0), pytest.raises(journal.JournalLocked), \
                book.alone(home, "job-1", 0):
            pass
