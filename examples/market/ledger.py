"""Writes down which order was executed by whom, and says at its end how often more than once.

    python ledger.py URL

Providers push `NAME ORDER ...` before they execute it, over whichever wire they speak.
"""

import signal
import sys
import threading
from collections import Counter

import mqcore as mq


def main(url: str) -> None:
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    executed: Counter[str] = Counter()
    providers: set[str] = set()
    with mq.Pull(bind=url) as entries:
        print(f"open: {entries.endpoints[0].url}", flush=True)
        while True:
            try:
                entry = entries.recv(timeout=0.2)
            except mq.Timeout:
                if stopped.is_set():
                    break
                continue
            name, number, *_ = entry.decode(errors="replace").split()
            if name not in providers:
                print(f"first order of {name}: {number}", flush=True)
                providers.add(name)
            executed[number] += 1
    again = executed.total() - len(executed)
    print(f"{len(executed)} orders executed, and {again} times one of them again")


if __name__ == "__main__":
    main(sys.argv[1])
