"""Two engines and a controller of ipyparallel compute. argv: a folder for their profile."""
import logging
import os
import sys

import ipyparallel
import zmq


def where():
    return __import__("os").getpid()


def name():
    return __import__("zmq").__name__


def slow_square(x):
    __import__("time").sleep(0.01)
    return x * x


def main():
    with ipyparallel.Cluster(n=2, profile_dir=sys.argv[1], log_level=logging.ERROR) as client:
        client.wait_for_engines(2, timeout=60)
        view = client[:]
        print(zmq.__name__, view.apply_sync(name), client.ids)
        print(len({*view.apply_sync(where), os.getpid()}))
        print(view.map_sync(lambda x: x * x, range(10)))
        view.scatter("part", list(range(7)))
        view.execute("total = sum(part)", block=True)
        print(view.gather("part").get(), sum(view["total"]))
        print(view.apply_sync(len, bytes(3_000_000)))
        balanced = client.load_balanced_view()
        print(balanced.map_sync(slow_square, range(20)) == [x * x for x in range(20)])
        print(client.broadcast_view().apply_sync(lambda: 3))
        try:
            view.apply_sync(lambda: 1 / 0)
        except ipyparallel.error.CompositeError as error:
            print(type(error).__name__, len(error.elist))


if __name__ == "__main__":
    main()
