"""Runs the tests on a free-threaded Python: one without the global interpreter lock (GIL).

    python tools/free_threaded.py [--python PATH] [--runs N] [pytest's arguments ...]
    python tools/free_threaded.py --only interpreter [--gil]

Three steps, each left out where it is done already:
  interpreter   --python, else a free-threaded one on PATH or under pyenv, else CPython 3.13 built
                from Debian's source package into ~/.cache/mqcore (about seven minutes on two cores)
  environment   .venv-3.13t with what the tests need and what has wheels for such an interpreter
                (the group `free-threaded` in pyproject.toml), and mqcore's extensions beside those
                of other interpreters: their names differ
  tests         unit, API, lifecycle, accounting, stress and more; with PYTHON_GIL=0, so that a
                foreign module cannot bring the lock back. Whether one of mqcore's modules does is
                a test of its own (tests/system/test_free_threading.py).

--gil builds the same CPython with the lock instead, for comparisons (perf/free_threaded.py).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import pythons  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mqcore"
SUITE, SOURCE = "trixie", "python3.13"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# the header that shows it, and Debian's package
NEEDED = {
    "openssl/ssl.h": "libssl-dev", "ffi.h": "libffi-dev", "zlib.h": "zlib1g-dev",
    "bzlib.h": "libbz2-dev", "lzma.h": "liblzma-dev", "sqlite3.h": "libsqlite3-dev",
}
MODULES = "import bz2, ctypes, lzma, sqlite3, ssl, zlib"  # which those packages make possible
IS_FREE = "import sysconfig; print(int(bool(sysconfig.get_config_var('Py_GIL_DISABLED'))))"
TESTS = [
    "tests/system/test_free_threading.py", "tests/system/stress", "tests/system/lifecycle",
    "tests/system/api", "tests/peers/zmq/test_concurrent_ends.py",
    "tests/peers/nng/test_concurrent_ends.py", "tests/system/accounting", "tests/system/topology",
    "tests/system/transports", "tests/journal", "tests/unit"]
# modules that have no wheels for CPython 3.13t and do not build for it: the files that need them
NEED = {
    "cryptography": ["tests/unit/tls", "tests/system/transports/test_tls.py"],
    "msgspec": [f"tests/journal/test_{name}.py" for name in (
        "durable", "kills", "queues", "queues_bounds", "queues_kills", "queues_model",
        "queues_recovery", "remote", "server", "server_bounds", "server_safety")],
}


def run(*command: object, **options: object) -> None:
    words = [str(word) for word in command]
    result = subprocess.run(words, stdin=subprocess.DEVNULL, check=False,
                            **options)  # type: ignore[call-overload]
    if result.returncode:
        sys.exit(f"failed with {result.returncode}: {' '.join(words)}")


def output(*command: object) -> str:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False).stdout.strip()


# -- the interpreter -------------------------------------------------------------------------------


def installed() -> Path | None:
    """A free-threaded interpreter of this machine, the newest."""
    found = [path for path in pythons.found().values() if output(path, "-c", IS_FREE) == "1"]
    return Path(found[-1]) if found else None


def missing_headers() -> list[str]:
    compiler = os.environ.get("CC", "cc").split()
    return [package for header, package in NEEDED.items() if subprocess.run(
        [*compiler, "-xc", "-fsyntax-only", "-include", header, "/dev/null"],
        capture_output=True, check=False).returncode]


def fetch(folder: Path) -> Path:
    """CPython's source from Debian's archive, whose signatures apt checks. The machine's own lists
    of packages stay as they are."""
    mirror = output("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages",
                    "Origin: Debian", "Label: Debian").splitlines()
    if not mirror or not Path(KEYRING).exists():
        sys.exit("a free-threaded Python was not found, and only Debian's archive is known as a "
                 "source of one. Install it (pyenv install 3.13t, uv python install 3.13t), or "
                 "give its path: --python PATH")
    sources = folder / "sources.list"
    sources.write_text(f"deb-src [signed-by={KEYRING}] {mirror[0]} {SUITE} main\n")
    apt = ["apt-get", "-qq", "-o", f"Dir::Etc::SourceList={sources}",
           "-o", "Dir::Etc::SourceParts=-", "-o", f"Dir::State::Lists={folder / 'lists'}",
           "-o", f"Dir::Cache={folder / 'cache'}", "-o", "APT::Sandbox::User=root"]
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    run(*apt, "update")
    run(*apt, "source", "--download-only", SOURCE, cwd=folder)
    archive = next(folder.glob(f"{SOURCE}_*.orig.tar.xz"))
    with tarfile.open(archive) as whole:
        whole.extractall(folder / "source", filter="data")
    return next((folder / "source").iterdir())


def build_interpreter(gil: bool) -> Path:
    """CPython into the cache, once."""
    prefix = CACHE / (SOURCE if gil else f"{SOURCE}t")
    python = prefix / "bin" / "python3.13"
    if python.exists():
        return python
    absent = missing_headers()
    if absent and os.geteuid() == 0 and shutil.which("apt-get"):
        run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *absent)
    elif absent:
        sys.exit(f"to build CPython, install {' '.join(absent)}")
    with tempfile.TemporaryDirectory(prefix="mq-cpython-") as name:
        source = fetch(Path(name))
        print(f"building {source.name} {'with' if gil else 'without'} the GIL", flush=True)
        # complete when it is renamed; an interpreter finds its library by its own place
        unfinished = prefix.with_name(f"{prefix.name}-{os.getpid()}")
        quiet = {"cwd": source, "stdout": subprocess.DEVNULL}
        run("./configure", f"--prefix={prefix}", *([] if gil else ["--disable-gil"]),
            "OPT=-O2 -g0 -DNDEBUG", "-q", **quiet)
        run("make", "-s", f"-j{len(os.sched_getaffinity(0))}", stderr=subprocess.DEVNULL, **quiet)
        run("make", "-s", "install", f"DESTDIR={unfinished}", stderr=subprocess.DEVNULL, **quiet)
        prefix.parent.mkdir(parents=True, exist_ok=True)
        try:
            unfinished.joinpath(*prefix.parts[1:]).rename(prefix)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    run(python, "-c", MODULES)
    return python


def interpreter(given: str | None, gil: bool) -> Path:
    if given:
        if output(given, "-c", IS_FREE) != str(int(not gil)):
            sys.exit(f"{given} is not an interpreter {'with' if gil else 'without'} the GIL")
        return Path(given)
    return (None if gil else installed()) or build_interpreter(gil)


# -- the environment, and what runs in it ----------------------------------------------------------


def environment(python: Path) -> Path:
    """The virtual environment's interpreter."""
    venv = f".venv-{output(python, ROOT / 'tools' / 'pythons.py', '--version')}"
    # few of the latest releases have wheels for it; an older one that has is as good
    run(python, ROOT / "tools" / "build.py", "--venv", venv, "--group", "free-threaded",
        env={**os.environ, "PIP_PREFER_BINARY": "1"})
    return ROOT / venv / "bin" / "python"


