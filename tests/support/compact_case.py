"""What the tests of compaction share: messages with keys, and what is left of them."""

from mqcore import journal

SMALL = {"segment_bytes": 16384, "block_bytes": 2048, "fsync": "never"}


def fill(where, rng, n, keys=20, log=None, **options):
    """n messages more, in segments of about a hundred: {offset: (key, value)} of them. Some have no
    key, some are tombstones, some have headers."""
    if log is None:
        with journal.open(where, "a", **{**SMALL, **options}) as writer:
            return fill(where, rng, n, keys, writer)
    told = {}
    for _ in range(n):
        key = None if rng.random() < 0.1 else b"key %d" % rng.randrange(keys)
        value = None if key is not None and rng.random() < 0.15 else \
            b"%d " % log.next + bytes(rng.choice((0, 5, 300)))
        headers = [("n", b"%d" % log.next)] if rng.random() < 0.2 else []
        offset = log.append(value, key=key, headers=headers)
        told[offset] = key, value
    return told


def state_of(told):
    """What a reader makes of it: the last offset of each key with a value, and what has no key."""
    found = {}
    for offset, (key, value) in sorted(told.items()):
        if value is None:
            found.pop(key, None)
        else:
            found[offset if key is None else key] = offset
    return found


def rows_of(walk):
    """{offset: (key, value)}; records follow each other, and headers are as they were."""
    found, at = {}, None
    for records in walk:
        assert at in (None, records.since) and records.since <= records.first and len(records)
        at = records.next
        for row, value in enumerate(records.to_list()):
            offset = records.offset(row)
            found[offset] = records.key(row), value
            assert records.headers(row) in ([], [("n", b"%d" % offset)])
    return found


def left_of(where, **how):
    with journal.open(where, **how) as reader:
        return rows_of(reader.batches())


def folder_of(where):
    return where / "default" / "0"


def closed_end(where, topic="default", partition=0):
    """Where the last segment begins."""
    return max(int(path.stem) for path in (where / topic / str(partition)).glob("*.mqj"))


def expected(told, end, keep=False):
    """What compaction leaves, if all segments but the last one, which begins at `end`, get
    smaller. keep: tombstones, too."""
    newest = {key: offset for offset, (key, _) in sorted(told.items())}
    return {offset: (key, value) for offset, (key, value) in told.items()
            if key is None or offset >= end
            or newest[key] == offset and (value is not None or keep)}
