"""Who is at the other end of a Unix socket."""

import os
import socket
import subprocess
import sys

import pytest

from mqcore.spi.credentials import credentials, is_anybody

NOBODY = (1 << 32) - 1
ASK = """
from mqcore.spi.credentials import is_anybody
print([is_anybody(uid) for uid in (0, 1, 65534)])
"""


def test_of_a_peer():
    near, far = socket.socketpair()
    with near, far:
        assert credentials(near) == (os.getpid(), os.geteuid(), os.getegid())


def test_of_no_peer():
    with socket.socket(socket.AF_UNIX) as alone, socket.socket() as tcp:
        assert credentials(alone) == credentials(tcp) == (0, NOBODY, NOBODY)


def test_every_user_has_a_number_in_the_first_namespace():
    with open("/proc/self/uid_map") as table:
        if table.read().split() != ["0", "0", "4294967295"]:
            pytest.skip("this is not the first user namespace")
    assert not any(map(is_anybody, (0, 1000, 65534)))


def test_in_another_namespace_the_overflow_user_is_anybody():
    apart = ["unshare", "-U"]
    if (tried := subprocess.run([*apart, "true"], capture_output=True, text=True)).returncode:
        pytest.skip(f"no user namespace can be made here: {tried.stderr.strip()[:200]}")
    done = subprocess.run([*apart, sys.executable, "-c", ASK], capture_output=True, text=True)
    assert done.stdout == "[False, False, True]\n", done.stderr
