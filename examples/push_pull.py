"""A pipeline whose middle step gets more instances while it runs.

    push_pull.py [ITEMS]

The source pushes numbers, the step factors them, the sink collects. Source and sink bind, so an
instance of the step only has to connect to both; the second half of the work is shared among three.

    push_pull.py step SOURCE-URL SINK-URL NAME          one instance, started by the main program
"""

import subprocess
import sys
from collections import Counter

import mqcore as mq

SMALL = 100  # messages waiting per instance: few, so that a new instance soon has its share


def factors(n: int) -> list[int]:
    found, d = [], 2
    while n > 1:
        while n % d == 0:
            found.append(d)
            n //= d
        d += 1 if d == 2 else 2
        if d * d > n > 1:
            found.append(n)
            break
    return found


def step(source_url: str, sink_url: str, name: str) -> None:
    with (
        mq.Pull(connect=source_url, recv_hwm=SMALL) as source,
        mq.Push(connect=sink_url, linger=10.0) as sink,
    ):
        for item in source:
            if not item:  # an empty item: the source has ended
                break
            sink.send_parts([item, " ".join(map(str, factors(int(item)))).encode(), name.encode()])


def product(text: bytes) -> int:
    result = 1
    for word in text.split():
        result *= int(word)
    return result


def main(items: int = 2000) -> None:
    instances: list[subprocess.Popen[bytes]] = []
    with (
        mq.Push(bind="tcp://127.0.0.1:0", send_hwm=SMALL) as source,
        mq.Pull(bind="tcp://127.0.0.1:0", recv_timeout=30.0, recv_hwm=None) as sink,
    ):
        urls = source.endpoints[0].url, sink.endpoints[0].url

        def add_instance() -> None:
            name = f"instance {len(instances) + 1}"
            instances.append(subprocess.Popen([sys.executable, __file__, "step", *urls, name]))

        try:
            add_instance()
            for n in range(1, items // 2 + 1):
                source.send(b"%d" % n)
            add_instance()
            add_instance()
            source.wait_peers(3, timeout=30.0)
            for n in range(items // 2 + 1, items + 1):
                source.send(b"%d" % n)
            report(sink, items)
            for _ in instances:  # round robin: one for each
                source.send(b"")
            for process in instances:
                process.wait(timeout=30)
        finally:
            for process in instances:
                process.kill()
                process.wait()


def report(sink: mq.Pull, items: int) -> None:
    by: Counter[str] = Counter()
    seen: set[int] = set()
    while len(seen) < items:
        item, found, name = sink.recv_parts()
        assert product(found) == int(item) and int(item) not in seen
        seen.add(int(item))
        by[name.decode()] += 1
    for instance in sorted(by):
        print(f"{instance}: {by[instance]} items")
    print(f"{len(seen)} items, each once")


if __name__ == "__main__":
    if sys.argv[1:2] == ["step"]:
        step(*sys.argv[2:5])
    else:
        main(*map(int, sys.argv[1:]))
