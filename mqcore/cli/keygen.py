"""`mq keygen`: a CURVE key pair, on the terminal or in certificate files."""

from __future__ import annotations

from pathlib import Path

import click

import mqcore as mq
from mqcore.cli.common import note


@click.command()
@click.argument("path", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--name", help="Who it is for: written into the files as metadata.")
def keygen(path: Path | None, name: str | None) -> None:
    """Make a key pair for CURVE.

    With PATH, the public certificate goes to PATH and the secret one to PATH_secret, which only its
    owner can read; a file that is there already is left alone. Without, both keys are printed.

    \b
    For a server and a client that it knows:
      mq keygen server.key
      mq keygen clients/ann.key --name Ann
    """
    keys = mq.curve_keypair()
    if path is None:
        click.echo(f"public  {keys.public}\nsecret  {keys.secret}")
        return
    try:
        public, secret = mq.save_certificate(path, keys, {"name": name} if name else None)
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from None
    click.echo(keys.public)
    note(f"{public} is for everybody, {secret} for its owner alone")
