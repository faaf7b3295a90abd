"""A customer.   python client.py NAME ORDERS URL [URL ...]

Several URLs are several ways to the market: tcp://cheap:5601?prio=1 tcp://dear:5602?prio=2.
Each order is answered exactly once: the socket gives it again when the link breaks or RESEND
seconds have passed, elsewhere if it can, and throws second answers away.

Environment: RESEND  seconds until an order is given again (1)
             LIMIT   pay so much at most (whatever it costs) ..
             WITHIN  .. and let an exchange look for that so many seconds (5)
"""

import os
import sys
import threading

from trade import shop

import mqcore as mq


def watch(events: mq.EventStream) -> None:
    for event in events:
        if event.kind in ("FailedOver", "FailedBack"):
            print(event, flush=True)


def main(name: str, orders: str, *urls: str) -> None:
    with mq.Req(resend=float(os.environ.get("RESEND", "1"))) as market, market.events() as events:
        threading.Thread(target=watch, args=(events,)).start()
        for url in urls:
            market.connect(url)
        shop(name, int(orders), lambda order: market.request(order, timeout=60.0))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *sys.argv[3:])
