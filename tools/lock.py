"""Pins what the environments of tests, demo, pipeline, documentation and benchmarks install.

    python3 tools/lock.py

Writes tools/lock.txt: one version of every package, for all Pythons and systems that pyproject.toml
admits, found by uv (in an environment of its own below build/). tools/build.py and tests/ install
within these versions, so a new release of another project's package changes nothing here until
somebody runs `make lock` and the tests. The ranges for users are pyproject.toml's.
"""

import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "tools" / "lock.txt"
HERE = ROOT / "build" / "lock"
APART = "free-threaded", "brokers"   # need other builds of some packages; have no wheels
HEAD = "# Written by `make lock`: the versions within which tools/build.py and the tests install\n"


def main() -> None:
    if not (HERE / "bin" / "uv").exists():
        venv.create(HERE, with_pip=True)
        subprocess.run([HERE / "bin" / "pip", "install", "--quiet",
                        "--disable-pip-version-check", "uv>=0.9"], check=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    oldest = project["project"]["requires-python"].removeprefix(">=")
    groups = [word for name in project["dependency-groups"] if name not in APART
              for word in ("--group", name)]
    made = subprocess.run(
        [HERE / "bin" / "uv", "pip", "compile", "--quiet", "--universal", "--python-version",
         oldest, "--all-extras", *groups, "--no-annotate", "--no-header", "--no-emit-index-url",
         "--no-emit-find-links", "pyproject.toml"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode:
        sys.exit(f"uv found no versions that go together ({made.returncode}); {LOCK.name} stays")
    LOCK.write_text(HEAD + made.stdout)
    print(f"{LOCK.relative_to(ROOT)}: {len(made.stdout.splitlines())} packages")


if __name__ == "__main__":
    main()
