"""Make a virtual environment with mqcore in it, ready to run from the working tree.

    python3 tools/build.py [--venv .venv] [--extra test] [--extra demo]

Standard library only; the Makefile has run check.py before. Three steps, each left out if its
stamp says that nothing changed, so a second run needs no network and takes a tenth of a second:
  requirements   what pyproject.toml asks for: to build, to run, and the extras named
  extensions     build_ext in place; incremental, compiles on every core
  installation   an editable one, for the entry points and for the mapping of transports/ and
  protocols/
                 into mqcore; it has nothing to compile, the extensions are there already
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("mqcore", "transports", "protocols")
FLAGS = ("MQCORE_CFLAGS", "MQCORE_LDFLAGS", "MQCORE_ONLY", "CC", "CXX", "CFLAGS", "CXXFLAGS")


def run(*command, **environment) -> None:
    result = subprocess.run(
        [str(word) for word in command], cwd=ROOT, stdin=subprocess.DEVNULL,
        env={**os.environ, **environment})
    if result.returncode:
        sys.exit(f"failed with {result.returncode}: {' '.join(map(str, command))}")


def digest(*parts) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part if isinstance(part, bytes) else str(part).encode())
        whole.update(b"\0")
    return whole.hexdigest()


def sources(*suffixes: str) -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*")
                  if path.suffix in suffixes)


class Stamp:
    """A file that holds the digest of what a step was made from."""

    def __init__(self, path: Path, *parts):
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


def requirements(extras: list[str]) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    for extra in extras:
        wanted += project["project"]["optional-dependencies"][extra]
    return sorted(set(wanted))


def install_requirements(python: Path, venv: Path, extras: list[str]) -> None:
    wanted = requirements(extras)
    stamp = Stamp(venv / f"stamp-requirements-{'-'.join(sorted(extras)) or 'none'}", *wanted)
    if stamp.fresh:
        return
    print(f"installing {len(wanted)} requirements", flush=True)
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted)
    stamp.write()


def build_extensions(python: Path) -> None:
    flags = [f"{name}={os.environ.get(name, '')}" for name in FLAGS]
    made_by = [sysconfig.get_config_var("EXT_SUFFIX"), *flags, (ROOT / "setup.py").read_bytes()]
    inputs = sources(".pyx", ".pxd", ".h", ".hpp", ".cpp")
    tag = sysconfig.get_config_var("SOABI") or "python"
    how = Stamp(ROOT / "build" / f"stamp-flags-{tag}", *made_by)
    names = [path.relative_to(ROOT) for path in sources(".py", ".pyi")]  # build/layout shows them
    what = Stamp(ROOT / "build" / f"stamp-build-{tag}", *made_by, *names, *(
        part for path in inputs for part in (path.relative_to(ROOT), path.read_bytes())))
    if what.fresh:
        return
    remove_orphans()
    print("building the extensions", flush=True)
    started = time.monotonic()
    force = [] if how.fresh or not how.path.exists() else ["--force"]
    run(python, "setup.py", "-q", "build_ext", "--inplace", *force)
    print(f"built in {time.monotonic() - started:.0f} s", flush=True)
    how.write()
    what.write()


def remove_orphans() -> None:
    """A module whose .pyx is gone must not live on as its old .so, here or in a wheel."""
    orphans = [path for path in sources(".so")
               if not path.with_name(path.name.split(".")[0] + ".pyx").exists()]
    for path in orphans:
        path.unlink()
    if orphans:
        for folder in (ROOT / "build").glob("lib*"):
            shutil.rmtree(folder)


def install(python: Path, venv: Path) -> None:
    packages = sorted({path.parent.relative_to(ROOT) for path in sources(".py")})
    stamp = Stamp(venv / "stamp-install", ROOT, *packages,
                  *((ROOT / name).read_bytes() for name in ("pyproject.toml", "setup.py")))
    if stamp.fresh:
        return
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index",
        "--no-build-isolation", "--no-deps", "-e", ".", MQCORE_IN_PLACE="1")
    stamp.write()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--venv", default=".venv")
    parser.add_argument("--extra", action="append", default=[])
    options = parser.parse_args()
    venv = ROOT / options.venv
    python = make_venv(venv)
    install_requirements(python, venv, options.extra)
    build_extensions(python)
    install(python, venv)


if __name__ == "__main__":
    main()
