"""The addition market: each rung of examples/market, as processes, by the program that a reader
starts; it fails by itself if somebody does not say in time what the rung is about."""

import re
from collections import Counter
from pathlib import Path

import pytest
from programs import run

MARKET = Path(__file__).resolve().parents[3] / "examples" / "market" / "market.py"


class Played:
    """What was said on a rung, by whom."""

    def __init__(self, rung):
        status, out, err = run(MARKET, rung)
        self.out = out.decode()
        assert status == 0, self.out + err
        self.lines = [line.split(" | ", 1) for line in self.out.splitlines() if " | " in line]

    def by(self, name):
        return [text for who, text in self.lines if who.strip() == name]

    def bought(self, customer):
        """{provider: orders}; each order was given and answered once, or the client complains."""
        [sums] = re.findall(r"(\d+) orders, each answered: (.*) for", "\n".join(self.by(customer)))
        orders, rows = sums
        bought = Counter({name: int(n) for name, n in re.findall(r"'(\w+)': (\d+)", rows)})
        assert bought.total() == int(orders)
        return bought

    def ledger(self):
        """(orders that were executed, executions more than once)"""
        last = self.by("ledger")[-1]
        return tuple(map(int, re.match(r"(\d+) orders executed, and (\d+) times", last).groups()))


def test_direct():
    played = Played("direct")
    bought = played.bought("ann")
    assert bought.keys() == {"shop"} and played.ledger() == (bought.total(), 0)


@pytest.mark.slow
def test_workers_of_a_queue_come_go_and_die_under_load():
    played = Played("queue")
    bought = {name: played.bought(name) for name in ("ann", "bob", "zoe")}
    assert all(rows.total() >= 400 for rows in bought.values())
    providers = sum(bought.values(), Counter())
    assert providers.keys() == {"first", "second", "third"}
    orders, again = played.ledger()
    assert orders <= providers.total() and again >= 1
    assert any("asking again" in line for line in played.by("zoe"))


def test_failover_by_priority_from_a_cheap_provider_to_a_dear_one_and_back():
    played = Played("failover")
    assert played.bought("ann").keys() == {"cheap", "dear"}
    moves = [line.split()[0] for line in played.by("ann") if line.startswith("Failed")]
    assert moves[-4:] == ["FailedOver", "FailedBack"] * 2
    assert played.ledger()[1] >= 1


def test_an_exchange_finds_the_lowest_price_and_holds_orders_with_a_limit():
    played = Played("exchange")
    assert played.bought("carl") == {"error": 1}
    assert played.bought("dora") == {"bargain": 5}
    assert played.bought("ann").keys() <= {"cheap", "bargain"}


def test_a_chain_fails_over_behind_the_customers_back():
    played = Played("chain")
    assert played.bought("ann").keys() == {"cheap", "dear"}
    moves = [line.split()[0] for line in played.by("east") if line.startswith("Failed")]
    assert moves[-2:] == ["FailedOver", "FailedBack"]


@pytest.mark.slow
def test_a_loop_is_stopped_by_the_hop_limit():
    played = Played("loop")
    assert played.bought("ann") == {"error": 1}
    assert any("hop_limit" in line for name in ("north", "south") for line in played.by(name))


def test_providers_and_customers_of_three_kinds():
    played = Played("mixed")
    for name in ("buyer", "buyer_pynng", "buyer_pyzmq"):
        assert played.bought(name).keys() == {"seller", "seller_pynng", "seller_pyzmq"}


@pytest.mark.slow
def test_a_provider_that_is_a_service_of_a_cluster():
    played = Played("cluster")
    bought = played.bought("ann") + played.bought("bob")
    assert bought.keys() == {"plain", "first", "second", "third"}
    orders, again = played.ledger()
    assert orders <= bought.total()
