"""ThreadSanitizer over the two-thread stress: must be clean, and must find a planted race.

Builds base and its drivers, from the same Cython code, with -fsanitize=thread into build/tsan, and
runs them in an interpreter with the sanitizer's runtime preloaded. The interpreter itself is not
instrumented; the two threads of the stress hold no Python object and no GIL.

    python tools/tsan.py [--parts 300000]        exit status 0: clean, and the plant was found
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "build" / "tsan"
ROOMS = "mqcore.base mqcore.testing.native.pipe_stress mqcore.testing.native.ring_stress"
PROGRAM = """
import sys
from mqcore.testing.native.pipe_stress import stress
from mqcore.testing.native.ring_stress import stress as ring_stress
for batch in (1, 16, 300):
    seen = stress({parts}, seed=batch, batch=batch, plant={plant}, wait={wait})
    print(batch, seen, flush=True)
    if not {plant} and (seen["received"] != {parts} or seen["wrong"] or seen["live"]
                        or seen["posts"] != seen["sleeps"] + 1):
        sys.exit("the stress itself failed")
    seen = ring_stress({parts} // 4, seed=batch, batch=batch, plant={plant})
    print(batch, seen, flush=True)
    if not {plant} and (seen["received"] != {parts} // 4 or seen["wrong"] or seen["lost"]):
        sys.exit("the ring's stress itself failed")
"""


def runtime() -> str | None:
    """The sanitizer's library, which comes with GCC."""
    compiler = os.environ.get("CXX", "g++").split()[0]
    if not shutil.which(compiler):
        return None
    answer = subprocess.run([compiler, "-print-file-name=libtsan.so"], capture_output=True,
                            text=True)
    path = answer.stdout.strip()
    return os.path.realpath(path) if os.path.isabs(path) else None


def build(verbose: bool = True) -> None:
    environment = {
        **os.environ,
        "MQCORE_ONLY": ROOMS,
        "MQCORE_TESTING": "1",
        "MQCORE_CFLAGS": "-fsanitize=thread -O1 -g",
        "MQCORE_LDFLAGS": "-fsanitize=thread",
    }
    command = [sys.executable, "setup.py", "-q", "build", "--build-base", str(TREE),
               "--build-lib", str(TREE / "lib")]
    subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, check=True,
                   stdout=subprocess.DEVNULL, stderr=None if verbose else subprocess.DEVNULL)


def run(library: str, parts: int, *, plant: bool) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(parts=parts, plant=plant, wait=1 if plant else 20)
    # the package is loaded by path alone: an editable install or mqcore/__init__.py is not wanted
    # here
    stub = ("import sys, types; sys.modules['mqcore'] = mq = types.ModuleType('mqcore');"
            f"mq.__path__ = [{str(TREE / 'lib' / 'mqcore')!r}]\n")
    command = [sys.executable, "-X", "faulthandler", "-c", stub + program]
    if shutil.which("setarch"):  # the runtime cannot map its shadow with every layout of addresses
        command = ["setarch", platform.machine(), "-R", *command]
    environment = {
        **os.environ,
        "LD_PRELOAD": library,
        "TSAN_OPTIONS": "exitcode=66 halt_on_error=0 report_signal_unsafe=0 history_size=4",
    }
    return subprocess.run(command, cwd=TREE, env=environment, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=300)


def verdict(clean: subprocess.CompletedProcess[str],
            planted: subprocess.CompletedProcess[str]) -> str | None:
    """What is wrong, or None."""
    if clean.returncode:
        return f"the clean run failed ({clean.returncode}):\n{clean.stdout}{clean.stderr}"
    if planted.returncode != 66 or "data race" not in planted.stderr:
        return f"the planted race was not found ({planted.returncode}):\n{planted.stderr}"
    if "ring_stress" not in planted.stderr:
        return f"the race planted in the ring was not found:\n{planted.stderr}"
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", type=int, default=300_000)
    options = parser.parse_args()
    library = runtime()
    if library is None:
        sys.exit("ThreadSanitizer's runtime (libtsan) was not found: install GCC's sanitizers.")
    build()
    wrong = verdict(run(library, options.parts, plant=False), run(library, 20_000, plant=True))
    if wrong:
        sys.exit(wrong)
    print("ThreadSanitizer: the queues and the ring are clean, and the planted races were found")


if __name__ == "__main__":
    main()
