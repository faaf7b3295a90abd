"""directory.py with pynng; the same environment, except EXPECT.

    python pynng_directory.py
"""

import itertools
import os
import threading
import time

import pynng

INTERVAL = float(os.environ.get("INTERVAL", "1"))
DEADLINE = float(os.environ.get("DEADLINE", "0.25"))


def ask(services: pynng.Surveyor0, question: bytes) -> list[str]:
    """One survey in a context of its own; it ends with a Timeout."""
    answers = set()
    with services.new_context() as line:
        line.send(question)
        try:
            while True:
                answers.add(line.recv().decode(errors="replace"))
        except pynng.Timeout:
            return sorted(answers)


def watch(services: pynng.Surveyor0, known: list[str]) -> None:
    for n in itertools.count(1):
        next_one = time.monotonic() + INTERVAL
        found = [line for line in ask(services, b"who are you?") if line.count("|") == 1]
        if found != known:
            for line in sorted(set(known) ^ set(found)):
                print("+" if line in found else "-", line)
            names = {line.split("|")[0] for line in found}
            print(f"survey {n}: {len(found)} services of {len(names)} names", flush=True)
        known[:] = found
        time.sleep(max(0.0, next_one - time.monotonic()))


def main(surveys: str, url: str) -> None:
    known: list[str] = []
    with pynng.Surveyor0(survey_time=int(DEADLINE * 1000)) as services, pynng.Rep0() as clients:
        print(services.listen(surveys).url, clients.listen(url).url, flush=True)
        threading.Thread(target=watch, args=(services, known), daemon=True).start()
        while True:
            verb, _, name = clients.recv().decode(errors="replace").partition(" ")
            if verb == "list":
                lines = list(known)
            elif verb == "find":
                offers = [line.split("|") for line in known]
                lines = [url for offered, url in offers if offered == name]
            elif verb == "busy":
                lines = ask(services, b"how busy are you?")
            else:
                lines = ["list, find NAME or busy, please"]
            clients.send("\n".join(lines).encode())


if __name__ == "__main__":
    env = os.environ.get
    try:
        main(env("SURVEYS", "tcp://127.0.0.1:5600"), env("URL", "tcp://127.0.0.1:5601"))
    except KeyboardInterrupt:
        pass
