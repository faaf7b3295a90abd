"""A plug-in of each worker: where pytest itself fails, the worker dies of it.

xdist ends the whole run then. A worker that has died it replaces, and the test that it ran counts
as failed. CPython 3.11 has such an error: "AST constructor recursion depth mismatch", where the
collector runs finalizers while pytest parses the source of a failed test.
"""

import os

import pytest

STDERR = os.dup(2)      # pytest takes that one
STATUS = 70             # EX_SOFTWARE


@pytest.hookimpl(tryfirst=True)     # xdist's own hook tells the leader
def pytest_internalerror(excrepr: object) -> None:
    name = os.environ.get("PYTEST_XDIST_WORKER")
    if name:
        os.write(STDERR, f"\n{name}: pytest itself failed\n{excrepr}\n".encode())
        os._exit(STATUS)
