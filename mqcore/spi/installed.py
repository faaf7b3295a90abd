"""The entry points of what is installed.

`importlib.metadata` answers the same question, but importing it and reading all metadata as e-mails
takes 30 to 40 ms, more than a quarter of what a program needs until its first socket is bound. This
module reads only the files `entry_points.txt`, and of a distribution that has a group of ours the
lines with its name and version. It asks `importlib.metadata` where `sys.path` has something other
than folders (a zip archive, an egg), or an importer knows distributions of its own.

The formats: packaging.python.org, "Entry points specification" and "Recording installed projects".
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import PathFinder
from typing import Any, NamedTuple

OURS = "mqcore."
INFO = (".dist-info", ".egg-info")
ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError)


class EntryPoint(NamedTuple):
    """One entry point, and the distribution that brought it."""

    name: str
    value: str
    group: str
    distribution: str
    version: str
    load: Callable[[], Any]


def entry_points(group: str) -> list[EntryPoint]:
    """Those of one of mqcore's groups, as `sys.path` is now. OSError if the process is short of
    descriptors or memory, so that nothing seems absent that is there."""
    path = tuple(sys.path)
    return [point for point in _all(path, _is_plain(path)) if point.group == group]


def load(value: str) -> Any:
    """What "package.module:Name.attribute" names."""
    module, _, name = value.partition("[")[0].partition(":")
    found = importlib.import_module(module.strip())
    return functools.reduce(getattr, name.strip().split("."), found) if name else found


def _is_plain(path: tuple[str, ...]) -> bool:
    return not any(folder.lower().rstrip("/").endswith(".egg") or os.path.isfile(folder)
                   for folder in path) \
        and not any(finder is not PathFinder and hasattr(finder, "find_distributions")
                    for finder in sys.meta_path)


@functools.lru_cache(maxsize=1)
def _all(path: tuple[str, ...], plain: bool) -> list[EntryPoint]:
    """Of all groups at once: whichever is wanted, each distribution has to be looked at."""
    if not plain:
        return list(_by_importlib())
    seen: set[str] = set()
    return [point for folder in path for point in _in_folder(folder or ".", seen)]


def _by_importlib() -> Iterator[EntryPoint]:
    from importlib import metadata  # slow

    found = metadata.entry_points()
    for group in filter(lambda group: group.startswith(OURS), found.groups):
        for point in found.select(group=group):
            dist = point.dist
            yield EntryPoint(point.name, point.value, group, dist.name if dist else "(unknown)",
                             dist.version if dist else "", point.load)


def _in_folder(folder: str, seen: set[str]) -> Iterator[EntryPoint]:
    """A distribution counts once; the first on the path hides the others."""
    try:
        names = os.listdir(folder)
    except ABSENT:
        return
    for entry in names:
        if not entry.lower().endswith(INFO):
            continue
        place = os.path.join(folder, entry)
        key = _key(place, entry)
        if key in seen:
            continue
        seen.add(key)
        text = _read(os.path.join(place, "entry_points.txt"))
        if OURS in text:
            name, version = _who(place)
            yield from _points(text, name, version)


def _key(place: str, entry: str) -> str:
    """The distribution's name, as the name of its folder says it."""
    stem = os.path.splitext(entry)[0]
    name = stem.partition("-")[0] if "-" in stem else _who(place)[0]
    return re.sub(r"[-_.]+", "_", name).lower()


def _who(place: str) -> tuple[str, str]:
    """Name and version, of the head of the metadata."""
    text = _read(os.path.join(place, "METADATA")) or _read(os.path.join(place, "PKG-INFO"))
    head = dict(line.split(": ", 1) for line in text.split("\n\n")[0].splitlines()
                if line.startswith(("Name: ", "Version: ")))
    return head.get("Name", "(unknown)").strip(), head.get("Version", "").strip()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except ABSENT:
        return ""


def _points(text: str, distribution: str, version: str) -> Iterator[EntryPoint]:
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1]
        elif group.startswith(OURS) and "=" in line and not line.startswith("#"):
            name, _, value = (part.strip() for part in line.partition("="))
            yield EntryPoint(name, value, group, distribution, version,
                             functools.partial(load, value))
