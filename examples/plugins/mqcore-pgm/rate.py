"""Messages a second over epgm on this machine's loopback, beside libzmq's own.

    MULTICAST_LIBZMQ=PYTHON python rate.py [--rate KBIT] [--size BYTES] [-n MESSAGES] [--rounds N]

PYTHON has pyzmq over a libzmq with PGM. Publisher and subscriber are processes of their own, with
the same rate limit. Each way runs in turn, `rounds` times; a line shows the median and the losses.
"""

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).with_name("tests")))
import network

WAYS = [("zmq", "zmq"), ("mq", "mq"), ("mq", "zmq"), ("zmq", "mq")]
NAMES = {"mq": "mqcore", "zmq": "libzmq"}


def once(sender, receiver, given):
    """(messages a second at the subscriber, how many are missing)"""
    with network.here() as place:
        options = {"n": given.n, "size": given.size, "pgm_rate": given.rate, "idle": 3.0}
        sub = place.peer(receiver, "sub", **options)
        pub = place.peer(sender, "pub", **options)
        sub.line()
        pub.go()
        pub.result()
        got = sub.result()
    return got["got"] / got["seconds"], got["missing"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rate", type=int, default=1_000_000, help="kbit/s")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("-n", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    found = {way: [] for way in WAYS}
    for _ in range(given.rounds):
        for way in WAYS:
            found[way].append(once(*way, given))
    for way, rounds in found.items():
        rates, missing = zip(*rounds, strict=True)
        print(f"{NAMES[way[0]]:>7} to {NAMES[way[1]]:<7} {statistics.median(rates):10,.0f} /s"
              f"   missing {', '.join(map(str, missing))} of {given.n:,}", flush=True)


if __name__ == "__main__":
    main()
