"""One sdist and one wheel for a whole run of the tests, however many workers share it.

The first worker that asks builds them, under a lock in the folder that all workers of the run have
in common; the others wait and find them there. The wheel is made from the unpacked sdist, as pip
does it. What is taken from the tree is the C++ that Cython has generated from the same sources: a
file of it that is older than its sources is generated anew, and all of it is compiled.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from sources import ROOT

GENERATED = Path("build", "cython")
PLAIN = {"MQCORE_CFLAGS": "-O0 -g0", "MQCORE_ONLY": "", "MQCORE_IN_PLACE": ""}  # about contents


def build(*arguments: str | Path, cwd: Path) -> None:
    environment = {**os.environ, **PLAIN}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run([sys.executable, "-m", "build", "--no-isolation", *map(str, arguments)],
                          cwd=cwd, env=environment, stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def make(out: Path) -> None:
    """The sdist of the tree, and the wheel of that, into `out`."""
    build("--sdist", "--outdir", out, ROOT, cwd=out.parent)
    [sdist] = out.glob("mqcore-*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(out.parent, filter="tar")        # with the times of its files
    unpacked = out.parent / sdist.name.removesuffix(".tar.gz")
    for path in (ROOT / GENERATED).rglob("*.cpp"):
        copy = unpacked / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
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
