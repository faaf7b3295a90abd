"""Who may use a gateway: bearer tokens with rights per route, origins of web pages, host names.

A page of any site can send requests to a server of this machine. Three checks stop it: the Host
header must name the gateway (a DNS name of the attacker that resolves to 127.0.0.1 does not), the
Origin header must be the gateway's own or a declared one, and a token may be demanded.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from mqcore.errors import OptionError, UsageError

SEND = "send"
"""The right to send messages, and requests."""
RECEIVE = "receive"
"""The right to receive messages."""
STATS = "stats"
"""The right to read `/-/stats`."""
RIGHTS = (SEND, RECEIVE, STATS)
LOOPBACK = ("localhost", "127.0.0.1", "::1")
HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]*)?")
LEAST = 16      # characters of a token


@dataclass(frozen=True)
class Token:
    """One line of a token file. `digest` is SHA-256 of the token; the token itself is not kept."""

    name: str
    digest: bytes
    rights: frozenset[tuple[str, str]]      # (right, path or "*")

    def may(self, right: str, path: str) -> bool:
        return (right, path) in self.rights or (right, "*") in self.rights


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def find(tokens: tuple[Token, ...], text: str) -> Token | None:
    """The token with this text. All are compared, each in constant time."""
    wanted, found = digest(text), None
    for token in tokens:
        if hmac.compare_digest(token.digest, wanted):
            found = token
    return found


def read_tokens(path: str | os.PathLike[str]) -> tuple[Token, ...]:
    """The tokens of a file: `NAME TOKEN RIGHT...` in each line, where a right is `all`, `send`,
    `receive`, `stats`, `send:/path` or `receive:/path`. OptionError for a mistake, UsageError if
    other users can read the file."""
    place = Path(path)
    try:
        with place.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise UsageError(f"other users can read the tokens in {place}",
                                 hint=f"chmod 600 {place}")
            text = file.read().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"cannot read the tokens in {place}: {error}") from None
    found: list[Token] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"{place}, line {number}"
        if len(words) < 3:
            raise OptionError(f"{where}: a token needs a name, its text and its rights",
                              hint="write NAME TOKEN RIGHT...")
        name, secret, *rights = words
        if len(secret) < LEAST:
            raise OptionError(f"{where}: the token of {name} has fewer than {LEAST} characters",
                              hint="make one with `openssl rand -hex 32`")
        if any(one.name == name or one.digest == digest(secret) for one in found):
            raise OptionError(f"{where}: the name {name}, or its token, is there twice")
        found.append(Token(name, digest(secret), _rights(rights, where)))
    if not found:
        raise OptionError(f"{place} has no token", hint="write NAME TOKEN RIGHT... in each line")
    return tuple(found)


def _rights(words: list[str], where: str) -> frozenset[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for word in words:
        right, colon, path = word.partition(":")
        if word == "all":
            found.update((one, "*") for one in RIGHTS)
        elif right in RIGHTS and (not colon or path.startswith("/")):
            found.add((right, path or "*"))
        else:
            raise OptionError(f"{where}: {word!r} is no right",
                              hint="rights are all, send, receive, stats, send:/path, "
                                   "receive:/path")
    return frozenset(found)


def origin(text: str) -> str:
    """A declared origin, checked. OptionError."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query \
            or "*" in text:
        raise OptionError(f"{text!r} is no origin",
                          hint="write the scheme, the host and the port, as in "
                               "https://app.example.org; there is no wildcard")
    return text.lower()


def host_name(text: str) -> str:
    """The name in a Host header, without the port; "" if it has none."""
    found = HOST.fullmatch(text)
    return found["name"].strip("[]").rstrip(".").lower() if found else ""


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def hosts_for(bound: str, named: tuple[str, ...]) -> frozenset[str] | None:
    """The names that a Host header may have; None: any. A loopback address has the names of this
    machine; another one has those that are named, or any."""
    if is_loopback(bound):
        return frozenset(map(str.lower, (*LOOPBACK, bound, *named)))
    return frozenset(map(str.lower, (bound, *named))) if named else None
