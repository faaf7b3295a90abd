"""A service that is found by survey: it sends its name and address to any directory that asks.

    NAME=upper python service.py

Environment: NAME    its function: upper, reverse or length
             URL     where it serves (tcp://127.0.0.1:0, a free port)
             SURVEYS address of a directory's surveys (tcp://127.0.0.1:5600)
             SLOW    seconds before it answers a survey (0)
"""

import os
import threading
import time
from collections.abc import Callable

import mqcore as mq

WORK: dict[str, Callable[[bytes], bytes]] = {
    "upper": bytes.upper,
    "reverse": lambda text: text[::-1],
    "length": lambda text: b"%d" % len(text),
}


def serve(server: mq.Rep, work: Callable[[bytes], bytes], done: list[int]) -> None:
    for text in server:
        done[0] += 1
        server.send(work(text))


def main(name: str, url: str, surveys: str, slow: float) -> None:
    done = [0]
    with mq.Rep(bind=url) as server, mq.Respondent(connect=surveys) as directories:
        url = server.endpoints[0].url
        threading.Thread(target=serve, args=(server, WORK[name], done)).start()
        print(f"{name}|{url}", flush=True)
        for question in directories:
            time.sleep(slow)
            if question == b"who are you?":
                directories.send(f"{name}|{url}".encode())
            elif question == b"how busy are you?":
                directories.send(f"{url}|{done[0]}".encode())
            # a provider that cannot answer stays silent: that is valid, too


if __name__ == "__main__":
    env = os.environ.get
    try:
        main(
            env("NAME", "upper"),
            env("URL", "tcp://127.0.0.1:0"),
            env("SURVEYS", "tcp://127.0.0.1:5600"),
            float(env("SLOW", "0")),
        )
    except KeyboardInterrupt:
        pass
