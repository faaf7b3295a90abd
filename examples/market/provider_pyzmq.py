"""Sells additions with pyzmq, as provider.py; its wire has no surveys, so it makes no quotes.

    python provider_pyzmq.py NAME PRICE bind|connect URL
"""

import os
import sys

import zmq
from trade import execute


def main(name: str, price: str, how: str, url: str) -> None:
    context = zmq.Context()
    with context, context.socket(zmq.REP) as till, context.socket(zmq.PUSH) as ledger:
        (till.bind if how == "bind" else till.connect)(url)
        if "LEDGER" in os.environ:
            ledger.connect(os.environ["LEDGER"])
        print(f"open: {url}", flush=True)
        while True:
            order = till.recv()
            if "LEDGER" in os.environ:
                ledger.send(name.encode() + b" " + order)
            till.send(execute(order, name, price))


if __name__ == "__main__":
    main(*sys.argv[1:5])
