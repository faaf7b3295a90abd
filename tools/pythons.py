"""Print the interpreters of this machine that mqcore supports, one a line, one for each version.

With --newest, only the newest with the GIL. Looks on PATH and in pyenv's versions. A pyenv shim
that stands for no active version fails when it is run, and is left out.
"""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

ASK = ("import sys, sysconfig; print(sys.version_info >= (3, 11)"
       " and sys.implementation.name == 'cpython' and sysconfig.get_config_var('EXT_SUFFIX')"
       " or '')")


def candidates() -> Iterator[Path]:
    home = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(home.glob("versions/*/bin/python3"))
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder:
            yield from sorted(Path(folder).glob("python3*"))


def found() -> dict[str, str]:
    """ABI suffix -> interpreter."""
    result: dict[str, str] = {}
    for path in candidates():
        if not path.name.replace("python3", "").replace(".", "").rstrip("t").isdigit() \
                and path.name != "python3":
            continue
        try:
            answer = subprocess.run([path, "-c", ASK], capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            continue
        suffix = answer.stdout.strip()
        if answer.returncode == 0 and suffix:
            result.setdefault(suffix, str(path))
    return result


def version() -> str:
    """3.13, or 3.13t for a free-threaded one."""
    free = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    return f"{sys.version_info.major}.{sys.version_info.minor}{free}"


def newest(interpreters: dict[str, str]) -> str:
    """Of those with the GIL: ".cpython-313-x86_64-linux-gnu.so" is of 3.13."""
    abis = {suffix.split("-")[1]: path for suffix, path in interpreters.items()}
    return abis[max((abi for abi in abis if abi.isdigit()), key=int)]


if __name__ == "__main__":
    if "--version" in sys.argv:
        sys.exit(print(version()))
    interpreters = found()
    if not interpreters:
        sys.exit("no Python 3.11 or newer was found on PATH or under pyenv.")
    if "--newest" in sys.argv:
        sys.exit(print(newest(interpreters)))
    print("\n".join(path for _, path in sorted(interpreters.items())))
