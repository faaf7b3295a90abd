"""Sells additions.   python provider.py NAME PRICE bind|connect URL

The same order may arrive twice, here or at a competitor's, because a client that waits too long for
a reply asks again. So an order must be idempotent, as additions are. The ledger shows how often one
was executed unnecessarily.

Environment: WORK    seconds that an addition takes (0)
             LEDGER  file that records each order before it is executed (none)
             QUOTES  address at which an exchange asks for prices (none)
"""

import os
import signal
import sys
import threading

from trade import execute

import mqcore as mq


def quote(exchange: mq.Respondent, offer: bytes) -> None:
    for question in exchange:
        if question == b"quote":
            exchange.send(offer)


def main(name: str, price: str, how: str, url: str) -> None:
    with mq.Rep() as till, mq.Push() as ledger, mq.Respondent() as exchange:
        url = (till.bind if how == "bind" else till.connect)(url).url
        if "LEDGER" in os.environ:
            ledger.connect(os.environ["LEDGER"], wait=10.0)
        if "QUOTES" in os.environ:
            exchange.connect(os.environ["QUOTES"])
            offer = f"{name} {price} {url}".encode()
            threading.Thread(target=quote, args=(exchange, offer), daemon=True).start()
        signal.signal(signal.SIGTERM, lambda *_: till.close())  # after the order in hand
        print(f"open: {url}", flush=True)
        for order in till:
            if "LEDGER" in os.environ:
                ledger.send(name.encode() + b" " + order)
            till.send(execute(order, name, price))


if __name__ == "__main__":
    main(*sys.argv[1:5])
