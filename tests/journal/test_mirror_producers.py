"""What a mirror knows of stamps whose messages its source had removed before it copied them."""

import contextlib
import json
import shutil
import threading

import journal_reference as ref
import pytest
from compact_case import SMALL, folder_of
from copies import mirroring
from waiting import until

import mqcore as mq
from mqcore import journal
from mqcore.journal import remembered
from mqcore.journal.errors import ProducerFenced
from mqcore.journal.server import requests
from mqcore.journal.store.producers import ProducerTable
from mqcore.journal.store.segment import journal_id
from mqcore.journal.store.snapshot import forget_numbers, load, piece, save


@pytest.fixture
def where(tmp_path):
    return tmp_path / "j"


@pytest.fixture
def source(ctx, where, serve):
    """source(how): the journal's folder, or its address and what opens it."""
    def make(how):
        if how == "folder":
            return where, {}
        return f"{serve(where).urls[0]}/default", {"context": ctx}
    return make


HOW = pytest.mark.parametrize("how", ["folder", "server"])


def opened(where, **options):
    return journal.open(where, "a", stamps=True, deduplicate=True, **{**SMALL, **options})


def told(life, sequence, producer=7):
    return journal.stamp(producer, sequence, life=life) + b"%d.%d " % (life, sequence) + bytes(300)


def lives(log, numbers=range(60)):
    """Lives 1 and 2 of a producer, and another one without; all under few keys."""
    for life in (1, 2):
        for i in numbers:
            log.append(told(life, i), key=b"k%d" % (i % 3))
            log.append(told(0, 60 * life + i, 9), key=b"k%d" % (i % 3))
    log.commit()


def assert_knows(copy, numbers=range(60)):
    """Who sends again is told so, and an older life is refused."""
    journal.promote(copy)
    with opened(copy) as log:
        before = log.next
        assert (log.life_of(7), log.life_of(9)) == (2, 0)
        for i in numbers:
            log.append(told(2, i), key=b"k%d" % (i % 3))
            log.append(told(0, 60 + i, 9), key=b"k%d" % (i % 3))
        assert log.next == before and log.duplicates == 2 * len(numbers)
        with pytest.raises(ProducerFenced):
            log.append(told(1, 99))
        assert log.append(told(2, 60)) == before


def copied(source, copy, options):
    with mirroring(source, copy, **options) as (device, writer):
        until(lambda: device.error is not None or writer.next >= device.reader.durable)
        assert device.error is None
    return device.stats()


@HOW
def test_after_compaction(where, tmp_path, source, how):
    with opened(where) as log:
        lives(log)
    [done] = journal.compact(where)
    assert done.removed > 150 and done.left == 0
    path, options = source(how)
    copied(path, tmp_path / "b", options)
    assert_knows(tmp_path / "b")


@HOW
def test_after_retention(where, tmp_path, source, how):
    """All messages of the producers have gone."""
    with opened(where) as log:
        lives(log)
        log.rotate()
        log.append(b"last")
        log.truncate_before(log.next - 1)
        log.commit()
        path, options = source(how)
        assert copied(path, tmp_path / "b", options).messages == 1
    assert_knows(tmp_path / "b")


@HOW
def test_a_source_that_compacts_while_the_mirror_is_behind(where, tmp_path, source, how):
    """What the mirror took at its beginning does not tell of what has gone since."""
    with opened(where) as log:
        log.append(b"first", key=b"first")
        log.rotate()
        log.append(b"second", key=b"second")
        log.commit()
        path, options = source(how)
        with mirroring(path, tmp_path / "b", **options) as (device, writer):
            until(lambda: writer.next == 2)
            device.pause()
            lives(log)
            log.rotate()
            log.append(b"last")
            log.retain()
            [done] = journal.compact(where)
            assert done.removed > 150 and done.left == 0
            log.commit()
            device.resume()
            until(lambda: device.error is not None or writer.next >= log.next)
        assert device.error is None
    assert_knows(tmp_path / "b")


def test_a_mirror_of_a_mirror(where, tmp_path, source):
    with opened(where) as log:
        lives(log)
    journal.compact(where)
    path, options = source("server")
    copied(path, tmp_path / "b", options)
    copied(tmp_path / "b", tmp_path / "c", {})
    assert_knows(tmp_path / "c")


def test_promotion_takes_it_from_the_former_primary(where, tmp_path):
    with opened(where) as log:
        log.append(b"first")
        log.commit()
        copied(where, tmp_path / "b", {})
        lives(log)
    journal.compact(where)
    journal.promote(tmp_path / "b", old=where)
    with opened(tmp_path / "b") as log:
        before = log.next
        log.append(told(2, 3), key=b"k0")
        assert (log.next, log.life_of(7)) == (before, 2)


