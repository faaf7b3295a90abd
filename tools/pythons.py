"""Print the interpreters of this machine that mqcore supports, one a line, one for each version.

Looks on PATH and in pyenv's versions. A pyenv shim that stands for no active version fails when
it is run, and is left out.
"""

import os
import subprocess
import sys
from pathlib import Path

ASK = ("import sys, sysconfig; print(sys.version_info >= (3, 11)"
       " and sys.implementation.name == 'cpython' and sysconfig.get_config_var('EXT_SUFFIX')"
       " or '')")


def candidates():
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


if __name__ == "__main__":
    interpreters = found()
    if not interpreters:
        sys.exit("no Python 3.11 or newer was found on PATH or under pyenv.")
    print("\n".join(path for _, path in sorted(interpreters.items())))
