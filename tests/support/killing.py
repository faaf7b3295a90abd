"""A topic through a broker into another topic, while the broker is killed again and again."""

import time

from mqcore import bridge, journal

LIMIT = 240.0


def nothing_is_lost(broker, target, source, folder, count=5000, kills=3):
    """`target` and `source` are the addresses of one stream, queue or topic of the broker. Every
    message arrives; those of each key arrive in order, apart from repetitions."""
    with journal.open(folder / "in", "a", topic="t") as log:
        for n in range(count):
            log.append(b"%d" % n, key=b"k%d" % (n % 7), headers=[("n", b"%d" % n)])
    killed, end = 0, time.monotonic() + LIMIT
    with bridge.Bridge(source, f"journal:{folder}/out?topic=t", batch=50,
                       longest_pause=0.5) as second:
        while second.stats().source_connected == 0:     # it has subscribed
            assert time.monotonic() < end, second.explain()
            time.sleep(0.01)
        with bridge.Bridge(f"journal:{folder}/in?topic=t&group=g", target, batch=50,
                           longest_pause=0.5) as first:
            while len(arrived(folder)) < count:
                assert time.monotonic() < end, f"{first.explain()}\n{second.explain()}"
                assert first.error is None and second.error is None
                if killed < kills and first.stats().delivered > \
                        (killed + 1) * count // (kills + 1):
                    broker.kill()
                    killed += 1
                    broker.start()
                time.sleep(0.05)
            assert first.stats().dead == second.stats().dead == 0
    assert killed == kills


def arrived(folder):
    """The numbers that the second bridge has stored; their keys and headers are checked."""
    try:
        with journal.open(folder / "out", topic="t") as log:
            records = log.read(0, max_bytes=1 << 30)
    except (journal.JournalNotFound, FileNotFoundError):
        return set()
    found = list(map(int, records.to_list()))
    if len(set(found)) == 0:
        return set()
    last = {}
    for n in dict.fromkeys(found):          # first arrivals
        assert last.get(n % 7, -1) < n, f"{n} came after {last[n % 7]}, which has the same key"
        last[n % 7] = n
    for i in (0, len(found) - 1):
        assert records.key(i) == b"k%d" % (found[i] % 7)
        assert dict(records.headers(i))["n"] == b"%d" % found[i]
    return set(found)
