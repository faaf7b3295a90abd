"""Sells additions with pynng, as provider.py.

    python provider_pynng.py NAME PRICE bind|connect URL
"""

import os
import sys
import threading

import pynng
from trade import execute


def quote(exchange: pynng.Respondent0, offer: bytes) -> None:
    while True:
        if exchange.recv() == b"quote":
            exchange.send(offer)


def main(name: str, price: str, how: str, url: str) -> None:
    with pynng.Rep0() as till, pynng.Push0() as ledger, pynng.Respondent0() as exchange:
        url = till.listen(url).url if how == "bind" else till.dial(url, block=False).url
        if "LEDGER" in os.environ:
            ledger.dial(os.environ["LEDGER"], block=True)
        if "QUOTES" in os.environ:
            exchange.dial(os.environ["QUOTES"], block=False)
            offer = f"{name} {price} {url}".encode()
            threading.Thread(target=quote, args=(exchange, offer), daemon=True).start()
        print(f"open: {url}", flush=True)
        while True:
            order = till.recv()
            if "LEDGER" in os.environ:
                ledger.send(name.encode() + b" " + order)
            till.send(execute(order, name, price))


if __name__ == "__main__":
    main(*sys.argv[1:5])
