"""service.py with pynng; the same environment, except SLOW.

    NAME=upper python pynng_service.py
"""

import os
import threading
from collections.abc import Callable

import pynng

WORK: dict[str, Callable[[bytes], bytes]] = {
    "upper": bytes.upper,
    "reverse": lambda text: text[::-1],
    "length": lambda text: b"%d" % len(text),
}


def serve(server: pynng.Rep0, name: str, done: list[int]) -> None:
    while True:
        text = server.recv()
        done[0] += 1
        server.send(WORK[name](text))


def main(name: str, url: str, surveys: str) -> None:
    done = [0]
    with pynng.Rep0() as server, pynng.Respondent0() as directories:
        url = server.listen(url).url
        threading.Thread(target=serve, args=(server, name, done), daemon=True).start()
        directories.dial(surveys, block=False)
        print(f"{name}|{url}", flush=True)
        while True:
            question = directories.recv()
            if question == b"who are you?":
                directories.send(f"{name}|{url}".encode())
            elif question == b"how busy are you?":
                directories.send(f"{url}|{done[0]}".encode())


if __name__ == "__main__":
    env = os.environ.get
    try:
        main(
            env("NAME", "upper"),
            env("URL", "tcp://127.0.0.1:0"),
            env("SURVEYS", "tcp://127.0.0.1:5600"),
        )
    except KeyboardInterrupt:
        pass
