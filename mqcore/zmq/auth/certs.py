"""Certificates: mqcore's, with pyzmq's arguments, results and errors.

Unlike mqcore's own functions these replace files that are there, and read secret keys that others
can read, as programs written for pyzmq expect; the log "mqcore" warns of the latter.
"""

from __future__ import annotations

import os
from pathlib import Path

import mqcore as mq
from mqcore.certificates import SECRET, read_certificate
from mqcore.zmq.borrowed import lend
from mqcore.zmq.mechanism import curve_keypair


def create_certificates(key_dir: str | os.PathLike[str], name: str,
                        metadata: dict[str, str] | None = None) -> tuple[str, str]:
    """New keys in two files, name.key and name.key_secret. Their paths."""
    keys = mq.security.KeyPair(*(key.decode() for key in curve_keypair()))
    public = Path(key_dir) / f"{name}.key"
    for path in (public, public.with_name(public.name + SECRET)):
        path.unlink(missing_ok=True)
    made = mq.security.save_certificate(public, keys, metadata)
    return str(made[0]), str(made[1])


def load_certificate(filename: str | os.PathLike[str]) -> tuple[bytes, bytes | None]:
    """The public and the secret key of a file in Z85; None if it has no secret key. OSError if the
    file does not exist, ValueError if it has no public key."""
    if not Path(filename).exists():
        raise OSError(f"Invalid certificate file: {filename}")
    try:
        found = read_certificate(filename, private=False)
    except mq.OptionError as error:
        raise ValueError(f"No public key found in {filename}: {error.text}") from None
    return found.public.encode(), found.secret.encode() or None


def load_certificates(directory: str | os.PathLike[str] = ".") -> dict[bytes, bool]:
    """The public keys of all files *.key in a folder. OSError if there is none."""
    if not Path(directory).is_dir():
        raise OSError(f"Invalid certificate directory: {directory}")
    return {load_certificate(path)[0]: True for path in sorted(Path(directory).glob("*.key"))}


__all__ = ["create_certificates", "load_certificate", "load_certificates"]

__getattr__ = lend(__name__)
