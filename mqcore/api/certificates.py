"""CURVE certificates in files, in CZMQ's format, which pyzmq and others read too.

    client.key          the public key and what is known of its owner, for everybody
    client.key_secret   the same with the secret key, for its owner alone

The format is ZPL (RFC 4): indented sections, `name = "value"`. A secret file that others can read
is refused: its key is known to whoever looked, so a new one is due.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mqcore.errors import OptionError
from mqcore.security import KeyPair, key_bytes

_log = logging.getLogger("mqcore")
SECRET = "_secret"  # behind the name of the public file
_LINE = re.compile(r"""^(?P<indent>\s*)(?P<name>[\w$./+@-]+)
                       (?:\s*=\s*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<bare>[^#]*?)))?
                       \s*(?:\#.*)?$""", re.VERBOSE)
_TEXT = """\
#   ****  Generated on {when} by mqcore  ****
#   ZeroMQ CURVE {kind} Certificate
#   {advice}

metadata
{metadata}curve
    public-key = "{public}"
"""
_PUBLIC = "Exchange it so that nobody can put another in its place."
_OWN = "DO NOT PROVIDE THIS FILE TO OTHER USERS nor change its permissions."


@dataclass(frozen=True)
class Certificate:
    """Keys in Z85; `secret` is "" in a public certificate."""

    public: str
    secret: str = field(default="", repr=False)
    metadata: Mapping[str, str] = field(default_factory=dict)


def save_certificate(path: str | os.PathLike[str], keys: KeyPair,
                     metadata: Mapping[str, str] | None = None) -> tuple[Path, Path]:
    """Write the public certificate to `path` and the secret one beside it, with "_secret" behind
    its name, readable by its owner alone; a folder that is missing is made. Returns both paths.
    FileExistsError rather than a key lost; OptionError for metadata that the format cannot
    hold."""
    key_bytes(keys.public, "the public key")
    key_bytes(keys.secret, "the secret key")
    rows = []
    for name, value in (metadata or {}).items():
        if not re.fullmatch(r"[\w./+@-]+", name) or '"' in value or "\n" in value:
            raise OptionError(f"a certificate cannot hold the metadata {name!r}: {value!r}",
                              hint='names have no spaces; values no " and no line breaks')
        rows.append(f'    {name} = "{value}"\n')
    facts = {"when": time.strftime("%Y-%m-%d %H:%M:%S"), "metadata": "".join(rows),
             "public": keys.public}
    open_file = Path(path)
    own = open_file.with_name(open_file.name + SECRET)
    open_file.parent.mkdir(parents=True, exist_ok=True)
    _write(own, 0o600, _TEXT.format(kind="**Secret**", advice=_OWN, **facts)
           + f'    secret-key = "{keys.secret}"\n')
    try:
        _write(open_file, 0o644, _TEXT.format(kind="Public", advice=_PUBLIC, **facts))
    except BaseException:
        own.unlink()
        raise
    return open_file, own


def _write(path: Path, mode: int, text: str) -> None:
    """A new file that was never readable by more than `mode` says."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)


def load_certificate(path: str | os.PathLike[str]) -> Certificate:
    """Read one file. OptionError if it is no certificate, or a secret one that others than its
    owner can read; OSError if it cannot be read at all."""
    return read_certificate(path, private=True)


def read_certificate(path: str | os.PathLike[str], private: bool) -> Certificate:
    """load_certificate(). `private`: a secret that others can read is refused, else warned of."""
    with open(path, encoding="utf-8") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        found = _parse(file.read(), path)
    keys = found.get("curve", {})
    if "public-key" not in keys:
        raise OptionError(f"{os.fspath(path)} is no certificate: it has no public-key")
    secret = keys.get("secret-key", "")
    if secret and mode & 0o077:
        told = f"others can read the secret key in {os.fspath(path)} (mode {mode:03o})"
        hint = f"make a new one, or, if nobody has: chmod 600 {os.fspath(path)}"
        if private:
            raise OptionError(told, hint=hint)
        _log.warning("%s; %s", told, hint)
    for name, key in (("public-key", keys["public-key"]), ("secret-key", secret)):
        if key:
            key_bytes(key, f"the {name} in {os.fspath(path)}")
    return Certificate(keys["public-key"], secret, found.get("metadata", {}))


def load_certificates(folder: str | os.PathLike[str]) -> dict[str, str]:
    """The public keys of all files *.key in a folder, each with its file's name without the ending:
    what `Curve(allow=...)` takes. Files of secrets (*.key_secret) are not opened. OptionError if
    there are none: a server would accept nobody."""
    paths = sorted(Path(folder).glob("*.key"))
    if not paths:
        there = "has no files *.key" if Path(folder).is_dir() else "is no folder"
        raise OptionError(f"{os.fspath(folder)} {there}",
                          hint=f"`mq keygen {Path(folder, 'ann.key')}` makes one")
    return {load_certificate(path).public: path.stem for path in paths}


def _parse(text: str, path: str | os.PathLike[str]) -> dict[str, dict[str, str]]:
    """Sections and what stands below them; comments and empty lines are passed over."""
    found: dict[str, dict[str, str]] = {}
    section: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None:
            raise OptionError(f"line {number} of {os.fspath(path)} is not readable as ZPL")
        if not match["indent"]:
            section = found.setdefault(match["name"], {})
            continue
        values = (match["double"], match["single"], match["bare"])
        section[match["name"]] = next((value for value in values if value is not None), "")
    return found
