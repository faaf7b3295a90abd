"""Make a virtual environment with mqcore in it, ready to run from the working tree.

    python3 tools/build.py [--venv .venv] [--group test] [--extra spark] [--testing]

Standard library only; the Makefile has run check.py before. Three steps, each left out if its
stamp says that nothing changed, so a second run needs no network and takes a tenth of a second:
  requirements   what pyproject.toml asks for: to build, to run, and the groups and extras named,
                 in the versions of tools/lock.txt
  extensions     build_ext in place; incremental, compiles on every core. --testing: also those
                 that only tests use
  installation   an editable one, for the entry points and for the mapping of transports/,
                 protocols/ and tests/native/ into mqcore; it has nothing to compile, the extensions
                 are there already. The module that maps, which each start of this Python imports,
                 is written anew: setuptools' own takes a third as long as all the rest of a start
"""

import argparse
import hashlib
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "tools" / "lock.txt"
FOLDERS = ("mqcore", "transports", "protocols", "tests/native")
FLAGS = ("MQCORE_CFLAGS", "MQCORE_LDFLAGS", "MQCORE_ONLY", "CC", "CXX", "CFLAGS", "CXXFLAGS")


def run(*command: object, **environment: str) -> None:
    result = subprocess.run(
        [str(word) for word in command], cwd=ROOT, stdin=subprocess.DEVNULL,
        env={**os.environ, **environment})
    if result.returncode:
        sys.exit(f"failed with {result.returncode}: {' '.join(map(str, command))}")


def digest(*parts: object) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part if isinstance(part, bytes) else str(part).encode())
        whole.update(b"\0")
    return whole.hexdigest()


def sources(*suffixes: str) -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*")
                  if path.suffix in suffixes)


FINDER = '''"""Finds the packages of a working tree; written by tools/build.py."""
import sys

FOLDERS = {folders!r}


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        folder = FOLDERS.get(name)
        if folder is None:
            return None
        from importlib.util import spec_from_file_location

        return spec_from_file_location(name, folder + "/__init__.py")


def install():
    if Finder not in sys.meta_path:
        sys.meta_path.append(Finder)
'''


class Stamp:
    """A file that holds the digest of what a step was made from."""

    def __init__(self, path: Path, *parts: object) -> None:
        self.path = path
        self.value = digest(*parts)

    @property
    def fresh(self) -> bool:
        return self.path.exists() and self.path.read_text() == self.value

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(self.value)


def make_venv(venv: Path) -> Path:
    python = venv / "bin" / "python"
    if python.exists():
        answer = subprocess.run(
            [python, "-c", "import sysconfig, pip; print(sysconfig.get_config_var('EXT_SUFFIX'))"],
            capture_output=True, text=True)
        if answer.stdout.strip() == sysconfig.get_config_var("EXT_SUFFIX"):
            return python
    shutil.rmtree(venv, ignore_errors=True)
    print(f"making {venv.name} with {sys.executable}", flush=True)
    try:
        import ensurepip  # noqa: F401  Debian packs it apart
    except ImportError:
        run(sys.executable, "-m", "venv", "--without-pip", venv)
        run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "pip")
    else:
        run(sys.executable, "-m", "venv", venv)
    return python


def of_group(name: str, groups: dict[str, list[Any]]) -> list[str]:
    """The requirements of a dependency group (PEP 735). pip reads groups since 25.1; Python 3.11 to
    3.13 bring older ones."""
    return [requirement for item in groups[name] for requirement in (
        [item] if isinstance(item, str) else of_group(item["include-group"], groups))]


def requirements(groups: list[str], extras: list[str]) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    for extra in extras:
        wanted += project["project"]["optional-dependencies"][extra]
    for group in groups:
        wanted += of_group(group, project["dependency-groups"])
    return sorted(set(wanted))


def install_requirements(python: Path, venv: Path, groups: list[str], extras: list[str]) -> None:
    wanted = requirements(groups, extras)
    stamp = Stamp(venv / f"stamp-requirements-{'-'.join(sorted(groups + extras)) or 'none'}",
                  *wanted, LOCK.read_bytes())
    if stamp.fresh:
        return
    print(f"installing {len(wanted)} requirements", flush=True)
    # compiling everything is a quarter of the time; what a program imports is compiled then
    run(python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "--no-compile",
        "--constraint", LOCK, *wanted)
    stamp.write()


def build_extensions(python: Path, venv: Path, testing: bool) -> None:
    flags = [f"{name}={os.environ.get(name, '')}" for name in FLAGS]
    made_by = [sysconfig.get_config_var("EXT_SUFFIX"), *flags, (ROOT / "setup.py").read_bytes()]
    inputs = sources(".pyx", ".pxd", ".h", ".hpp", ".cpp")
    tag = sysconfig.get_config_var("SOABI") or "python"
    how = Stamp(ROOT / "build" / f"stamp-flags-{tag}", *made_by)
    names = [path.relative_to(ROOT) for path in sources(".py", ".pyi")]  # build/layout shows them
    parts = [*made_by, *names, *(
        part for path in inputs for part in (path.relative_to(ROOT), path.read_bytes()))]
    library = Stamp(ROOT / "build" / f"stamp-build-{tag}", *parts)
    tests = Stamp(ROOT / "build" / f"stamp-build-{tag}-testing", *parts)
    if tests.fresh or library.fresh and not testing:
        return
    remove_orphans()
    print("building the extensions", flush=True)
    started = time.monotonic()
    other = how.path.exists() and not how.fresh  # built from the same sources in another way
    generated = f"build/cython{venv.name.removeprefix('.venv')}"
    run(python, "setup.py", "-q", "build_ext", "--inplace", *["--force"] * other,
        MQCORE_GENERATED=generated, MQCORE_TESTING=str(int(testing)),
        CYTHON_FORCE_REGEN=str(int(other)))
    print(f"built in {time.monotonic() - started:.0f} s", flush=True)
    how.write()
    (tests if testing else library).write()


def remove_orphans() -> None:
    """A module whose .pyx is gone must not live on as its old .so, here or in a wheel."""
    orphans = [path for path in sources(".so")
               if not path.with_name(path.name.split(".")[0] + ".pyx").exists()
               and path.name.split(".")[0] != "_cyutility"]  # Cython's own: see setup.py
    for path in orphans:
        path.unlink()
    if orphans:
        for folder in (ROOT / "build").glob("lib*"):
            shutil.rmtree(folder)


def install(python: Path, venv: Path) -> None:
    packages = sorted({path.parent.relative_to(ROOT) for path in sources(".py")})
    stamp = Stamp(venv / "stamp-install", ROOT, FINDER, *packages,
                  *((ROOT / name).read_bytes() for name in ("pyproject.toml", "setup.py")))
    if stamp.fresh:
        return
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index",
        "--no-build-isolation", "--no-deps", "-e", ".", MQCORE_IN_PLACE="1")
    for finder in venv.glob("lib/python*/site-packages/__editable___mqcore_*_finder.py"):
        finder.write_text(FINDER.format(folders=runpy.run_path(str(finder))["MAPPING"]))
    stamp.write()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--venv", default=".venv")
    parser.add_argument("--group", action="append", default=[])
    parser.add_argument("--extra", action="append", default=[])
    parser.add_argument("--testing", action="store_true")
    options = parser.parse_args()
    venv = ROOT / options.venv
    python = make_venv(venv)
    install_requirements(python, venv, options.group, options.extra)
    build_extensions(python, venv, options.testing)
    install(python, venv)


if __name__ == "__main__":
    main()
