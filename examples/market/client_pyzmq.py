"""A customer with pyzmq, as client.py.   python client_pyzmq.py NAME ORDERS URL [URL ...]

pyzmq does not send an order again: this client notices the time-out and sends it again itself.
REQ_RELAXED permits that. REQ_CORRELATE numbers its requests, so that it ignores late replies.
"""

import os
import sys

import zmq
from trade import shop


def main(name: str, orders: str, *urls: str) -> None:
    with zmq.Context() as context, context.socket(zmq.REQ) as market:
        market.setsockopt(zmq.REQ_RELAXED, 1)
        market.setsockopt(zmq.REQ_CORRELATE, 1)
        market.setsockopt(zmq.LINGER, 0)
        market.setsockopt(zmq.RCVTIMEO, int(float(os.environ.get("RESEND", "1")) * 1000))
        for url in urls:
            market.connect(url)

        def ask(order: bytes) -> bytes:
            while True:
                market.send(order)
                try:
                    return market.recv()
                except zmq.Again:
                    print(f"no answer to {order.decode()!r}, asking again", flush=True)

        shop(name, int(orders), ask)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *sys.argv[3:])
