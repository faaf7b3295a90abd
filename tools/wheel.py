"""Build manylinux wheels into dist/, one for each Python 3.11+ of this machine; or test them.

    python tools/wheel.py            builds; needs auditwheel, patchelf and the system's libsodium
    python tools/wheel.py --test     tests the wheels in dist/ in fresh environments

Each wheel is built from the sdist, stripped, and has libsodium inside. Extensions that only tests
use are left out. The test installs a wheel where there is no compiler, exchanges messages with
pyzmq and pynng, CURVE included, and then builds a plug-in in Cython against it.
"""

import argparse
import ctypes.util
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import pythons

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
WORK = ROOT / "build" / "wheel"
PEERS = ROOT / "tests" / "data" / "wheel_peers.py"
LARGEST = 6_000_000  # bytes of a wheel
NOTICE = "/usr/share/doc/{package}/copyright"
PLUGIN = "parcel"  # a message engine in Cython


def call(*command: object, cwd: Path = ROOT, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "MQCORE_"))}
    done = subprocess.run([str(word) for word in command], cwd=cwd, env={**kept, **environment},
                          stdin=subprocess.DEVNULL, text=True, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"failed with {done.returncode}: {' '.join(map(str, command))}\n"
                 f"{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


# -- building --------------------------------------------------------------------------------------


def unpacked_sdist() -> Path:
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    call(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", WORK)
    [sdist] = WORK.glob("mqcore-*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(WORK, filter="data")
    return WORK / sdist.name.removesuffix(".tar.gz")


def sodium() -> str:
    """The file name of the system's libsodium."""
    name = ctypes.util.find_library("sodium")
    if name is None:
        sys.exit("libsodium is not installed, and each wheel carries a copy. Install it first: "
                 "apt install libsodium23, or dnf install libsodium")
    return name


def add_notice(source: Path, library: str) -> None:
    """libsodium's licence asks to go with each copy."""
    for package in (library.replace(".so.", ""), "libsodium"):
        notice = Path(NOTICE.format(package=package))
        if notice.exists():
            shutil.copy(notice, source / "LICENSE.libsodium")
            return
    sys.exit("the licence of libsodium was not found in /usr/share/doc")


def keep_translated(source: Path) -> None:
    """The C++ serves every Python. pip gives each build an environment of its own, whose Cython was
    installed a moment ago and would look newer than what it translated."""
    later = time.time() + 86_400
    for path in (source / "build" / "cython").rglob("*.c*"):
        os.utime(path, (later, later))


def build() -> None:
    source = unpacked_sdist()
    library = sodium()
    add_notice(source, library)
    for wheel in DIST.glob("mqcore-*.whl"):
        wheel.unlink()
    for suffix, python in pythons.found().items():
        raw = WORK / suffix
        call(python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", raw, source,
             MQCORE_SODIUM=f":{library}")
        keep_translated(source)
        [made] = raw.glob("*.whl")
        call(sys.executable, "-m", "auditwheel", "repair", "--strip", "--wheel-dir", DIST, made,
             PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    wheels = sorted(DIST.glob("mqcore-*.whl"))
    for wheel in wheels:
        size = wheel.stat().st_size
        print(f"{wheel.relative_to(ROOT)}  {size / 1e6:.1f} MB")
        if size > LARGEST:
            sys.exit(f"the wheel has more than {LARGEST / 1e6:.0f} MB")


# -- testing ---------------------------------------------------------------------------------------


def fresh(python: str, folder: Path) -> Path:
    call(python, "-m", "venv", folder)
    return folder / "bin" / "python"


def bare_path(folder: Path) -> str:
    """A PATH without compilers: nothing but the environment's own programs."""
    return str(folder / "bin")


def test_peers(wheel: Path, python: str, folder: Path) -> None:
    own = fresh(python, folder)
    path = bare_path(folder)
    call(own, "-m", "pip", "install", "--quiet", "--only-binary=:all:", wheel, PATH=path)
    size = sum(f.stat().st_size for f in folder.rglob("*.so*")
               if "mqcore" in str(f.relative_to(folder)))
    call(own, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "pyzmq", "pynng",
         PATH=path)
    print(call(own, PEERS, "bundled", cwd=folder, PATH=path).strip(),
          f"; {size / 1e6:.1f} MB of libraries", sep="")


def test_plugin(wheel: Path, python: str, folder: Path) -> None:
    """The commands of transports/README.md, in an environment that holds no more than they say."""
    own = fresh(python, folder)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    for command in (
            f"pip install -q {wheel}[cli,plugins,testing]",
            f"mq plugin new {PLUGIN} --kind engine",
            f"pip install -q --no-build-isolation ./{PLUGIN}",
            "mq info",
            f"python -m pytest -q -p no:cacheprovider {PLUGIN}/tests"):
        tool, *words = command.split()
        runs = (own, "-m", "pip") if tool == "pip" else (own.with_name(tool),)
        said = call(*runs, *words, cwd=folder, PATH=path)
    print(f"plug-in in Cython: {said.strip().splitlines()[-1]}")


def test() -> None:
    interpreters = {suffix.split("-")[1]: python for suffix, python in pythons.found().items()}
    wheels = sorted(DIST.glob("mqcore-*.whl"))
    if not wheels:
        sys.exit("dist/ has no wheel: run make wheel")
    for wheel in wheels:
        python = interpreters[wheel.name.split("-")[3].removeprefix("cp")]
        print(f"{wheel.name}:", flush=True)
        with tempfile.TemporaryDirectory(prefix="mqcore-wheel-") as folder:
            test_peers(wheel, python, Path(folder, "bare"))
            test_plugin(wheel, python, Path(folder, "plugin"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--test", action="store_true")
    test() if parser.parse_args().test else build()


if __name__ == "__main__":
    main()
