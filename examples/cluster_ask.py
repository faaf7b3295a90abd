"""Calls the service "adder" of a cluster (see cluster_adder.py), without knowing where it runs.

    python cluster_ask.py adder.key tcp://127.0.0.1:7400 1 2        their sum, by any member
    python cluster_ask.py adder.key tcp://127.0.0.1:7400 load       how much each member has done
    python cluster_ask.py adder.key tcp://127.0.0.1:7400 sum 1 2 3  running totals, by a tunnel
"""

import sys

from mqcore import cluster


def main(key: str, seed: str, *words: str) -> None:
    with cluster.join(cluster.Key.load(key), seeds=[seed]) as net:
        match words:
            case ["load"]:
                for reply in net.survey("adder", b"load?", deadline=1.0):
                    print(reply.peer.url, reply.body.decode())
            case ["sum", *numbers]:
                with net.tunnel("adder", timeout=5) as tunnel:
                    for number in numbers:
                        tunnel.send(number.encode())
                    tunnel.send_eof()
                    for total in tunnel:
                        print(total.decode())
            case [first, second]:
                body = f"{first} {second}".encode()
                print(net.request("adder", body, timeout=5, idempotent=True).decode())
            case _:
                sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except cluster.ClusterError as error:
        sys.exit(str(error))
    except TypeError:
        sys.exit(__doc__)
