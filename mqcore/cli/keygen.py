"""`mq keygen`: create a CURVE key pair, on the terminal or in certificate files."""

from __future__ import annotations

from pathlib import Path

import click

import mqcore as mq
from mqcore.cli.common import note


@click.command()
@click.argument("path", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--name", help="The owner's name, stored in the files as metadata.")
def keygen(path: Path | None, name: str | None) -> None:
    """Create a key pair for CURVE.

    With PATH, write the public certificate to PATH and the secret one to PATH_secret, which only
    its owner can read. Existing files are never overwritten. Without PATH, print both keys.

    \b
    For a server and a client that it knows:
      mq keygen server.key
      mq keygen clients/ann.key --name Ann
    """
    keys = mq.security.curve_keypair()
    if path is None:
        click.echo(f"public  {keys.public}\nsecret  {keys.secret}")
        return
    try:
        public, secret = mq.security.save_certificate(path, keys, {"name": name} if name else None)
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from None
    click.echo(keys.public)
    note(f"{public} is public, keep {secret} to yourself")
