"""Rights: which topics a user may read from a journal server and write through a device, and
which consumer groups it may commit. They go by `Peer.user`, which authentication gives, or by what
a function says of a peer.
"""

from __future__ import annotations

import fnmatch
import functools
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mqcore.errors import OptionError

OTHERS = "*"            # in a table of users: everybody else
KEYS = ("read", "commit", "write")
ASKED = 10_000          # senders of a device whose rights are remembered
_log = logging.getLogger("mqcore.journal")


@dataclass(frozen=True)
class Rights:
    """What a user may do. Each is one pattern or several, as in a shell: `*` is any text, `?` a
    character, `[ab]` one of these. The default is nothing.

    read: topics, which are also all that it sees in a list. commit: consumer groups, of topics
    that it may read, if the server has groups=True. write: topics that a device may store its
    messages in (`mqcore.device(front, writer, rights=...)`). OptionError: these are not patterns.
    """

    read: tuple[str, ...] = ()
    commit: tuple[str, ...] = ()
    write: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in KEYS:
            given = getattr(self, name)
            patterns = (given,) if isinstance(given, str) else given
            if not isinstance(patterns, (tuple, list, set, frozenset)) \
                    or not all(isinstance(pattern, str) for pattern in patterns):
                raise OptionError(f"{name}={given!r}",
                                  hint='give a pattern or a tuple of them: ("orders", "log-*")')
            object.__setattr__(self, name, tuple(patterns))

    def covers_topic(self, topic: str) -> bool:
        return _fits(topic, self.read)

    def covers_group(self, group: str) -> bool:
        return _fits(group, self.commit)

    def covers_write(self, topic: str) -> bool:
        return _fits(topic, self.write)


ALL = Rights("*", "*", "*")          # type: ignore[arg-type]
NONE = Rights()
Given = Mapping[str, Rights] | Callable[[Any], Rights | None] | None


@functools.lru_cache(maxsize=10_000)
def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def granting(given: Given) -> Callable[[Any], Rights]:
    """The rights of a peer, by what a server was given as rights=. OptionError: it is neither a
    table nor a function."""
    if callable(given):
        return functools.partial(_asked, given)
    if given is not None and not isinstance(given, Mapping):
        raise OptionError(f"rights={given!r}",
                          hint="give {user: journal.Rights(...)}, or a function of a peer")
    table = {OTHERS: ALL} if given is None else dict(given)
    for user, rights in table.items():
        if not isinstance(user, str) or not isinstance(rights, Rights):
            raise OptionError(f"rights= of user {user!r} is {rights!r}",
                              hint="give {user: journal.Rights(read=..., commit=...)}")
    others = table.get(OTHERS, NONE)
    return lambda peer: table.get(peer.user, others)


def _asked(ask: Callable[[Any], Rights | None], peer: Any) -> Rights:
    try:
        rights = ask(peer)
    except Exception:
        _log.exception("rights= failed for %s, which gets none", peer)
        return NONE
    if isinstance(rights, Rights):
        return rights
    if rights is not None:
        _log.error("rights= gave %r for %s, which gets none", rights, peer)
    return NONE


def writing(given: Given, topic: str | None) -> Callable[[Any, bytes], bool]:
    """Whether a peer may write a topic, by what a device was given as rights=. `topic`: the
    only one, whatever the second argument is. Asks once about each peer."""
    ask = granting(given)
    known: dict[int, Rights] = {}

    def may(peer: Any, name: bytes) -> bool:
        rights = known.pop(peer.id, None)
        if rights is None:
            rights = ask(peer)
            if len(known) >= ASKED:
                del known[next(iter(known))]    # its messages are the oldest
        known[peer.id] = rights
        return rights.covers_write(name.decode(errors="replace") if topic is None else topic)

    return may


def load(path: str | os.PathLike[str]) -> dict[str, Rights]:
    """The rights in a file in TOML: a table for each user, and ["*"] for everybody else.
    OptionError says what is wrong with it; OSError."""
    import tomllib

    with open(path, "rb") as file:
        try:
            tables = tomllib.load(file)
        except (ValueError, RecursionError) as error:     # also a number of 5,000 digits
            raise OptionError(f"{os.fsdecode(path)} cannot be read: {error}",
                              hint="it is TOML: a table for each user, with read = [...]") from None
    found = {}
    for user, table in tables.items():
        unknown = set(table) - set(KEYS) if isinstance(table, dict) else {user}
        if unknown:
            raise OptionError(f"{os.fsdecode(path)}: {min(unknown)!r} is not known",
                              hint="a user's table has read, commit and write, lists of patterns")
        try:
            found[user] = Rights(**table)
        except OptionError as error:
            raise OptionError(f"{os.fsdecode(path)}: user {user!r}: {error.text}",
                              hint=error.hint) from None
    return found
