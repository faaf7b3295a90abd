"""What histograms cost: CPU time of a message with Context(histograms=True) and without.

    python perf/histograms.py                    alternating rounds, and the medians
    python perf/histograms.py --rounds 40 --transport tcp --burst 32

One thread sends a burst and receives it, so each message is measured in the queues of both sockets
(inproc: in the one queue). A queue measures each of its first four messages, then one in four, and
never more than 64 at a time: a short burst costs more. `more` is the difference of the medians, in
ns of CPU time a message.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time

import mqcore as mq


def one_round(histograms: bool, url: str, count: int, burst: int) -> float:
    """ns of CPU time a message, of all threads."""
    with mq.Context(histograms=histograms) as context:
        pull = mq.Pull(bind=url, context=context)
        push = mq.Push(connect=pull.endpoints[0].url, context=context)
        push.wait_peers(1, 60)
        send, recv, body = push.send, pull.recv, bytes(16)
        for _ in range(burst):
            send(body)
        for _ in range(burst):
            recv()
        before = time.process_time_ns()
        for _ in range(count // burst):
            for _ in range(burst):
                send(body)
            for _ in range(burst):
                recv()
        took = time.process_time_ns() - before
        context.close(0)
    return took / (count // burst * burst)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--burst", type=int, default=32)
    parser.add_argument("--transport", choices=("inproc", "tcp", "ipc"), action="append")
    options = parser.parse_args()
    for transport in options.transport or ["inproc", "tcp"]:
        with tempfile.TemporaryDirectory(prefix="mqperf") as folder:
            url = {
                "inproc": "inproc://perf",
                "tcp": "tcp://127.0.0.1:0",
                "ipc": f"ipc://{folder}/s",
            }[transport]
            off, on = [], []
            for _ in range(options.rounds):
                off.append(one_round(False, url, options.count, options.burst))
                on.append(one_round(True, url, options.count, options.burst))
        without, with_ = statistics.median(off), statistics.median(on)
        print(
            f"{transport:7} without {without:7.1f}  with {with_:7.1f}  "
            f"more {with_ - without:6.1f} ns a message"
        )


if __name__ == "__main__":
    main()
