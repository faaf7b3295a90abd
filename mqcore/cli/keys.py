"""Options for keys and passwords of PLAIN, CURVE and TLS.

`--server-key` makes a CURVE client, `--key` alone a CURVE server, `--user` a PLAIN client. Secrets
come from files, because every user of the machine can read command-line arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import mqcore as mq

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
CLIENT = (
    click.option("--server-key", metavar="KEY|FILE",
                 help="CURVE: the server's public key, or its certificate."),
    click.option("--key", type=FILE, metavar="FILE",
                 help="CURVE: our own secret certificate, as `mq keygen` writes it."),
    click.option("--user", metavar="NAME", help="PLAIN: our username."),
    click.option("--password-file", type=FILE, metavar="FILE",
                 help="PLAIN: a file with the password in its first line."),
)
SERVER = (
    click.option("--allow", metavar="FILE|FOLDER|any",
                 help="CURVE, with --key alone: the certificates of the accepted clients; `any` "
                      "accepts every key."),
)
TLS = (
    click.option("--tls-key-password-file", type=FILE, metavar="FILE",
                 help="TLS: a file with the passphrase of -o tls_key=... in its first line."),
)
NAMES = ("server_key", "key", "user", "password_file", "allow")


def public_key(given: str) -> str:
    """A public key: the text itself, or read from a file of that name."""
    return mq.security.load_certificate(given).public if Path(given).is_file() else given


def secret_key(path: Path) -> str:
    found = mq.security.load_certificate(path).secret
    if not found:
        raise click.BadParameter(f"{path} has no secret key; did you mean {path}{'_secret'}?",
                                 param_hint="--key")
    return found


def allowed(given: str) -> Any:
    path = Path(given)
    if given == "any":
        return mq.security.ANY
    if not path.exists():
        raise click.BadParameter(f"{path} does not exist", param_hint="--allow")
    if path.is_dir():
        return mq.security.load_certificates(path)
    return {mq.security.load_certificate(path).public: path.stem}


def first_line(path: Path) -> str:
    lines = path.read_text().splitlines()
    return lines[0] if lines else ""


def security_of(server_key: str | None = None, key: Path | None = None, user: str | None = None,
                password_file: Path | None = None, allow: str | None = None
                ) -> mq.security.Security | None:
    """The Security object of these options, or None if none was given."""
    if user is not None:
        if server_key or key or allow:
            raise click.UsageError("--user is for PLAIN; --server-key, --key, --allow for CURVE")
        return mq.security.Plain(user, first_line(password_file) if password_file else "")
    if password_file:
        raise click.UsageError("--password-file needs --user")
    if allow and (server_key or key is None):
        raise click.UsageError("--allow is for a server, which takes --key and no --server-key")
    secret = None if key is None else secret_key(key)
    if server_key is not None:
        return mq.security.Curve(public_key(server_key), secret_key=secret)
    if secret is None:
        return None
    if allow is None:
            raise click.UsageError("--key alone makes a server; add --server-key for a client, or "
                                   "--allow FILE|FOLDER with the clients (--allow any: all)")
    return mq.security.Curve(secret_key=secret, allow=allowed(allow))


def _taken(rows: tuple[Any, ...], function: Callable[..., Any]) -> Callable[..., Any]:
    for row in reversed(rows):
        function = row(function)
    return function


def _found(given: dict[str, Any]) -> mq.security.Security | None:
    """Remove these options from a command's arguments and convert them."""
    try:
        return security_of(**{name: given.pop(name) for name in NAMES if name in given})
    except mq.OptionError as error:
        raise click.UsageError(str(error)) from None


def _completed(given: dict[str, Any], security: mq.security.Security | None) -> dict[str, Any]:
    """The arguments of a command, with the contents of the files added to its `options`."""
    options = dict(given["options"])
    path = given.pop("tls_key_password_file")
    if path is not None:
        options["tls_key_password"] = first_line(path)
    if security is not None:
        options["security"] = security
    return {**given, "options": options}


def for_sockets(function: Callable[..., Any]) -> Callable[..., Any]:
    """For a command with socket `options`: add `security` to them."""
    @functools.wraps(function)
    def command(**given: Any) -> Any:
        return function(**_completed(given, _found(given)))

    return _taken((*CLIENT, *SERVER, *TLS), command)


def for_client_sockets(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a command that only has client sockets."""
    @functools.wraps(function)
    def command(**given: Any) -> Any:
        return function(**_completed(given, _client(given)))

    return _taken((*CLIENT, *TLS), command)


def _client(given: dict[str, Any]) -> mq.security.Security | None:
    security = _found(given)
    if security is not None and security.server:
        raise click.UsageError("--key alone makes a server; add --server-key")
    return security


def for_a_client(function: Callable[..., Any]) -> Callable[..., Any]:
    """Pass a client's `security` (or None) to the command."""
    @functools.wraps(function)
    def command(**given: Any) -> Any:
        return function(security=_client(given), **given)

    return _taken(CLIENT, command)
