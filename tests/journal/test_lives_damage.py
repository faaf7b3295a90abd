"""Lives and damage: columns of the wrong size, bits that lie, ends of any kind."""

import sys
import threading

import journal_reference as ref
import pytest
from compressed import SALT, blocks, raw_segment, with_header, written
from journal_case import segment_files
from kills import RECORDER, Line

import mqcore as mq
from mqcore import journal
from mqcore.journal.errors import JournalCorrupt
from mqcore.journal.store.scan import BLOCK_HEADER_SIZE

MESSAGES = [{"time": i, "value": b"value %d" % i, "stamp": (1 + i % 2, i, i), "life": i // 2}
            for i in range(20)]
BEHIND = ref.checkpoint(len(MESSAGES), SALT, 0, 19)
NONSENSE = "the block's header contradicts itself"
LIMIT = 60.0


def rows_of(where):
    with journal.open(where, topic="t", durable=False) as reader:
        return [(int(records.producers[i]), int(records.sequences[i]),
                 0 if records.lives is None else int(records.lives[i]), value)
                for records in reader.batches() for i, value in enumerate(records)]


WANTED = [(*m["stamp"][:2], m["life"], m["value"]) for m in MESSAGES]


def test_either_version_is_understood(tmp_path):
    raw = bytearray(raw_segment(ref.block(0, 0, SALT, MESSAGES), BEHIND))
    for version in (1, 2):
        raw[8] = version
        assert rows_of(written(tmp_path, raw)) == WANTED
    with journal.open(tmp_path, "a", topic="t", stamps=True, deduplicate=True) as writer:
        assert (writer.life_of(1), writer.life_of(2)) == (9, 9)


@pytest.mark.parametrize("what", ["no column", "no stamps", "short", "long", "not said"])
def test_sizes_that_do_not_fit(tmp_path, what):
    """With CRCs that match: refused, and neither read beyond the block nor taken for a torn
    tail, as there is a block behind."""
    with_lives = ref.block(0, 0, SALT, MESSAGES)
    plain = ref.block(0, 0, SALT, [{**m, "life": 0} for m in MESSAGES])
    unstamped = ref.block(0, 0, SALT, [{"time": m["time"], "value": m["value"]}
                                       for m in MESSAGES])
    block, flags = with_lives, ref.LIVES | 4
    if what == "no column":
        block = plain
    elif what == "no stamps":           # the column, but nothing that it is about
        block, flags = unstamped + bytes(128), ref.LIVES
    elif what == "short":
        block = with_lives[:-64]
    elif what == "long":
        block = with_lives + bytes(64)
    else:
        flags = 4
    body = block[BLOCK_HEADER_SIZE:]
    block = with_header(block[:BLOCK_HEADER_SIZE], flags=flags, size=len(block),
                        body_crc=ref.crc32c(body)) + body
    where = written(tmp_path, raw_segment(block, BEHIND))
    for verify in (True, False):
        with journal.open(where, topic="t", durable=False, verify=verify) as reader, \
                pytest.raises(JournalCorrupt) as caught:
            reader.read(0)
        assert caught.value.fault.startswith(NONSENSE)
    for deduplicate in (False, True):
        with pytest.raises(JournalCorrupt):
            journal.open(where, "a", topic="t", stamps=True, deduplicate=deduplicate)


@pytest.mark.parametrize("codec", [None, "zstd"])
def test_any_flipped_bit_is_told(memory, codec, nobody_writes):
    with journal.open(memory, "a", topic="t", stamps=True, compression=codec) as writer:
        for m in MESSAGES:
            writer.append(journal.stamp(*m["stamp"][:2], 1.0, life=m["life"]) + m["value"])
    [path] = segment_files(memory, "t")
    whole = path.read_bytes()
    assert blocks(memory, topic="t")[-1][2] & ref.LIVES
    changed = bytearray(whole)
    for at in range(0, len(whole), 3):
        changed[at] ^= 1 << at % 8
        path.write_bytes(changed)
        try:
            assert rows_of(memory) == WANTED, at
        except JournalCorrupt:
            pass
        changed[at] = whole[at]


def test_a_torn_tail(memory):
    """Cut inside the block of a new life: the older one goes on, until the newer comes again."""
    def value(life, sequence):
        return journal.stamp(1, sequence, 1.0, life=life) + b"%d:%d" % (life, sequence)

    with journal.open(memory, "a", topic="t", fsync="never", stamps=True) as writer:
        writer.append_many([value(1, i) for i in range(5)])
        writer.commit()
        begun = writer._counters()["pos"]
        durable = (memory / "t" / "0" / "durable").read_bytes()
        writer.append_many([value(2, i) for i in range(5)])
        writer.flush()
        [path] = segment_files(memory, "t")
        whole = path.read_bytes()
    for end in (*range(begun, len(whole), 41), len(whole)):
        for left in segment_files(memory, "t"):
            left.unlink()
        (path.parent / "producers").unlink(missing_ok=True)
        path.write_bytes(whole[:end])
        (path.parent / "durable").write_bytes(durable)
        torn = end < len(whole)
        with journal.open(memory, "a", topic="t", stamps=True, deduplicate=True) as writer:
            assert writer.next == (5 if torn else 10)
            if torn:
                assert writer.append(value(1, 5)) == 5
                assert writer.append(value(2, 0)) == 6
            with pytest.raises(journal.ProducerFenced):
                writer.append(value(1, 6))
            assert writer.append(value(2, 4)) == (7 if torn else 9)


def test_what_a_server_may_send():
    """Columns that do not fit together are no records."""
    from mqcore.journal.server import codec

    def told(**columns):
        raw, places = b"", {}
        for name, values in {"times": bytes(16), "value_ends": bytes(12), "values": b"",
                             **columns}.items():
            places[name] = [len(raw), len(values)]
            raw += ref.padded(values)
        return {"first": 0, "n": 2, "columns": places}, raw, "t", 0

    stamps = {"producers": bytes(16), "sequences": bytes(16), "sent": bytes(16)}
    assert codec.unpack(*told(**stamps, lives=bytes(8))).lives.tolist() == [0, 0]
    for columns in ({"lives": bytes(8)}, {**stamps, "lives": b""}, {**stamps, "lives": bytes(4)},
                    {**stamps, "lives": bytes(12)}):
        with pytest.raises(journal.JournalError):
            codec.unpack(*told(**columns))


class Life(threading.Thread):
    """One start of a producer, which goes on until it is fenced or told to end."""

    def __init__(self, ctx, url, life):
        super().__init__(name=f"life {life}")
        self.ctx, self.url, self.life = ctx, url, life
        self.acknowledged, self.fenced_by, self.error = 0, None, None
        self.ending = threading.Event()

    def run(self):
        try:
            with mq.Req(context=self.ctx, connect=self.url, resend=0.2,
                        recv_timeout=LIMIT) as req:
                while not self.ending.is_set():
                    value = b"%d:%d" % (self.life, self.acknowledged)
                    journal.stored_at(req.request(
                        journal.stamp(1, self.acknowledged, life=self.life) + value))
                    self.acknowledged += 1
        except journal.ProducerFenced as error:
            self.fenced_by = error.life
        except BaseException as error:
            self.error = error


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", [5, pytest.param(40, marks=pytest.mark.slow)])
def test_kill_9_while_lives_change(ctx, tmp_path, rng, kills):
    """A recorder that is killed between two lives: what each was told is so, and in the journal
    no older one comes behind a newer one."""
    url = f"ipc://{tmp_path}/front"
    lives = []
    with Line({"recorder": RECORDER}, tmp_path / "j", [url]) as line:
        for life in range(2 * kills):
            lives.append(Life(ctx, url, life))
            lives[-1].start()
            lives[-1].ending.wait(rng.random() * 0.15)
            if life % 2:
                line.kill("recorder")
                line.start("recorder")
                line.wait("recorder")
        lives[-1].ending.wait(0.5)
        lives[-1].ending.set()
        for thread in lives:
            thread.join(LIMIT)
            assert thread.error is None and not thread.is_alive()
    assert all(one.fenced_by is None or one.fenced_by > one.life for one in lives)
    assert lives[-1].fenced_by is None and all(one.fenced_by for one in lives[:-1])
    found = []
    with journal.open(tmp_path / "j") as reader:
        for records in reader.batches():
            found += zip([0] * len(records) if records.lives is None else records.lives.tolist(),
                         records.sequences.tolist(), records, strict=True)
    assert [row[0] for row in found] == sorted(row[0] for row in found)
    for one in lives:
        mine = [row[1] for row in found if row[0] == one.life]
        assert mine == list(range(len(mine)))
        assert one.acknowledged <= len(mine) <= one.acknowledged + 1
    assert all(value == b"%d:%d" % (life, number) for life, number, value in found)
    print(len(found), "messages", file=sys.stderr)
    assert journal.verify(tmp_path / "j" / "default" / "0").findings == []
