"""One order, followed through two processes: a request, its service, and a journal.

    mq cluster key new shop.key
    MQCORE_MONITOR=1 python traced.py serve shop.key orders/       prints its address
    MQCORE_MONITOR=1 python traced.py order shop.key ADDRESS 7     prints the trace's id, and waits
    mq trace ID                                                    the way of the order

Both programs end with their standard input (Ctrl-D).
"""

import sys

from mqcore import cluster, journal, trace


class Shop:
    def __init__(self, orders: journal.Writer) -> None:
        self.orders = orders

    def request(self, req: cluster.Incoming) -> bytes:
        with trace.span("check stock"):             # a span of the requester's trace
            if int(req.body) > 100:
                raise ValueError("so many are not in stock")
        return b"order %d" % self.orders.append(req.body)


def serve(key: str, folder: str) -> None:
    with journal.open(folder, "a", topic="orders", trace=True) as orders, \
            cluster.join(cluster.Key.load(key)) as net, net.serve("shop", Shop(orders)):
        print(net.url, flush=True)
        sys.stdin.read()
    with journal.open(folder, topic="orders") as reader:
        for records in reader.batches():
            for i, body in enumerate(records.to_list()):
                context = records.trace_context(i)
                print((body or b"").decode(), "of trace", context.trace_id if context else "none")


def order(key: str, seed: str, count: str) -> None:
    with cluster.join(cluster.Key.load(key), seeds=[seed]) as net:
        with trace.span("order") as span:
            print(net.request("shop", count.encode(), timeout=30).decode())
        print(span.context.trace_id, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", key, folder]:
            serve(key, folder)
        case ["order", key, address, count]:
            order(key, address, count)
        case _:
            sys.exit(__doc__)
