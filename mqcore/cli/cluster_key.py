"""`mq cluster key`: makes key files and changes them."""

from __future__ import annotations

import os
from typing import Any

import click

from mqcore.cli.common import note

ID = 16         # bytes of a node's id
FILE = click.argument("file", type=click.Path(dir_okay=False))


@click.group()
def key() -> None:
    """Make and change the key of a cluster.

    \b
    Rotation without a pause, with the file copied to all nodes after each step:
      mq cluster key add prod.key         all accept a new secret
      mq cluster key offer prod.key ID    all begin with it
      mq cluster key drop prod.key OLD    none accepts the old one
    """


def _load(path: str) -> Any:
    from mqcore.cluster.key import Key

    return Key.load(path)


def _save(changed: Any, path: str) -> None:
    changed.save(path)
    _print(changed)


def _print(shown: Any) -> None:
    for number, secret in enumerate(shown.secrets):
        click.echo(f"{'accept' if number else 'offer'} {secret.id} {secret.created}")
    for node in sorted(shown.banned):
        click.echo(f"ban {node.hex()}")


@key.command()
@FILE
def new(file: str) -> None:
    """Write a new key to FILE, which must not exist."""
    from mqcore.cluster.key import Key

    if os.path.exists(file):
        raise click.ClickException(f"{file} is there already; a key is not overwritten")
    _save(Key.generate(), file)


@key.command()
@FILE
def show(file: str) -> None:
    """Print the ids of the secrets, and bans. No secret is shown."""
    _print(_load(file))


@key.command()
@FILE
def add(file: str) -> None:
    """Accept a new secret as well."""
    changed = _load(file).accepting_new()
    _save(changed, file)
    note(f"copy {file} to all nodes, then: mq cluster key offer {file} {changed.newest}")


@key.command()
@FILE
@click.argument("secret")
def offer(file: str, secret: str) -> None:
    """Begin handshakes with the secret of this id."""
    _change(file, lambda loaded: loaded.offering(secret))


@key.command()
@FILE
@click.argument("secret")
def drop(file: str, secret: str) -> None:
    """Accept the secret of this id no longer."""
    _change(file, lambda loaded: loaded.without(secret))


@key.command()
@FILE
@click.argument("node")
def ban(file: str, node: str) -> None:
    """Keep the node of this id (32 hex digits) out, even with the key."""
    _change(file, lambda loaded: loaded.banning(_id_of(node)))


@key.command()
@FILE
@click.argument("node")
def pardon(file: str, node: str) -> None:
    """Let a banned node in again."""
    _change(file, lambda loaded: loaded.pardoning(_id_of(node)))


def _id_of(node: str) -> bytes:
    try:
        found = bytes.fromhex(node)
    except ValueError:
        found = b""
    if len(found) != ID:
        raise ValueError(f"{node!r} is no node's id: that has {2 * ID} hex digits, as "
                         "`mq cluster identity FILE` prints it")
    return found


def _change(file: str, change: Any) -> None:
    loaded = _load(file)
    try:
        changed = change(loaded)
    except (ValueError, KeyError) as error:
        raise click.ClickException(str(error)) from None
    _save(changed, file)
