"""Which tests may be skipped where everything is expected to run (CI=true).

What the tests need is installed by `make test` (pyproject.toml's extras, tools/peers.sh), so a skip
means that something was not tried. The table lists what depends on the machine or the kernel, or
does not apply to one parameter. Skips that a plug-in declares (mqcore/spi/capability.py) are the
conformance suites' own matter. Any other skip fails.
"""

import re

# what the reason says: why that is all right
MAY_SKIP = {
    r"no IPv6|has no IPv6 loopback": "containers often have no IPv6",
    r"root may (bind any port|read everything)": "as root there is nothing to refuse",
    r"only root can become another user": "as any other user there is nobody to become",
    r"every port is free for all here": "a setting of the kernel",
    r"files are limited here already": "a limit that was set from outside",
    r"no network namespace can be made here|network namespaces need root":
        "needs a capability that containers withhold",
    r"vsock": "a module of the kernel",
    r"no ThreadSanitizer": "a compiler without it; `make tsan` needs one that has it",
    r"no systemd-analyze": "a machine, or a container, without systemd",
    r"strace is not installed": "counts system calls for the benchmarks",
    r"could not import '(pyperf|pyomq|zenoh|iceoryx2|faster_fifo)'": "libraries of `make perf`",
    r"pip install --target": "the oldest Spark, in a folder made by hand",
    r"[Dd]raft": "a libzmq with its draft sockets, built from source",
    r"there is no libzmq": "Debian's libzmq with its draft sockets, installed by hand",
    r"Graphviz's dot is not installed": "the map in DOT has other tests, too",
    r"OpenSSH's server is not installed": "its package starts a service; nothing here may do that",
    r"ours alone": "does not apply to pyzmq, beside which the same tests run",
    r"trio runs a task that was woken": "does not apply to trio",
    r"this Python has a GIL": "`make test-free-threaded` runs these tests on one without",
    r"one module with itself": "does not apply to a module with itself",
    r"SP over WebSocket is not built": "depends on how pynng's wheel was built",
}
ALLOWED = re.compile("|".join(f"(?:{reason})" for reason in MAY_SKIP))


def forbidden(reason: str) -> str:
    """What to say about a skip for this reason; "" if it may be."""
    if ALLOWED.search(reason):
        return ""
    return (f"skipped ({reason}), and with CI=true nothing is skipped for a reason that is not in "
            "tests/support/skips.py: install what is missing, or give the reason there")