def left_out(python: Path) -> list[str]:
    """pytest's arguments for the tests that cannot run there, which are named."""
    found = []
    for module, paths in NEED.items():
        if output(python, "-c", f"import {module}; print(1)") != "1":
            print(f"without {module}: {' '.join(paths)} are left out", flush=True)
            found += [f"--ignore={ROOT / path}" for path in paths]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--python", help="an interpreter that is there")
    parser.add_argument("--gil", action="store_true", help="the same CPython with the GIL")
    parser.add_argument("--only", choices=("interpreter", "environment"), help="and stop there")
    parser.add_argument("--runs", type=int, default=1, help="of the tests")
    options, arguments = parser.parse_known_args()
    python = interpreter(options.python, options.gil)
    if options.only == "interpreter":
        sys.exit(print(python))
    python = environment(python)
    if options.only == "environment":
        sys.exit(print(python))
    variables = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    if not options.gil:
        variables["PYTHON_GIL"] = "0"
    if not any(argument.startswith("tests") for argument in arguments):
        arguments += [*TESTS, *left_out(python)]
    for number in range(options.runs):
        if options.runs > 1:
            print(f"== run {number + 1} of {options.runs}", flush=True)
        run(python, "-m", "pytest", "-p", "no:cacheprovider", *arguments, cwd=ROOT, env=variables)


if __name__ == "__main__":
    main()
