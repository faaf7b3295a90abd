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
    found: list[int] = []
    try:
        with journal.open(folder / "out", topic="t") as log:
            while len(records := log.read(len(found))):     # some blocks at a time
                found += map(int, records.to_list())
                for i in (0, len(records) - 1):
                    n = found[i - len(records)]
                    assert records.key(i) == b"k%d" % (n % 7)
                    assert dict(records.headers(i))["n"] == b"%d" % n
    except (journal.JournalNotFound, FileNotFoundError):
        return set()
    last: dict[int, int] = {}
    for n in dict.fromkeys(found):          # first arrivals
        assert last.get(n % 7, -1) < n, f"{n} came after {last[n % 7]}, which has the same key"
        last[n % 7] = n
    return set(found)
