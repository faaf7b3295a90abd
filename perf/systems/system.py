"""What brokers.py asks of a system: a broker, a producer, a consumer, and what it promises.

A `System` is made in the process of an end, where it connects, and in the runner, where it starts
the broker. Bodies are handed over in lists of at most BATCH; a client that has a call for many
messages uses it, and `path` says so.
"""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pairs import installed

BATCH = 100     # messages that a producer gets at once, and a consumer acknowledges at once
WINDOW = 1000   # messages without a confirmation, where a client lets its user choose
TCP = "tcp://127.0.0.1:0"

#: called with each body; True: that was the last one
Take = Callable[[Any], bool]


class Started(NamedTuple):
    """A broker that runs: where, and its process."""

    url: str
    pid: int


class System:
    """One candidate. `group` is a key of systems.GROUPS: only rows of one group are comparable."""

    name = ""
    group = ""
    durability = ""         # what survives what
    path = ""               # the client's way that is used here
    modules: tuple[str, ...] = ()       # packages of the client
    programs: tuple[str, ...] = ()      # of the broker, below brokers.ROOT
    packages: tuple[str, ...] = ()      # Debian's, of the broker
    distributions: tuple[str, ...] = () # PyPI's, of the client
    confirms = True         # finish() waits for confirmations of the broker
    loads = True            # takes part in the rows of offered loads

    def __init__(self, url: str = "") -> None:
        self.url = url

    @classmethod
    def missing(cls) -> str:
        """Why it cannot take part, or ""."""
        for module in cls.modules:
            if importlib.util.find_spec(module) is None:
                return f"the Python package {module} is missing"
        if cls.programs:
            from systems.started import absent

            return absent(cls.programs)
        return ""

    @classmethod
    def versions(cls) -> str:
        found = [f"{name} {installed(name)}" for name in cls.distributions]
        if cls.packages:
            from systems.started import version

            found = [f"{name} {version(name)}" for name in cls.packages] + found
        return ", ".join(found)

    @classmethod
    @contextlib.contextmanager
    def broker(cls, folder: Path) -> Iterator[Started | None]:
        """Its broker, while it runs; None: it has none."""
        yield None

    # -- the consumer's end --

    def listen(self) -> str:
        """Be ready to receive; the address for the producer."""
        raise NotImplementedError

    def consume(self, take: Take) -> None:
        """Hand bodies over until `take` returns True. It is called again for the next figure."""
        raise NotImplementedError

    # -- the producer's end --

    def connect(self) -> None:
        raise NotImplementedError

    def send(self, bodies: list[bytes]) -> None:
        """Give them to the client. It may wait: for space, or for confirmations."""
        raise NotImplementedError

    def push(self) -> None:
        """Nothing follows for a while: what was given is to leave this process now."""

    def finish(self) -> None:
        """Until all that was sent is confirmed, where the system confirms."""

    def close(self) -> None:
        pass
