"""One REP socket, answered by a pool of threads: a slow request does not hold up the others.

    pool.py [THREADS [CLIENTS [REQUESTS]]]

A thread gets a request of its own, and `reply()` answers just that one, so threads may finish in
any order. (With plain `recv` and `send` a REP socket serves one thread.)
"""

import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import mqcore as mq


def is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


def work(server: mq.Rep, done: "Counter[str]") -> None:
    """One thread of the pool, until the socket is closed."""
    for request in server.messages():
        request.reply(b"prime" if is_prime(int(request.body)) else b"composite")
        done[threading.current_thread().name] += 1


def ask(url: str, numbers: range) -> int:
    """One client: how many of its numbers are prime."""
    with mq.Req(connect=url) as client:
        return sum(client.request(str(n).encode(), timeout=10.0) == b"prime" for n in numbers)


def main(threads: int = 4, clients: int = 8, requests: int = 100) -> None:
    done: Counter[str] = Counter()
    with mq.Rep(bind="tcp://127.0.0.1:0") as server:
        url = server.endpoints[0].url
        pool = [
            threading.Thread(target=work, args=(server, done), name=f"thread {i}")
            for i in range(threads)
        ]
        for thread in pool:
            thread.start()
        with ThreadPoolExecutor(clients) as asking:
            ranges = [range(i * requests, (i + 1) * requests) for i in range(clients)]
            primes = sum(asking.map(ask, [url] * clients, ranges))
    for thread in pool:  # closing the socket has ended their loops
        thread.join()
    for name in sorted(done):
        print(f"{name}: {done[name]} answers")
    print(f"{primes} primes below {clients * requests}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
