"""A provider whose work a cluster does.   python provider_cluster.py NAME PRICE bind|connect URL

For its customers it is a shop like any other. It gives each order to a member of the service
"additions" (member.py), which answers with its own name and price. A member that dies costs no
order: an addition may run twice, so the cluster asks another member.

Environment: KEY   the key file of the cluster
             SEED  the address of one of its nodes
"""

import os
import signal
import sys

import mqcore as mq
from mqcore import cluster

PATIENCE = 30.0     # seconds to wait for a first member, and for an answer


def bought(net: cluster.Node, order: bytes) -> bytes:
    try:
        net.wait_members("additions", timeout=PATIENCE)
        return net.request("additions", order, timeout=PATIENCE, idempotent=True)
    except (cluster.ClusterError, mq.Timeout) as error:
        return order.split(maxsplit=1)[0] + f" error: {error}".encode()


def main(name: str, price: str, how: str, url: str) -> None:
    key = cluster.Key.load(os.environ["KEY"])
    with mq.Rep() as till, cluster.join(key, seeds=[os.environ["SEED"]]) as net:
        url = (till.bind if how == "bind" else till.connect)(url).url
        signal.signal(signal.SIGTERM, lambda *_: till.close())
        print(f"open: {url}", flush=True)
        for order in till:
            till.send(bought(net, order))


if __name__ == "__main__":
    main(*sys.argv[1:])
