"""Two clouds, a cluster each, joined by gateways: when one dies, requests go to the other.

    mq cluster key new east.key, and so on for west.key and federation.key
    python cluster_clouds.py gateway east east.key federation.key           prints two addresses: of
                                            its node in the cluster, and of its place among gateways
    python cluster_clouds.py worker east east.key NODE                      serves the name "where"
    python cluster_clouds.py gateway west west.key federation.key GATEWAY
    python cluster_clouds.py worker west west.key NODE
    python cluster_clouds.py ask east.key NODE                              prints who answers

`ask` prints "east" while a worker of its own cluster lives. Kill it, and the next line is "west".
A third cluster with a gateway and no worker gets its answers from the cloud that is named by the
last argument, ZONE, and from the other one when that is gone:

    python cluster_clouds.py gateway office office.key federation.key GATEWAY east
"""

import os
import sys
import time
from typing import Any

from mqcore import cluster


class Where:
    def __init__(self, cloud: str) -> None:
        self.cloud = cloud

    def request(self, req: cluster.Incoming) -> bytes:
        return f"{self.cloud} {os.getpid()}".encode()


def worker(cloud: str, key: str, seed: str) -> None:
    with cluster.join(cluster.Key.load(key), seeds=[seed]) as net:
        with net.serve("where", Where(cloud)):
            print(net.url, flush=True)
            time.sleep(1e6)


def gateway(cloud: str, key: str, federation: str, other: str = "", zone: str = "") -> None:
    quota = cluster.Quota(requests=1000, in_flight=100)
    with cluster.join(cluster.Key.load(key), zone=zone or cloud) as net:
        with net.federate(cloud, cluster.Key.load(federation), exports=["where"],
                          imports=["where"], quota=quota, seeds=[other] if other else []) as door:
            print(net.url, door.fed.url, flush=True)
            time.sleep(1e6)


def ask(key: str, seed: str, seconds: str = "0.05") -> None:
    with cluster.join(cluster.Key.load(key), seeds=[seed]) as net:
        net.wait_members("where", timeout=30)
        while True:
            try:
                answer = net.request("where", b"?", timeout=30, idempotent=True)
            except (cluster.NoSuchService, cluster.Overloaded):
                net.wait_members("where", timeout=30)       # until the other cloud is seen
                continue
            print(answer.decode(), flush=True)
            time.sleep(float(seconds))


if __name__ == "__main__":
    roles: dict[str, Any] = {"worker": worker, "gateway": gateway, "ask": ask}
    try:
        roles[sys.argv[1]](*sys.argv[2:])
    except (IndexError, KeyError, TypeError):
        sys.exit(__doc__)
    except KeyboardInterrupt:
        pass
