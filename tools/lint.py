"""The linters, all or those named: ruff, cython-lint, mypy. Exit status 1 if one complains.

    python tools/lint.py [ruff] [cython-lint] [mypy]
"""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cython_lint.cython_lint import PYCODESTYLE_CODES

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ["mqcore", "transports", "protocols", "tests/native"]
OTHERS = ("tests/native/", "tests/peers/zmq/programs/", "tests/layout/typing/")
# cython-lint cannot be told to leave these: a counted loop has no use for its counter, and in nogil
# code the counter must be declared by a name
NOT_MEANT = re.compile(r": Loop control variable '\w+' not used within the loop body")


def call(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    tools = Path(sys.executable).parent
    path = os.pathsep.join([str(tools), os.environ.get("PATH", "")])
    return subprocess.run([tools / command[0], *command[1:]], cwd=ROOT, text=True,
                          capture_output=True, env={**os.environ, "PATH": path, **environment})


def ruff() -> str:
    answer = call("ruff", "check", "--no-cache", "--output-format=concise", ".")
    return "" if answer.returncode == 0 else answer.stdout + answer.stderr


def cython_lint() -> str:
    """cython-lint starts pycodestyle anew for each file; here one pycodestyle takes them all."""
    files = sorted(str(path) for folder in FOLDERS for path in (ROOT / folder).rglob("*.p[yx][xd]"))
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cython-lint"]
    pycodestyle = ["pycodestyle", f"--ignore={','.join({*PYCODESTYLE_CODES, *rules['ignore']})}",
                   f"--max-line-length={rules['max-line-length']}",
                   "--format=%(path)s:%(row)d:%(col)d:%(code)s %(text)s", *files]
    cores = os.cpu_count() or 1
    parts = [["cython-lint", "--no-pycodestyle", *files[i::cores]] for i in range(cores)]
    with ThreadPoolExecutor(cores) as pool:     # it takes them one by one, and its time
        answers = list(pool.map(lambda words: call(*words), [pycodestyle, *parts]))
    lines = [line.removeprefix(f"{ROOT}/") for answer in answers
             for line in answer.stdout.splitlines() if not NOT_MEANT.search(line)]
    return "\n".join(lines) + "".join(answer.stderr for answer in answers)


def mypy() -> str:
    """--strict over the library, as it is installed, over tools and over every example; less over
    tests and perf, see tools/mypy.ini. A stub stands for the module that it describes.
    mqcore/__init__.py is checked by itself, since its stub is the one that all others must see."""
    layout = ROOT / "build" / "layout" / "mqcore"
    modules = {path.with_suffix(""): path for suffix in ("*.py", "*.pyi")
               for path in sorted(layout.rglob(suffix)) if path.exists()}   # else it was removed
    found = _complaints(call("mypy", *(str(path.relative_to(ROOT)) for path in modules.values())))
    found += _complaints(call("mypy", "--follow-imports=skip", "--cache-dir=/dev/null",
                              "mqcore/__init__.py"))
    for folder in ("tools", "examples", "examples/discovery", "examples/market"):
        found += _complaints(call("mypy", "--scripts-are-modules", *_programs(folder, "*.py")))
    if importlib.util.find_spec("pyspark"):     # this one is a package, and needs the extra spark
        found += _complaints(call("mypy", "-p", "examples.pipeline"))
    for folder, beside in (("perf", "perf"), ("tests", "tests/support:perf")):
        found += _complaints(call(
            "mypy", "--config-file=tools/mypy.ini", f"--cache-dir=.mypy_cache/{folder}",
            *_programs(folder, "**/*.py"), MYPYPATH=beside))
    return found


def _programs(folder: str, pattern: str) -> list[str]:
    """Not the programs of pyzmq's users, nor those that mypy itself is tested with."""
    found = (path.relative_to(ROOT).as_posix() for path in (ROOT / folder).glob(pattern))
    return sorted(path for path in found if not path.startswith(OTHERS))


def _complaints(answer: subprocess.CompletedProcess[str]) -> str:
    return "" if answer.returncode == 0 else answer.stdout + answer.stderr


LINTERS = {"ruff": ruff, "cython-lint": cython_lint, "mypy": mypy}


def main() -> None:
    failed = False
    for name in sys.argv[1:] or LINTERS:
        found = LINTERS[name]()
        print(f"{name}: {'ok' if not found else ''}\n{found}".rstrip())
        failed = failed or bool(found)
    sys.exit(failed)


if __name__ == "__main__":
    main()