def test_it_is_kept_only_once_the_messages_are_durable(where, tmp_path):
    """A kill before that leaves a mirror that takes what it does not have."""
    with opened(where) as log:
        lives(log)
    with journal.open(where) as reader, \
            journal.open(tmp_path / "b", "a", mirror=True, fsync="never") as writer:
        taken = remembered.Remembered(reader, writer)
        for records in reader.batches():
            taken.look()
            writer._append_in_place(records)
        taken.look(hurry=True)
        assert not (folder_of(tmp_path / "b") / "producers").exists()
        writer.commit()
        taken.look()
        into = ProducerTable(100, 1 << 20)
        assert load(folder_of(tmp_path / "b"), writer._journal, into)[0] == reader.end
        (folder_of(tmp_path / "b") / "producers").unlink()
        taken = remembered.Remembered(reader, writer)
        taken._take()
        taken.forget()                  # another epoch
        taken._keep()
        assert not (folder_of(tmp_path / "b") / "producers").exists()


def test_a_source_without_a_table(where, tmp_path):
    with journal.open(where, "a", stamps=True) as log:
        log.append(told(1, 1))
    copied(where, tmp_path / "b", {})
    assert not (folder_of(tmp_path / "b") / "producers").exists()


def test_a_table_in_pieces_and_one_that_changes(where, tmp_path, source, monkeypatch):
    with opened(where) as log:
        lives(log)
    monkeypatch.setattr(remembered, "PIECE", 100)
    path, options = source("server")
    with journal.open(path, **options) as reader, \
            journal.open(tmp_path / "b", "a", mirror=True) as writer:
        taken = remembered.Remembered(reader, writer)
        whole, ident = (folder_of(where) / "producers").read_bytes(), journal_id(folder_of(where))
        version, _ = piece(folder_of(where), bytes.fromhex(ident), 0, 0)

        def fetched():
            taken.forget()
            taken._take()
            while taken._half is not None:
                taken._take()
            return taken._next

        offset, rows = fetched()
        assert offset == version.offset and len(whole) > 300
        table = ProducerTable(100, 1 << 20)
        load(folder_of(where), bytes.fromhex(ident), table)
        assert rows == table.dump()
        assert piece(folder_of(where), bytes(16), 0, 10)[0] == remembered.NOTHING
        real = reader._producers_piece

        def replaced(at, most):
            if at == 300:
                save(folder_of(where), bytes.fromhex(ident), 1, table.dump())
            return real(at, most)

        monkeypatch.setattr(reader, "_producers_piece", replaced)
        assert fetched() is None


def test_another_journal_in_the_place_of_the_source(where, tmp_path):
    """Its producers are others."""
    copy = tmp_path / "copy"
    with opened(where) as log:
        log.append(told(1, 0))
    with mirroring(where, copy) as (device, writer):
        until(lambda: writer.next == 1)
        shutil.rmtree(where)
        with opened(where) as log:
            log.append_many([told(9, i) for i in range(100)])
            log.rotate()
        until(lambda: device.error is not None)
        device._remembered.look(hurry=True)
        device._remembered.finish()
    journal.promote(copy)
    with opened(copy) as log:
        assert log.life_of(7) == 1


@HOW
def test_a_table_that_cannot_be_read(where, tmp_path, source, how, caplog):
    """Messages are copied all the same."""
    copy = tmp_path / "copy"
    with opened(where) as log:
        lives(log)
        end = log.next
    [path] = where.glob("*/*/producers")
    path.unlink()
    path.symlink_to(path.name)
    place, options = source(how)
    with mirroring(place, copy, **options) as (device, writer):
        until(lambda: device.error is not None or writer.next == end)
        device._remembered.look(hurry=True)
        device._remembered.look(hurry=True)
        assert device.error is None
    assert len([text for text in caplog.messages if "are not copied" in text]) == 1


def test_a_table_that_comes_byte_by_byte(where, tmp_path, monkeypatch):
    """It stops neither the messages nor the end of the mirror."""
    monkeypatch.setattr(remembered, "PIECE", 1)
    monkeypatch.setattr(remembered, "PATIENCE", 0.0)
    with opened(where) as log:
        lives(log)
        end = log.next
    journal.compact(where, keep_tombstones=0, min_share=0)
    with mirroring(where, tmp_path / "copy") as (device, writer):
        until(lambda: device.error is not None or writer.next == end)
        until(lambda: device._remembered._half)
    with opened(tmp_path / "copy", mirror=True) as log:
        assert log.next == end


def test_a_promotion_tells_that_the_former_table_is_damaged(where, tmp_path, caplog):
    with opened(where) as log:
        lives(log)
    copied(where, tmp_path / "copy", {})
    [path] = where.glob("*/*/producers")
    path.write_bytes(path.read_bytes()[:-1])
    journal.promote(tmp_path / "copy", old=where)
    [told] = [text for text in caplog.messages if str(path) in text]
    assert "does not match its CRC. The mirror that takes its place" in told


def test_what_a_killed_writer_left_half_is_swept(where):
    with opened(where) as log:
        lives(log)
    [path] = where.glob("*/*/producers")
    half = path.with_name(".producers.12345")
    for deduplicate in (True, False):
        half.write_bytes(b"x")
        journal.open(where, "a", stamps=True, deduplicate=deduplicate).close()
        assert not half.exists()


