"""The command `mq`, also as `python -m mqcore` for where scripts are not on the PATH."""

import sys
from importlib.util import find_spec
from typing import NoReturn

NEEDED = ("click", "rich")


def main() -> NoReturn:
    for name in NEEDED:
        if find_spec(name) is None:
            sys.exit(f"mq: this command needs the package {name}. Install it with: "
                     'pip install "mqcore[cli]"')
    from mqcore.cli import main

    main()


if __name__ == "__main__":
    main()
