"""python -m mqcore.zmq program.py: a program written for pyzmq, as it is, over mqcore."""

from __future__ import annotations

import sys

USAGE = """usage: python -m mqcore.zmq program.py [argument ...]
       python -m mqcore.zmq -m module [argument ...]
       python -m mqcore.zmq --check program.py ...

The first two run a program whose `import zmq` is mqcore.zmq, in its child processes too. --check
reads programs and prints the names that differ; the exit status is 1 if there are any.
"""


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        print(USAGE, end="")
        return 0 if arguments and arguments != ["-m"] else 2
    if arguments[0] == "--check":
        from mqcore.zmq.check import check

        lines = [line for path in arguments[1:] for line in check(path)]
        print("\n".join(lines) or "nothing differs")
        return 1 if lines else 0
    from mqcore.zmq.run import run

    run(arguments[0], arguments[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
