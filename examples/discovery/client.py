"""Sends a piece of text to a live provider of a service, wherever that runs.

    python client.py NAME TEXT      use a provider that offers NAME
    python client.py                list all providers
    python client.py --ask TEXT     print the directory's answer to TEXT

Environment: DIRECTORY  address of the directory (tcp://127.0.0.1:5601)
             PATIENCE   seconds to wait for an answer (2)
"""

import os
import random
import sys

import mqcore as mq

DIRECTORY = os.environ.get("DIRECTORY", "tcp://127.0.0.1:5601")
PATIENCE = float(os.environ.get("PATIENCE", "2"))


def ask(url: str, text: str) -> str:
    with mq.Req(connect=url, wire="sp") as server:  # a provider that answers surveys speaks SP
        return server.request(text.encode(), timeout=PATIENCE).decode()


def use(name: str, text: str, tries: int = 5) -> str:
    for _ in range(tries):
        urls = ask(DIRECTORY, f"find {name}").split()
        if not urls:
            sys.exit(f"nobody offers {name}")
        try:
            return ask(random.choice(urls), text)
        except mq.Timeout:
            pass  # it has just died, and the next survey will find that out, too
    sys.exit(f"{tries} providers of {name} have not answered")


def main(*args: str) -> str:
    match args:
        case ["--ask", text]:
            return ask(DIRECTORY, text)
        case [name, text]:
            return use(name, text)
        case []:
            return ask(DIRECTORY, "list")
    sys.exit(__doc__)


if __name__ == "__main__":
    try:
        print(main(*sys.argv[1:]))
    except mq.Timeout as error:
        sys.exit(f"the directory does not answer: {error}")