@HOW
def test_a_repaired_source(where, tmp_path, source, how):
    """It knows lives and no numbers, and so does the copy."""
    with opened(where) as log:
        lives(log)
    ident = bytes.fromhex(journal_id(folder_of(where)))
    assert forget_numbers(folder_of(where), ident) == 1
    path, options = source(how)
    copied(path, tmp_path / "b", options)
    into = ProducerTable(100, 1 << 20)
    own = bytes.fromhex(journal_id(folder_of(tmp_path / "b")))
    assert load(folder_of(tmp_path / "b"), own, into) == (0, "") and len(into) == 1
    assert_knows(tmp_path / "b")


def test_what_retention_of_the_mirror_has_saved_meanwhile(where, tmp_path):
    """It tells of more messages than the source's table, which was taken before."""
    with opened(where) as log:
        lives(log)
    with journal.open(where) as reader, journal.open(tmp_path / "b", "a", mirror=True) as writer:
        taken = remembered.Remembered(reader, writer)
        taken._take()
        assert taken._next is not None
        for records in reader.batches():
            writer._append_in_place(records)
        writer.append(b"one more")
        writer.commit()
        save(writer.path, writer._journal, writer.next, b"")
        taken.look()
        assert load(writer.path, writer._journal, ProducerTable(100, 1 << 20)) == (writer.next, "")


def test_an_old_server(where, tmp_path, source, monkeypatch, caplog):
    """It does not know the question: the mirror goes on without."""
    with opened(where) as log:
        lives(log)
    monkeypatch.setattr(requests, "_REQUEST", requests.msgspec.json.Decoder(
        requests.Union[tuple(kind for kind in requests.KINDS if kind is not requests.Producers)]))
    path, options = source("server")
    copied(path, tmp_path / "b", options)
    assert not (folder_of(tmp_path / "b") / "producers").exists()
    assert len([one for one in caplog.records if "malformed" in one.getMessage()]) <= 1


def table(where, *rows):
    return ref.producers(bytes.fromhex(journal_id(folder_of(where))), 1, rows)


ROW = (7, 2, [(5, 1), (6, 2)], 0)


@pytest.mark.parametrize("rows", [
    (ROW, ROW), (ROW, (7, 3, [(90, 1)], 0)), ((0, 0, [(1, 1)], 0),),
    tuple((7, 0, [(10_000 * i, 1)], 0) for i in range(5)),
    (ROW, (7, 2, [(6, 1), (9, 2)], 0))], ids=str)
@pytest.mark.parametrize("how", ["folder", "server"])
def test_tables_that_cannot_be(where, tmp_path, source, rows, how, caplog):
    """They are not kept, and the mirror goes on."""
    with journal.open(where, "a") as log:
        log.append_many([b"0", b"1"])
    (folder_of(where) / "producers").write_bytes(table(where, *rows))
    path, options = source(how)
    copied(path, tmp_path / "b", options)
    assert not (folder_of(tmp_path / "b") / "producers").exists()
    assert [one for one in caplog.records if "are not copied" in one.getMessage()]


def test_noise_in_a_table(where, tmp_path, rng):
    """Whatever the rows are: an error, or tracks that can be written again."""
    good = ref.producers(bytes(16), 1, (ROW, (7, 2, [(9000, 1)], 0), (8, 0, [(1, 5)], 3)))[48:]
    for _ in range(3000):
        raw = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            raw[rng.randrange(len(raw))] = rng.choice((0, 1, 255, rng.randrange(256)))
        known = ProducerTable(1000, 1 << 30)
        with contextlib.suppress(ValueError):
            known.load(bytes(raw)[:rng.choice((len(raw), rng.randrange(len(raw))))])
        again = ProducerTable(1000, 1 << 30)
        again.load(known.dump())
        assert len(again) == len(known)


@pytest.mark.parametrize("answer", [
    {}, {"offset": 1}, [], None, 3, {"offset": -1, "size": 5, "crc": 1},
    {"offset": 1, "size": 5, "crc": 1.5}, {"offset": 1, "size": 5, "crc": 1, "more": 1},
    {"offset": 1, "size": 0, "crc": 1}], ids=str)
def test_answers_that_cannot_be_read(ctx, answer):
    with mq.Router(context=ctx, bind="tcp://127.0.0.1:0", recv_timeout=30) as fake:

        def serve():
            for _ in range(2):
                peer, raw = fake.recv_parts()
                asked = json.loads(raw)
                told = {"producers": answer} if asked["op"] == "producers" else {"ok": [0, 1, 0]}
                fake.send_parts([peer, json.dumps({"id": asked["id"], **told}).encode(), b"x" * 5])

        thread = threading.Thread(target=serve)
        thread.start()
        with journal.open(f"{fake.endpoints[0].url}/t", context=ctx) as reader, \
                pytest.raises(journal.JournalError, match="cannot be read"):
            reader._producers_piece(0, 5)
        thread.join()


def test_requests_that_cannot_be(where):
    for more in ({}, {"at": -1, "bytes": 1}, {"at": 0, "bytes": 1 << 70}, {"at": "0", "bytes": 1}):
        with pytest.raises(requests.Malformed):
            requests.decode([json.dumps({"v": 1, "id": 1, "op": "producers", "topic": "t",
                                         "partition": 0, **more}).encode()])
