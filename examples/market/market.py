"""Sets up one rung of the market and lets you watch.

    python market.py direct|queue|failover|exchange|chain|loop|mixed|cluster

The programs are the same on every rung; README.md has pictures.
"""

import signal
import sys

from stage import Stage

KINDS = ("", "_pynng", "_pyzmq")


def direct(market: Stage) -> None:
    """A customer and a provider."""
    market.provider("shop", 3, "bind", "shop")
    ann = market.customer("ann", "shop")
    ann.says("200 orders")
    market.close(ann)


def queue(market: Stage) -> None:
    """Customers of three kinds, and workers that come, go and die under load."""
    market.open("queue", "queue_device", market.url("front"), market.url("back"))
    lazy = market.provider("lazy", 3, "connect", "back", WORK=60)
    zoe = market.customer("zoe", "front", kind="_pyzmq")
    market["ledger"].says("first order of lazy: zoe-0")
    lazy.end(signal.SIGKILL)  # and zoe's order with it: she sees that, the others' sockets do
    ann, bob = market.customer("ann", "front"), market.customer("bob", "front", kind="_pynng")
    first = market.provider("first", 3, "connect", "back")
    zoe.says("asking again")
    ann.says("100 orders")
    second = market.provider("second", 3, "connect", "back")
    ann.says("200 orders")
    first.end()
    ann.says("300 orders")
    market.provider("third", 3, "connect", "back")
    second.end(signal.SIGKILL)
    for customer in (ann, bob, zoe):
        customer.says("400 orders")
    market.close(ann, bob, zoe)


def failover(market: Stage) -> None:
    """The cheap provider as long as there is one."""
    cheap = market.provider("cheap", 2, "bind", "cheap")
    market.provider("dear", 5, "bind", "dear")
    ann = market.customer("ann", "cheap?prio=1", "dear?prio=2")
    ann.says("100 orders")
    cheap.end(signal.SIGKILL)
    ann.says("FailedOver")
    ann.says("00 orders")
    cheap = market.provider("cheap", 2, "bind", "cheap")
    ann.says("FailedBack")
    ann.says("00 orders")
    cheap.process.send_signal(signal.SIGSTOP)  # there, but silent: the order is given again
    ann.says("FailedOver")
    # and executes that order, too, although it is already done
    cheap.process.send_signal(signal.SIGCONT)
    ann.says("FailedBack")
    ann.says("00 orders")
    market.close(ann)


def exchange(market: Stage) -> None:
    """The cheapest quote gets the order; an order with a limit waits for it."""
    quotes = market.url("quotes")
    exchange = market.open("exchange", "exchange", "exchange", market.url("front"), quotes)
    market.provider("cheap", 2, "bind", "cheap", QUOTES=quotes)
    market.provider("dear", 5, "bind", "dear", kind="_pynng", QUOTES=quotes)
    ann = market.customer("ann", "front")
    ann.says("100 orders")
    carl = market.customer("carl", "front", orders=1, LIMIT=1, WITHIN=0.5)
    carl.says("error: nobody offers that so cheaply")
    dora = market.customer("dora", "front", orders=5, LIMIT=1, WITHIN=30)
    exchange.says("holds 'dora-0")
    bargain = market.provider("bargain", 1, "bind", "bargain", QUOTES=quotes)
    dora.says("5 orders, each answered: {'bargain': 5}")
    market["ledger"].says("first order of bargain: dora-0")
    bargain.end(signal.SIGKILL)
    ann.says("00 orders")
    market.close(ann)


def chain(market: Stage) -> None:
    """From one exchange to the next, and there to a provider, or to another if that one dies."""
    cheap = market.provider("cheap", 2, "bind", "cheap")
    market.provider("dear", 5, "bind", "dear", kind="_pynng")
    ways = market.url("cheap?prio=1"), market.url("dear?prio=2&wire=sp")
    east = market.open("east", "exchange", "east", market.url("east"), market.url("quotes-e"),
                       *ways)
    market.open("west", "exchange", "west", market.url("west"), market.url("quotes-w"),
                market.url("east"))
    ann = market.customer("ann", "west")
    ann.says("100 orders")
    cheap.end(signal.SIGKILL)
    east.says("FailedOver")
    ann.says("00 orders")
    market.provider("cheap", 2, "bind", "cheap")
    east.says("FailedBack")
    ann.says("00 orders")
    market.close(ann)


def loop(market: Stage) -> None:
    """A misconfiguration: two exchanges, and two queues, forward to each other."""
    urls = {name: market.url(name) for name in ("west", "east", "north", "south")}
    for name, other in ("west", "east"), ("east", "west"):
        market.open(name, "exchange", name, urls[name], market.url(f"quotes-{name}"), urls[other])
    ann = market.customer("ann", "west", orders=1)
    ann.says("error: hop limit of 8 reached at")
    for name, other in ("north", "south"), ("south", "north"):
        market.open(name, "queue_device", urls[name], f"connect:{urls[other]}?wire=sp")
    bob = market.customer("bob", "north", orders=1, kind="_pynng")
    market["north"].says("hop_limit")  # at the ninth look, so it is north that finds out
    bob.end(signal.SIGKILL)  # it would wait for a long time
    market.close(ann)


def mixed(market: Stage) -> None:
    """Providers and customers of three kinds at one queue."""
    market.open("queue", "queue_device", market.url("front"), market.url("back"))
    for kind in KINDS:
        market.provider(f"seller{kind}", 3, "connect", "back", kind=kind)
    customers = [market.customer(f"buyer{kind}", "front", kind=kind) for kind in KINDS]
    for customer in customers:
        customer.says("300 orders")
    market.close(*customers)


def cluster(market: Stage) -> None:
    """A provider that is a service of a cluster, whose members come, go and die under load."""
    market.open("queue", "queue_device", market.url("front"), market.url("back"))
    first = market.member("first", 3)
    market.provider("plain", 3, "connect", "back")
    market.provider("cloud", 3, "connect", "back", kind="_cluster", SEED=first.url,
                    KEY=f"{market.folder.name}/market.key")
    ann, bob = market.customer("ann", "front"), market.customer("bob", "front", kind="_pynng")
    market["ledger"].says("first order of first")
    second = market.member("second", 3, first.url)
    market["ledger"].says("first order of second")
    first.end(signal.SIGKILL)  # with an order in hand, which the cluster gives to second
    ann.says("00 orders")
    market.member("third", 3, second.url)
    market["ledger"].says("first order of third")
    second.end()  # it finishes its orders, then leaves
    for customer in (ann, bob):
        customer.says("00 orders")
    market.close(ann, bob)


RUNGS = (direct, queue, failover, exchange, chain, loop, mixed, cluster)


def main(*names: str) -> None:
    rungs = {rung.__name__: rung for rung in RUNGS}
    if not names or set(names) - rungs.keys():
        sys.exit(__doc__)
    for name in names:
        print(f"-- {name}: {rungs[name].__doc__}")
        with Stage() as market:
            rungs[name](market)


if __name__ == "__main__":
    main(*sys.argv[1:])
