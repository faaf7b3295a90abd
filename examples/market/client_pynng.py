"""A customer with pynng, as client.py.   python client_pynng.py NAME ORDERS URL [URL ...]"""

import os
import sys

import pynng
from trade import shop


def main(name: str, orders: str, *urls: str) -> None:
    resend = int(float(os.environ.get("RESEND", "1")) * 1000)
    with pynng.Req0(resend_time=resend, recv_timeout=60_000) as market:
        for url in urls:
            market.dial(url, block=False)

        def ask(order: bytes) -> bytes:
            market.send(order)
            return bytes(market.recv())

        shop(name, int(orders), ask)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *sys.argv[3:])
