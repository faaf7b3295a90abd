"""Sells additions as a member of a cluster's service.   python member.py NAME PRICE KEY [SEED]

The members share one shop: provider_cluster.py takes the orders and finds the members by the name
of their service, "additions". Members come and go, and no address is written anywhere else. SIGTERM
finishes the orders that run, then leaves.

Environment: WORK, LEDGER  as in provider.py
"""

import os
import signal
import sys
import threading

from trade import execute

import mqcore as mq
from mqcore import cluster


class Member:
    def __init__(self, name: str, price: str, ledger: mq.Push) -> None:
        self.name, self.price, self.ledger = name, price, ledger

    def request(self, req: cluster.Incoming) -> bytes:
        if self.ledger.endpoints:
            self.ledger.send(self.name.encode() + b" " + req.body)
        return execute(req.body, self.name, self.price)


def main(name: str, price: str, key: str, *seeds: str) -> None:
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with mq.Push() as ledger, cluster.join(cluster.Key.load(key), seeds=seeds) as net:
        if "LEDGER" in os.environ:
            ledger.connect(os.environ["LEDGER"], wait=10.0)
        with net.serve("additions", Member(name, price, ledger), concurrency=4):
            print(f"open: {net.url}", flush=True)
            while not ended.wait(0.1):
                pass
            net.drain(5)


if __name__ == "__main__":
    main(*sys.argv[1:])
