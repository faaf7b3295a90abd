"""One sdist and one wheel for a whole run of the tests, however many workers share it.

The first worker that asks builds them, under a lock in the folder that all workers of the run have
in common; the others wait and find them there. The wheel is made from the unpacked sdist, as pip
does it. The tree lends it the C++ that Cython has generated from the same sources, and what was
compiled of it, except one extension of each folder: that one is compiled from the sdist. What is
older than its sources is made anew. (`make test-wheel` compiles all of it.)
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from sysconfig import get_config_var, get_platform

from sources import ROOT, module_of, shipped

SUFFIX = get_config_var("EXT_SUFFIX")
GENERATED = Path("build", "cython")
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", ".*_cache", ".hypothesis", "dist", "pipeline")
PASSING = shutil.ignore_patterns("*.pyc.*")     # there while Python writes a .pyc
PLAIN = {"MQCORE_CFLAGS": "-O0 -g0", "MQCORE_ONLY": "", "MQCORE_IN_PLACE": "",
         "MQCORE_TESTING": "", "MQCORE_SODIUM": ""}     # about contents


def build(*arguments: str | Path, cwd: Path) -> None:
    environment = {**os.environ, **PLAIN}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run([sys.executable, "-m", "build", "--no-isolation", *map(str, arguments)],
                          cwd=cwd, env=environment, stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def copy_of_tree(folder: Path) -> Path:
    """The tree with its litter, which no sdist may hold. An sdist is made in a folder that appears
    in the tree for a moment, and metadata are written there: other tests look at the tree."""
    def left_out(path: str, names: list[str]) -> set[str]:
        inside = Path(path).relative_to(ROOT).parts
        if inside == GENERATED.parts[:1]:
            return set(names) - {GENERATED.name}
        return PASSING(path, names) if inside else LEFT_OUT(path, names)
    return Path(shutil.copytree(ROOT, folder, symlinks=True, ignore=left_out))


def built() -> Iterator[tuple[Path, str]]:
    """Extensions in the tree and their places in a wheel, without the smallest of each folder."""
    folders: dict[Path, list[Path]] = {}
    for path in shipped(suffixes={".pyx"}):
        folders.setdefault(path.parent, []).append(path)
    for paths in folders.values():
        for path in sorted(paths, key=lambda path: path.stat().st_size)[1:]:
            extension = path.with_suffix(SUFFIX)
            if extension.exists():
                yield extension, module_of(path).replace(".", "/") + SUFFIX


def lend(path: Path, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, copy)


def make(out: Path) -> None:
    """The sdist of the tree, and the wheel of that, into `out`."""
    tree = copy_of_tree(out.parent / "tree")
    build("--sdist", "--outdir", out, tree, cwd=out.parent)
    shutil.rmtree(tree)
    [sdist] = out.glob("mqcore-*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(out.parent, filter="tar")        # with the times of its files
    unpacked = out.parent / sdist.name.removesuffix(".tar.gz")
    for path in (ROOT / GENERATED).rglob("*.c*"):
        lend(path, unpacked / path.relative_to(ROOT))
    compiled = unpacked / "build" / f"lib.{get_platform()}-{sys.implementation.cache_tag}"
    for path, name in built():
        lend(path, compiled / name)
    build("--wheel", "--outdir", out, unpacked, cwd=out.parent)
    shutil.rmtree(unpacked)


def shared_dist(temporary: Path) -> Path:
    """A folder with the sdist and the wheel. `temporary`: pytest's folder of this session."""
    if os.environ.get("PYTEST_XDIST_WORKER"):
        temporary = temporary.parent
    folder = temporary / "one-wheel"
    folder.mkdir(exist_ok=True)
    out, finished = folder / "dist", folder / "finished"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not finished.exists():
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir()
            make(out)
            finished.touch()
    return out
