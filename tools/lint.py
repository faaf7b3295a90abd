"""The linters, all or those named: ruff, cython-lint, mypy. Exit status 1 if one complains.

    python tools/lint.py [ruff] [cython-lint] [mypy]
"""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ["mqcore", "transports", "protocols"]
# cython-lint cannot be told to leave these: a counted loop has no use for its counter, and in nogil
# code the counter must be declared by a name
NOT_MEANT = re.compile(r": Loop control variable '\w+' not used within the loop body")


def call(*command: str) -> subprocess.CompletedProcess:
    tools = Path(sys.executable).parent     # on PATH, since cython-lint calls pycodestyle by name
    path = os.pathsep.join([str(tools), os.environ.get("PATH", "")])
    return subprocess.run([tools / command[0], *command[1:]], cwd=ROOT, text=True,
                          capture_output=True, env={**os.environ, "PATH": path})


def ruff() -> str:
    answer = call("ruff", "check", "--no-cache", "--output-format=concise", ".")
    return "" if answer.returncode == 0 else answer.stdout + answer.stderr


def cython_lint() -> str:
    files = sorted(str(path) for folder in FOLDERS for path in (ROOT / folder).rglob("*.p[yx][xd]"))
    cores = os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:     # it takes them one by one, and its time
        answers = list(pool.map(lambda i: call("cython-lint", *files[i::cores]), range(cores)))
    lines = [line.removeprefix(f"{ROOT}/") for answer in answers
             for line in answer.stdout.splitlines() if not NOT_MEANT.search(line)]
    return "\n".join(lines) + "".join(answer.stderr for answer in answers)


def mypy() -> str:
    """--strict over the stubs and over every example, against the tree as it is installed."""
    found = ""
    layout = ROOT / "build" / "layout" / "mqcore"
    if any(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.pyi")):
        stubs = [str(path.relative_to(ROOT)) for path in sorted(layout.rglob("*.pyi"))]
        found += _complaints(call("mypy", "--strict", *stubs)) if stubs else ""
    for folder in ("examples", "examples/discovery", "examples/market"):
        programs = sorted(str(path.relative_to(ROOT)) for path in (ROOT / folder).glob("*.py"))
        if programs:
            found += _complaints(call("mypy", "--strict", "--scripts-are-modules", *programs))
    return found


def _complaints(answer: subprocess.CompletedProcess) -> str:
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
