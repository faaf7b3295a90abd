"""Names that stand in this machine's own table: no name server has to be asked for them.

The C library reads `/etc/hosts` before it asks a name server if `/etc/nsswitch.conf` puts "files"
first among the sources of hosts (hosts(5), nsswitch.conf(5)). Both files are read again when they
have changed.
"""

from __future__ import annotations

import ipaddress
import os
from functools import lru_cache

HOSTS = "/etc/hosts"
SOURCES = "/etc/nsswitch.conf"


def known(host: str) -> bool:
    """Whether a look-up of this name ends in the machine's own table. Never blocks."""
    return (host.isascii() and host.lower() in _names(_stamp(HOSTS))
            and _files_first(_stamp(SOURCES)))


def _stamp(path: str) -> tuple[str, int, int, int]:
    """What changes if the file does."""
    try:
        found = os.stat(path)
    except OSError:
        return path, 0, 0, 0
    return path, found.st_mtime_ns, found.st_size, found.st_ino


def _lines(path: str) -> list[list[str]]:
    """The words of each line, without comments."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return [line.partition("#")[0].split() for line in file]
    except OSError:
        return []


@lru_cache(maxsize=2)
def _names(stamp: tuple[str, int, int, int]) -> frozenset[str]:
    return frozenset(name.lower() for words in _lines(stamp[0]) if words and _address(words[0])
                     for name in words[1:])


def _address(word: str) -> bool:
    """Whether the C library reads this line of the table; it passes over any other."""
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=2)
def _files_first(stamp: tuple[str, int, int, int]) -> bool:
    return any(words[:2] == ["hosts:", "files"] for words in _lines(stamp[0]))
