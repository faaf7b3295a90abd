"""CURVE certificates in files, in CZMQ's format, which pyzmq and others also read.

    client.key          the public key and metadata about its owner; give it to anyone
    client.key_secret   the same and the secret key; keep it to yourself

The format is ZPL (RFC 4): indented sections, `name = "value"`. A secret file that other users can
read is refused, because its key may have leaked.
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
from typing import Any

from mqcore.errors import OptionError, UsageError
from mqcore.keys import KeyPair, key_bytes

_log = logging.getLogger("mqcore")
SECRET = "_secret"  # appended to the name of the public file
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
    """A key pair in Z85. `secret` is "" in a public certificate."""

    public: str
    secret: str = field(default="", repr=False)
    metadata: Mapping[str, str] = field(default_factory=dict)


def save_certificate(path: str | os.PathLike[str], keys: KeyPair,
                     metadata: Mapping[str, str] | None = None) -> tuple[Path, Path]:
    """Write the public certificate to `path` and the secret one beside it, with "_secret" appended
    to its name and readable by its owner only. Creates missing folders. Returns both paths.
    FileExistsError if a file exists, so that no key is lost; OptionError for metadata that the
    format cannot hold."""
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
    """Create a file that never has wider permissions than `mode`."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)


def load_certificate(path: str | os.PathLike[str]) -> Certificate:
    """Read one file. OptionError if it is not a certificate, or if it is secret and other users can
    read it. OSError if it cannot be read."""
    return read_certificate(path, private=True)


def read_certificate(path: str | os.PathLike[str], private: bool) -> Certificate:
    """load_certificate(). `private`: refuse a secret file that others can read; else warn."""
    with open(_path("path", path), encoding="utf-8") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        found = _parse(file.read(), path)
    keys = found.get("curve", {})
    if "public-key" not in keys:
        raise OptionError(f"{os.fspath(path)} is not a certificate: it has no public-key")
    secret = keys.get("secret-key", "")
    if secret and mode & 0o077:
        told = f"others can read the secret key in {os.fspath(path)} (mode {mode:03o})"
        hint = f"generate a new key; if nobody can have read it: chmod 600 {os.fspath(path)}"
        if private:
            raise OptionError(told, hint=hint)
        _log.warning("%s; %s", told, hint)
    for name, key in (("public-key", keys["public-key"]), ("secret-key", secret)):
        if key:
            key_bytes(key, f"the {name} in {os.fspath(path)}")
    return Certificate(keys["public-key"], secret, found.get("metadata", {}))


def load_certificates(folder: str | os.PathLike[str]) -> dict[str, str]:
    """The public keys of all *.key files in a folder, mapped to the file names without the suffix,
    as `Curve(allow=...)` takes them. Secret files (*.key_secret) are not opened. OptionError if
    there are no such files, because a server would then accept no client."""
    paths = sorted(Path(_path("folder", folder)).glob("*.key"))
    if not paths:
        there = "has no *.key files" if Path(folder).is_dir() else "is not a folder"
        raise OptionError(f"{os.fspath(folder)} {there}",
                          hint=f"`mq keygen {Path(folder, 'ann.key')}` makes one")
    return {load_certificate(path).public: path.stem for path in paths}


def _path(name: str, given: Any) -> Any:
    if not isinstance(given, str | os.PathLike):
        raise UsageError(f"{name} must be a str or a path, not {type(given).__name__}")
    return given


def _parse(text: str, path: str | os.PathLike[str]) -> dict[str, dict[str, str]]:
    """The sections and their values; comments and empty lines are skipped."""
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
