"""What is bought and sold here, whatever library carries it.

An order is text: `ann-7 add 2 3`, if need be with ` max 4 for 5`: for at most 4, within 5 seconds.
The answer is `ann-7 5 cheap 2`: the sum, who sold it, for how much; or `ann-7 error: TEXT`.
"""

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

env = os.environ.get
LIMIT = f" max {env('LIMIT')} for {env('WITHIN', '5')}" if env("LIMIT") else ""


def execute(order: bytes, name: str, price: str) -> bytes:
    """What a provider does. It takes WORK seconds."""
    time.sleep(float(env("WORK", "0")))
    number, *words = order.decode(errors="replace").split()[:4] or ["?"]
    try:
        verb, a, b = words
        if verb == "add":
            return f"{number} {int(a) + int(b)} {name} {price}".encode()
    except ValueError:
        pass
    return f"{number} error: I add two integers".encode()


def shop(name: str, orders: int, ask: Callable[[bytes], bytes]) -> None:
    """What a customer does: one order after the other, until told to stop if `orders` is 0. `ask`
    gives one order and returns its answer."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    bought: Counter[str] = Counter()
    spent = given = 0
    while not stopped.is_set() and (orders == 0 or given < orders):
        number, right = f"{name}-{given}", str(2 * given + 1)
        answer = ask(f"{number} add {given} {given + 1}{LIMIT}".encode()).decode()
        given += 1
        if answer.startswith(f"{number} error: "):
            print(answer, flush=True)
            bought["error"] += 1
        else:
            same, result, provider, price = answer.split()
            if (same, result) != (number, right):
                sys.exit(f"{number} should be {right}, and was answered with {answer!r}")
            bought[provider] += 1
            spent += int(price)
        if given == 1 or given % 100 == 0:
            print(f"{given} orders", flush=True)
    print(f"{given} orders, each answered:", dict(sorted(bought.items())), f"for {spent}")
