"""The entry points that mqcore reads itself are those that importlib.metadata finds."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import zipfile
from ast import literal_eval
from importlib import metadata
from pathlib import Path

import pytest

from mqcore.spi import installed

GROUPS = ("mqcore.transports", "mqcore.filters", "mqcore.resolvers", "mqcore.protocols",
          "mqcore.strategies", "mqcore.bridges", "mqcore.monitors")
POINTS = """\
# a comment
[console_scripts]
tool = tool:main

[mqcore.transports]
carrier = pigeon.post:transport
; = nothing
spaced   =   pigeon.post : transport [feather]

[mqcore.filters]
whole = pigeon
"""


def install(folder: Path, entry: str, name: str, version: str, points: str = POINTS) -> None:
    place = folder / entry
    place.mkdir(parents=True)
    head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: of the description\n"
    (place / ("PKG-INFO" if entry.endswith(".egg-info") else "METADATA")).write_text(head)
    (place / "entry_points.txt").write_text(points)


def ours() -> set[tuple[str, ...]]:
    return {(point.group, point.name, point.value, point.distribution, point.version)
            for group in GROUPS for point in installed.entry_points(group)}


def theirs() -> set[tuple[str, ...]]:
    return {(group, point.name, point.value, point.dist.name, point.dist.version)
            for group in GROUPS for point in metadata.entry_points(group=group)}


def test_of_this_environment():
    assert ours() == theirs()
    assert ("mqcore.monitors", "agent") in {row[:2] for row in ours()}


@pytest.mark.parametrize("entries", [
    ["pigeon-1.0.dist-info"], ["pigeon-1.0.egg-info"], ["Pigeon_Post-1.0.dist-info"],
    ["pigeon.egg-info"], ["pigeon-1.0.DIST-INFO"]])
def test_of_a_distribution(tmp_path, monkeypatch, entries):
    before = ours()
    for entry in entries:
        install(tmp_path, entry, "pigeon-post", "1.0", POINTS.replace("; = nothing\n", ""))
    monkeypatch.syspath_prepend(tmp_path)
    assert ours() == theirs()
    assert {row[:2] for row in ours() - before} == {
        ("mqcore.transports", "carrier"), ("mqcore.transports", "spaced"),
        ("mqcore.filters", "whole")}


def test_the_first_on_the_path_hides_the_others(tmp_path, monkeypatch):
    install(tmp_path / "a", "pigeon_post-2.0.dist-info", "pigeon-post", "2.0")
    install(tmp_path / "b", "pigeon.post-1.0.dist-info", "pigeon.post", "1.0")
    monkeypatch.syspath_prepend(tmp_path / "b")
    monkeypatch.syspath_prepend(tmp_path / "a")
    monkeypatch.syspath_prepend(tmp_path / "none at all")
    assert {row[4] for row in ours() if row[1] == "carrier"} == {"2.0"}
    assert {row[4] for row in theirs() if row[1] == "carrier"} == {"2.0"}


def test_in_a_zip_archive(tmp_path):
    install(tmp_path / "tree", "pigeon-1.0.dist-info", "pigeon", "1.0", "[mqcore.filters]\np = q")
    archive = tmp_path / "pigeon.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for path in (tmp_path / "tree").rglob("*"):
            file.write(path, path.relative_to(tmp_path / "tree"))
    program = ("from mqcore.spi import installed; "
               "print([tuple(p[:5]) for p in installed.entry_points('mqcore.filters')])")
    # in a process of its own, since importlib.metadata keeps the archive open
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          check=True, env={**os.environ, "PYTHONPATH": str(archive)}).stdout
    assert ("p", "q", "mqcore.filters", "pigeon", "1.0") in literal_eval(said)


def test_of_an_importer_that_knows_distributions(tmp_path, monkeypatch):
    install(tmp_path, "pigeon-1.0.dist-info", "pigeon", "1.0", "[mqcore.filters]\np = q")

    class Importer:
        @staticmethod
        def find_spec(name, path=None, target=None):
            return None

        @staticmethod
        def find_distributions(context=None):
            if context.name is None:
                yield metadata.PathDistribution(tmp_path / "pigeon-1.0.dist-info")

    monkeypatch.setattr(sys, "meta_path", [Importer, *sys.meta_path])
    assert ("mqcore.filters", "p", "q", "pigeon", "1.0") in ours()


@pytest.mark.parametrize("value, found", [
    ("os.path", os.path), ("os:path.join", os.path.join), (" os : path [extra] ", os.path)])
def test_load(value, found):
    assert installed.load(value) is found


@pytest.mark.parametrize("value, error", [
    ("no_such_module:x", ModuleNotFoundError), ("os:no_such", AttributeError),
    ("os: :", AttributeError), ("", ValueError)])
def test_what_cannot_be_loaded(value, error):
    with pytest.raises(error):
        installed.load(value)


def test_without_descriptors_nothing_seems_absent(monkeypatch):
    """importlib.metadata takes a folder that it cannot open for an empty one."""
    def none(folder):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), folder)

    installed._all.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", none)
        with pytest.raises(OSError, match="Too many open files"):
            installed.entry_points("mqcore.transports")
    assert "tcp" in {point.name for point in installed.entry_points("mqcore.transports")}
