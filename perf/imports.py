"""How long `import mqcore` takes beside `import zmq`, each in a fresh interpreter.

    python perf/imports.py [--rounds 30]

Rounds alternate, and the shortest of each is taken: what other programs of the machine do can only
lengthen a run. The time of an interpreter that imports nothing is printed too, and left in.
"""

import argparse
import os
import subprocess
import sys
import time

PROGRAMS = {
    "nothing": "pass",
    "zmq": "import zmq",
    "mqcore": "import mqcore",
    "zmq, a socket": "import zmq; zmq.Context().socket(zmq.PULL)",
    "mqcore, a socket": "import mqcore; mqcore.Pull()",
}


# installed packages have bytecode; a tree that is installed editable may keep its own
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name != "PYTHONDONTWRITEBYTECODE"}


def seconds(program: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, stdin=subprocess.DEVNULL,
                   env=ENVIRONMENT)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    for program in PROGRAMS.values():
        seconds(program)  # compiles what has no bytecode yet
    best = dict.fromkeys(PROGRAMS, float("inf"))
    for _ in range(rounds):
        for name, program in PROGRAMS.items():
            best[name] = min(best[name], seconds(program))
    for name, took in best.items():
        print(f"{name:<18} {took * 1000:6.1f} ms")
    print(f"import mqcore / import zmq: {best['mqcore'] / best['zmq']:.2f}")
    print(f"with a socket: {best['mqcore, a socket'] / best['zmq, a socket']:.2f}")


if __name__ == "__main__":
    main()
