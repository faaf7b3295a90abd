"""What has messages of its own is no mirror: a mirror does not go on behind them."""

import pytest
from copies import epochs, fill, mirror, mirroring, read_all
from waiting import until

import mqcore as mq
from mqcore import journal
from mqcore.errors import UsageError
from mqcore.journal.errors import JournalDiverged, JournalFenced


def ident(where):
    return journal.list_partitions(where)[0].id


@pytest.fixture(params=["folder", "server"])
def into(request, serve, ctx):
    """into(source, folder): a mirror of the source, or of its server."""
    def make(source, folder):
        if request.param == "folder":
            mirror(source, folder)
        else:
            mirror(f"{serve(source).urls[0]}/default", folder, context=ctx)
    return make


@pytest.mark.parametrize("n", [1, 3])
def test_a_mirror_that_a_program_has_written_to(pair, into, n):
    """Without promoting it, which it should have."""
    a, b = pair
    mine = [b"mine %d" % i for i in range(n)]
    fill(b, *mine)
    fill(a, *[b"%d" % i for i in range(2, 10)])
    with pytest.raises(JournalDiverged, match=f"messages 2 to {n + 1} .* are not those") as error:
        into(a, b)
    assert (error.value.first, error.value.end) == (2, 2 + n)
    assert read_all(b) == [b"0", b"1", *mine]
    with pytest.raises(JournalDiverged):
        journal.promote(b, old=a)
    assert not epochs(a).fenced and epochs(b).mirror
    assert fill(a, b"10") == [10]


def test_a_journal_of_its_own_does_not_become_a_mirror(tmp_path, into, serve, ctx):
    """Of one that is longer, in a folder that was named by mistake."""
    a, b = tmp_path / "a", tmp_path / "b"
    fill(a, *[b"%d" % i for i in range(10)])
    fill(b, b"mine", b"too")
    for _ in range(2):
        with pytest.raises(JournalDiverged) as error:
            into(a, b)
        assert (error.value.first, error.value.end) == (0, 2)
    assert not epochs(b).mirror and epochs(b).origin == b""
    url = serve(b, groups=True).urls[0]
    with journal.open(url, topic="default", context=ctx) as reader:
        reader.commit_offset("g", 1)            # its server does not take it for a mirror
    assert fill(b, b"more") == [2]


def test_a_journal_that_is_longer_does_not_become_a_mirror(tmp_path, into):
    a, b = tmp_path / "a", tmp_path / "b"
    fill(a, b"0")
    fill(b, b"mine", b"too")
    with pytest.raises(UsageError, match="it is no mirror of it"):
        into(a, b)
    assert not epochs(b).mirror and epochs(b).origin == b""


def test_a_source_that_was_set_back_and_went_on(pair, into, copy):
    a, b = pair
    restored = copy(a)
    fill(a, b"2", b"3")
    mirror(a, b)
    fill(restored, b"two", b"three", b"four")
    with pytest.raises(JournalDiverged) as error:
        into(restored, b)
    assert (error.value.first, error.value.end) == (2, 4)


def test_what_compaction_has_removed_tells_nothing(tmp_path, into):
    """The last message of the mirror is gone in its source."""
    a, b = tmp_path / "a", tmp_path / "b"
    how = {"segment_bytes": 4096, "block_bytes": 1024}
    with journal.open(a, "a", **how) as log:
        for i in range(50):
            log.append(b"%d" % i * 100, key=b"k")
    mirror(a, b)
    with journal.open(a, "a", **how) as log:
        for i in range(50, 100):
            log.append(b"%d" % i * 100, key=b"k")
        log.rotate()
        log.append(b"last", key=b"k")
    journal.compact(a)
    into(a, b)
    with journal.open(b) as reader:
        assert reader.end == 101


@pytest.mark.parametrize("how", ["folder", "server"])
def test_a_chain_whose_end_began_first(tmp_path, serve, ctx, how):
    """Its source was empty then, and no mirror yet. It is a copy of what that is a copy of."""
    a, b, c = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    fill(a, b"0", b"1")
    with journal.open(b, "a", mirror=True) as middle, journal.open(a) as first:
        source = b if how == "folder" else f"{serve(b).urls[0]}/default"
        with mirroring(source, c, **({} if how == "folder" else {"context": ctx})) as (end, copy), \
                mq.device(first, middle):
            until(lambda: middle.durable == 2)
            until(lambda: copy.next == 2 or end.error is not None)
            # over the network it keeps to what it has met, and begins anew when it is restarted
            assert end.error is None or how == "server" and copy.next == 0
        mirror(b, c)
        assert epochs(c).origin == epochs(b).origin == bytes.fromhex(ident(a))
    mirror(a, c)                                # so that it may skip the one in the middle
    journal.promote(c)
    with pytest.raises(JournalFenced):
        journal.open(a, "a", replicas=serve(c).urls[0], replica_options={"context": ctx})


def test_a_replica_that_serves_another_journal_is_named_once(pair, serve, ctx, tmp_path, caplog):
    """It cannot say whether a mirror of this one was promoted."""
    a, _ = pair
    fill(tmp_path / "other", b"x")
    [url] = serve(tmp_path / "other").urls
    with journal.open(a, "a", replicas=url, replica_options={"context": ctx}) as log:
        [found] = [r for r in caplog.records if "another journal" in r.getMessage()]
        assert found.levelname == "WARNING" and url in found.getMessage()
        log._replicas.ask(log._epochs, log._journal)
        assert log.append(b"2") == 2
    assert caplog.text.count("serves another journal") == 1


def test_a_backup_and_a_primary_can_be_promoted_once(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    fill(a, b"0")
    journal.backup(a, b)
    for where in (b, a):
        assert journal.promote(where).epoch == 1
        with pytest.raises(UsageError, match="promoted to epoch 1"):
            journal.promote(where)
        assert fill(where, b"1") == [1]
