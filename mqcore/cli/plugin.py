"""`mq plugin new`: create a distribution with a transport, a filter or a pattern.

The generated code works and passes its test suite, and the author then changes it method by method.
The files are templates (string.Template) under templates/: a folder for each kind and each way of
building.
"""

from __future__ import annotations

import re
from importlib import metadata
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template
from typing import NamedTuple

import click

import mqcore as mq
from mqcore.cli.common import note

NAME = re.compile(r"[a-z][a-z0-9]{0,19}")


class Kind(NamedTuple):
    """One kind of plug-in, in one language."""

    folders: tuple[str, ...]  # of templates
    group: str  # of entry points
    attribute: str
    what: str
    extension: str = ""  # the compiled module, if any
    python: bool = True  # has a module in Python


KINDS = {
    "stream": Kind(("python", "stream"), "mqcore.transports", "transport", "a transport"),
    "filter": Kind(("python", "filter"), "mqcore.filters", "filter", "a filter"),
    "engine": Kind(("cython", "engine"), "mqcore.transports", "transport", "a message engine",
                   "{module}_engine"),
    "pattern": Kind(("python", "pattern"), "mqcore.protocols", "{Class}", "a pattern"),
    "pattern-cython": Kind(("cython", "pattern_cython"), "mqcore.protocols", "pattern",
                           "a pattern", "{module}", python=False),
}


@click.group()
def plugin() -> None:
    """Create a transport, a filter or a pattern of your own.

    \b
    A transport that installs and passes its suite, ready for your changes:
      mq plugin new carrier --kind stream
    """


def _has(wanted: str) -> bool:
    """Whether the distribution is installed, and new enough for `pip --no-build-isolation`."""
    name, _, least = wanted.partition(">=")
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return not least or int(found.partition(".")[0]) >= int(least)


@plugin.command()
@click.argument("name")
@click.option("--kind", type=click.Choice(["stream", "filter", "engine", "pattern"]), required=True,
              help="A stream over a descriptor, a filter over it, a message engine, a pattern.")
@click.option("--cython", is_flag=True, help="Write a pattern in Cython; an engine always is.")
@click.option("--into", type=click.Path(file_okay=False, path_type=Path), default=Path("."),
              help="Where to create the folder NAME.  [default: here]")
def new(name: str, kind: str, cython: bool, into: Path) -> None:
    """Create the folder NAME: a distribution with a plug-in of that name and its tests.

    NAME is the scheme in URLs ("carrier" for carrier://...), or the pattern's name.

    \b
    Create, install and test a transport:
      mq plugin new carrier --kind stream
      pip install --no-build-isolation ./carrier
      python -m pytest carrier/tests
    """
    if not NAME.fullmatch(name):
            raise click.UsageError(f"{name!r} is not a valid name: use up to 20 lower-case letters "
                                   "and digits, a letter first")
    chosen = KINDS.get(f"{kind}-cython" if cython else kind)
    if chosen is None:
        raise click.UsageError(f"--kind {kind} does not support --cython")
    refuse_taken(name, chosen)
    folder = into / name
    if folder.exists():
        raise click.UsageError(f"{folder} already exists: choose another NAME or --into")
    for path in write(name, chosen, folder):
        click.echo(path)
    where = folder if folder.is_absolute() else f"./{folder}"
    note(f"next: pip install --no-build-isolation {where}, then python -m pytest {where}/tests")
    missing = [extra for extra, needed in (("plugins", ("setuptools>=77", "cython>=3")),
                                           ("testing", ("hypothesis", "pytest")))
               if not all(map(_has, needed))]
    if missing:
        note(f'first: pip install "mqcore[{",".join(missing)}]"')


def refuse_taken(name: str, kind: Kind) -> None:
    """Refuse a name that is in use: the registry would refuse both plug-ins."""
    groups = {"mqcore.protocols": mq.patterns, "mqcore.filters": mq.filters}
    for info in groups.get(kind.group, lambda: [*mq.transports(), *mq.resolvers()])():
        if info.name == name:
            raise click.UsageError(f"{name!r} is taken by {info.distribution}: choose another NAME")


def write(name: str, kind: Kind, folder: Path) -> list[Path]:
    """Fill in the templates and return the created files."""
    module = f"mqcore_{name}"
    extension = kind.extension.format(module=module)
    facts = {
        "name": name,
        "Class": name.capitalize(),
        "NAME": name.upper(),
        "module": module,
        "distribution": f"mqcore-{name}",
        "description": f"{kind.what} for mqcore: {name}",
        "group": kind.group,
        "attribute": kind.attribute.format(Class=name.capitalize()),
        "extension": extension,
        "py_modules": f'"{module}"' if kind.python else "",
    }
    made = []
    for source in kind.folders:
        for parts, text in templates(files("mqcore.cli") / "templates" / source):
            names = [part.replace("extension", extension).replace("module", module)
                     for part in parts]
            path = folder.joinpath(*names)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(Template(text).substitute(facts))
            made.append(path)
    return made


def templates(folder: Traversable,
              above: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], str]]:
    """(path without ".in", text) of each template below a folder."""
    found = []
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            found += templates(item, (*above, item.name))
        elif item.name.endswith(".in"):
            found.append(((*above, item.name.removesuffix(".in")), item.read_text()))
    return found
