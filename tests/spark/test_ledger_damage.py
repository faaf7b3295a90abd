"""Damage in the ledger is an error that names the file, and never what has been published; no Spark
session is needed."""

import pytest

pytest.importorskip("pyspark", reason="pip install mqcore[spark]")

from staged import cut_short, left, publish, stage_to, values  # noqa: E402

from mqcore import journal  # noqa: E402
from mqcore.spark import entries as book  # noqa: E402
from mqcore.spark import ledger  # noqa: E402
from mqcore.spark.staging import HOME  # noqa: E402


def write(where, query, batch, label, topic="a"):
    return publish(where, query, batch, stage_to(where, query, label, 3, [topic], batch))


def damages(raw):
    """Each bit, each shorter file, another line at the end."""
    for i in range(len(raw) * 8):
        yield raw[:i // 8] + bytes([raw[i // 8] ^ 1 << i % 8]) + raw[i // 8 + 1:]
    for i in range(len(raw)):
        yield raw[:i]
    yield raw + b"\n"
    yield raw + raw
    yield raw.partition(b"\n")[0]


@pytest.mark.parametrize("state", ["done", "publishing", "named"])
def test_each_bit_of_an_entry(tmp_path, monkeypatch, state):
    home, query = tmp_path / HOME, book.name_of("1") if state == "named" else "q"
    if state == "publishing":
        cut_short(monkeypatch, tmp_path, query, b"one", ["a", "b"])
    else:
        write(tmp_path, query, 0, b"one")
    file = home / "named" / f"{query}.json" if state == "named" else book.file_of(home, query)
    raw = file.read_bytes()
    wanted = book.load(home, query)
    for damaged in damages(raw):
        file.write_bytes(damaged)
        with pytest.raises(journal.JournalCorrupt):
            book.load(home, query)
    file.write_bytes(raw)
    assert book.load(home, query) == wanted


def test_a_damaged_entry_stops_its_query_and_says_what_to_do(tmp_path, caplog):
    """Nothing is published or removed, and others go on in the same partition."""
    write(tmp_path, "q", 0, b"one")
    file = book.file_of(tmp_path / HOME, "q")
    raw = file.read_bytes()
    file.write_bytes(raw.replace(b'"batch": 0', b'"batch": 5'))
    files = stage_to(tmp_path, "q", b"two", 3, ["a"], 1)
    with pytest.raises(journal.JournalCorrupt) as caught:
        publish(tmp_path, "q", 1, files)
    assert caught.value.path == str(file) and str(file) in str(caught.value)
    assert "check sum" in caught.value.fault and "restore it from a backup" in caught.value.hint
    ledger.discard(str(tmp_path), "q", 1, files)        # as Spark does then: it must not raise
    assert len(left(tmp_path)) == 1
    assert write(tmp_path, "other", 0, b"other")
    assert str(file) in caplog.text
    file.write_bytes(raw)
    assert publish(tmp_path, "q", 1, files)
    assert values(tmp_path, "a")[:3] == [b"one 0", b"one 1", b"one 2"]
    assert sorted(values(tmp_path, "a")[3:]) == sorted(
        b"%s %d" % (label, i) for label in (b"other", b"two") for i in range(3))


def test_the_entry_of_another_query_in_its_place(tmp_path):
    """A file that was copied or renamed has a good check sum."""
    write(tmp_path, "q", 3, b"one")
    home = tmp_path / HOME
    book.file_of(home, "p").write_bytes(book.file_of(home, "q").read_bytes())
    with pytest.raises(journal.JournalCorrupt, match="not the entry of p"):
        write(tmp_path, "p", 0, b"two")
