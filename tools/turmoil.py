"""The whole data plane under stress in a special build (tests/support/turmoil.py is the program).

    python tools/turmoil.py thread    ThreadSanitizer; it must also find a race that is planted
    python tools/turmoil.py address   AddressSanitizer, over the program and over the tests
    python tools/turmoil.py widen     critical gaps made longer, looks for signals made rare

Each builds all extensions into build/<name> and leaves the tree as it is. The interpreter itself is
not instrumented: what Python's own lock orders, the sanitizer takes for ordered.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "tests" / "support" / "turmoil.py"
TESTS = [
    "tests/unit", "tests/system/lifecycle/test_machine.py", "tests/system/lifecycle/test_fork.py",
    "tests/system/stress/test_turmoil.py", "tests/hostile/security", "tests/hostile/bad_input",
    "tests/peers/interop"]
# the checker's own memory is measured; a browser does not start with it; no guides; runs of pytest
# within the run
LEFT_OUT = [
    "tests/hostile/bad_input/test_live_sockets.py::test_a_flood_is_bounded_by_the_marks",
    "tests/peers/interop/test_browser.py", "tests/hostile/security/test_keys.py::test_the_guide",
    "tests/unit/testing/test_plugin.py", "tests/unit/suite"]
FLAGS = {
    "thread": ("-fsanitize=thread -O1 -g", "-fsanitize=thread"),
    "address": ("-fsanitize=address -O1 -g", "-fsanitize=address"),
    "widen": ("-DMQ_WIDEN=20 -DMQ_SLICE_NS=30000000000L", ""),
}
LIBRARY = {"thread": "libtsan.so", "address": "libasan.so"}


def runtime(name: str) -> str:
    """The sanitizer's library, which comes with the compiler."""
    compiler = os.environ.get("CXX", "g++").split()[0]
    answer = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True)
    path = answer.stdout.strip()
    if not os.path.isabs(path):
        sys.exit(f"{name} was not found: install the compiler's sanitizers")
    return os.path.realpath(path)


def build(tree: Path, cflags: str, ldflags: str, only: str = "") -> None:
    environment = {**os.environ, "MQCORE_CFLAGS": cflags, "MQCORE_LDFLAGS": ldflags,
                   "MQCORE_ONLY": only, "MQCORE_TESTING": "1"}
    environment.pop("MQCORE_IN_PLACE", None)
    subprocess.run([sys.executable, "setup.py", "-q", "build", "--build-base", str(tree),
                    "--build-lib", str(tree / "lib")], cwd=ROOT, env=environment, check=True,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def run(what: str, tree: Path, command: list[str],
        limit: float) -> subprocess.CompletedProcess[str]:
    """The special build goes first on the path, before an editable install."""
    environment = {
        **os.environ, "PYTHONPATH": str(tree / "lib"),
        "TSAN_OPTIONS": f"exitcode=66 report_signal_unsafe=0 history_size=4 "
                        f"suppressions={ROOT / 'tools' / 'tsan.supp'}",
        "ASAN_OPTIONS": "exitcode=67 detect_leaks=0 allocator_may_return_null=1",
    }
    command = [sys.executable, "-X", "faulthandler", *command]
    if what in LIBRARY:
        environment["LD_PRELOAD"] = runtime(LIBRARY[what])
        environment["PYTHONMALLOC"] = "malloc"  # Python's own pools would hide what is freed
    # its shadow does not fit every layout of addresses
    if what == "thread" and shutil.which("setarch"):
        command = ["setarch", platform.machine(), "-R", *command]
    return subprocess.run(command, cwd=tree, env=environment, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit)


def planted(tree: Path) -> bool:
    """Whether the sanitizer sees a race on purpose in the lease."""
    other = tree.with_name(tree.name + "-plant")
    shutil.copytree(tree / "lib", other / "lib", dirs_exist_ok=True)
    for copied in (other / "lib" / "mqcore" / "link").glob("lease.*.so"):
        copied.unlink()  # newer than its sources, it would be taken for built
    build(other, FLAGS["thread"][0] + " -DMQ_PLANT", FLAGS["thread"][1], "mqcore.link.lease")
    command = [str(PROGRAM), "--seconds", "2", "--over", "tcp", "crowd", "tokens"]
    answer = run("thread", other, command, 120)
    found = "mq_planted" in answer.stdout or "data race" in answer.stdout
    if not found:
        print(answer.stdout[-3000:])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=sorted(FLAGS))
    parser.add_argument("--seconds", default="0.5", help="of each kind of stress")
    parser.add_argument("--keep", action="store_true", help="do not build anew")
    parser.add_argument("kinds", nargs="*")
    options = parser.parse_intermixed_args()
    tree = ROOT / "build" / options.what
    if not options.keep:
        shutil.rmtree(tree, ignore_errors=True)
        build(tree, *FLAGS[options.what])
    answer = run(options.what, tree,
                 [str(PROGRAM), "--seconds", options.seconds, *options.kinds], 900)
    print(answer.stdout)
    if answer.returncode:
        sys.exit(f"{options.what}: exit status {answer.returncode}")
    if options.what == "thread" and not planted(tree):
        sys.exit("the planted race was not found: the clean run above means nothing")
    if options.what == "address":
        answer = run("address", tree, [
            "-m", "pytest", "-q", "--capture=sys", "-p", "no:cacheprovider", "--rootdir", str(ROOT),
            "-c", str(ROOT / "pyproject.toml"), *(f"--deselect={t}" for t in LEFT_OUT),
            *(str(ROOT / t) for t in TESTS)], 1800)
        print(answer.stdout[-6000:])
        if answer.returncode:
            sys.exit(f"the tests failed under AddressSanitizer: {answer.returncode}")
    print(f"{options.what}: clean")


if __name__ == "__main__":
    main()
