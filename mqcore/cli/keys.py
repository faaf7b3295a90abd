"""Whose key or password a command shows, and whose it wants: options for PLAIN and CURVE.

`--server-key` makes a CURVE client, `--key` alone a CURVE server, `--user` a PLAIN client. Secrets
are in files, not in arguments, which everybody on the machine can read.
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
                 help="PLAIN: a file whose first line is the password."),
)
SERVER = (
    click.option("--allow", metavar="FILE|FOLDER|any",
                 help="CURVE, with --key alone: the certificates of the clients that are accepted; "
                      "`any` accepts every key."),
)
TLS = (
    click.option("--tls-key-password-file", type=FILE, metavar="FILE",
                 help="TLS: a file whose first line opens the encrypted key of -o tls_key=..."),
)
NAMES = ("server_key", "key", "user", "password_file", "allow")


def public_key(given: str) -> str:
    """A key as it is, or the one in a file of that name."""
    return mq.load_certificate(given).public if Path(given).is_file() else given


def secret_key(path: Path) -> str:
    found = mq.load_certificate(path).secret
    if not found:
        raise click.BadParameter(f"{path} has no secret key; {path}{'_secret'} may be meant",
                                 param_hint="--key")
    return found


def allowed(given: str) -> Any:
    path = Path(given)
    if given == "any":
        return mq.ANY
    if not path.exists():
        raise click.BadParameter(f"{path} does not exist", param_hint="--allow")
    if path.is_dir():
        return mq.load_certificates(path)
    return {mq.load_certificate(path).public: path.stem}


def first_line(path: Path) -> str:
    lines = path.read_text().splitlines()
    return lines[0] if lines else ""


def security_of(server_key: str | None = None, key: Path | None = None, user: str | None = None,
                password_file: Path | None = None, allow: str | None = None
                ) -> mq.Security | None:
    """What the options come to; None: nothing was given."""
    if user is not None:
        if server_key or key or allow:
            raise click.UsageError("--user is PLAIN's; --server-key, --key and --allow are CURVE's")
        return mq.Plain(user, first_line(password_file) if password_file else "")
    if password_file:
        raise click.UsageError("--password-file wants --user")
    if allow and (server_key or key is None):
        raise click.UsageError("--allow is for a server, which has --key and no --server-key")
    secret = None if key is None else secret_key(key)
    if server_key is not None:
        return mq.Curve(public_key(server_key), secret_key=secret)
    if secret is None:
        return None
    if allow is None:
        raise click.UsageError("--key alone is a server's; add --server-key, or state with --allow "
                               "FILE|FOLDER which clients it accepts (--allow any: every key)")
    return mq.Curve(secret_key=secret, allow=allowed(allow))


def _taken(rows: tuple[Any, ...], function: Callable[..., Any]) -> Callable[..., Any]:
    for row in reversed(rows):
        function = row(function)
    return function


def _found(given: dict[str, Any]) -> mq.Security | None:
    """Takes the options out of what a command was given."""
    try:
        return security_of(**{name: given.pop(name) for name in NAMES if name in given})
    except mq.OptionError as error:
        raise click.UsageError(str(error)) from None


def _completed(given: dict[str, Any], security: mq.Security | None) -> dict[str, Any]:
    """Arguments of a command, with what the files hold among its `options`."""
    options = dict(given["options"])
    path = given.pop("tls_key_password_file")
    if path is not None:
        options["tls_key_password"] = first_line(path)
    if security is not None:
        options["security"] = security
    return {**given, "options": options}


def for_sockets(function: Callable[..., Any]) -> Callable[..., Any]:
    """A command with `options` for its sockets gets `security` among them."""
    @functools.wraps(function)
    def command(**given: Any) -> Any:
        return function(**_completed(given, _found(given)))

    return _taken((*CLIENT, *SERVER, *TLS), command)


def for_client_sockets(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same for a command whose sockets are clients only."""
    @functools.wraps(function)
    def command(**given: Any) -> Any:
        return function(**_completed(given, _client(given)))

    return _taken((*CLIENT, *TLS), command)


def _client(given: dict[str, Any]) -> mq.Security | None:
    security = _found(given)
    if security is not None and security.server:
        raise click.UsageError("--key alone is a server's; add --server-key")
    return security


def for_a_client(function: Callable[..., Any]) -> Callable[..., Any]:
    """A command gets `security`, a client's or None."""
    @functools.wraps(function)
    def command(**given: Any) -> Any:
        return function(security=_client(given), **given)

    return _taken(CLIENT, command)
