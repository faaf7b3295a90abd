"""The suites can fail: each of these plug-ins breaks a rule, and the test of that rule says so."""

import os
import subprocess
import sys

import pytest

HEAD = """
import os
import socket

import pytest

from mqcore.errors import AddressError, BindError
from mqcore.spi import registry
from mqcore.testing import PatternSuite, TransportSuite, installed

Tcp = type(registry.transport("tcp"))


class Suite(TransportSuite):
    scheme = "broken"
    bad = ("nothing",)

    @pytest.fixture
    def mq_installed(self):
        with installed("transport", self.Broken()):
            yield

    def url(self, tmp_path):
        return "broken://127.0.0.1:0"


class Broken(Tcp):
    scheme = "broken"

    def names(self, sock):
        return tuple(name.replace("tcp:", "broken:") for name in super().names(sock))
"""

# the rule's test: what the transport does
BROKEN = {
    "test_check_knows_no_other_error": """
    def check(self, address, role):
        int(address)
""",
    "test_check_refuses_with_a_position": """
    def check(self, address, role):
        raise AddressError("no", position=999)
""",
    "test_a_listen_that_fails_leaves_nothing": """
    def listen(self, address, options):
        self.kept = socket.socket()
        try:
            found = super().listen(address, options)
        except BindError:
            os.dup(0)
            raise
        self.kept.close()
        return found
""",
    "test_a_connect_that_fails_leaves_nothing": """
    def connect(self, target, options):
        os.dup(0)
        return super().connect(target, options)
""",
    "test_listen_gives_what_peers_can_connect_to": """
    def listen(self, address, options):
        found = super().listen(address, options)
        found.sockets[0].setblocking(True)
        return found
""",
    "test_names_and_pid_never_raise": """
    def names(self, sock):
        sock.getpeername()
        return "", ""
""",
    "test_names_of_both_ends": """
    def names(self, sock):
        return "", "broken://somewhere:1"
""",
    "test_its_table_of_capabilities_is_sound": """
    capabilities = frozenset({"wings"})
""",
    "test_a_wildcard_gives_the_real_address": """
    def listen(self, address, options):
        return super().listen(address, options)._replace(address="127.0.0.1:1")
""",
    "test_unbind_frees_the_address_at_once": """
    def listen(self, address, options):
        found = super().listen(address, options)
        self.kept = found.sockets[0].dup()
        return found
""",
    "test_a_huge_message": """
    def tune(self, sock, options):
        super().tune(sock, options)
        sock.shutdown(socket.SHUT_RD)
""",
}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """What pytest says: each rule's test against the transport that breaks it, in one run."""
    folder = tmp_path_factory.mktemp("broken")
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(
        "import mqcore.testing.suite as suite\nsuite.LIMIT = 1.0\n")
    for n, code in enumerate(BROKEN.values()):
        (folder / f"test_{n}.py").write_text(
            HEAD + code + "\n\nclass TestBroken(Suite):\n    Broken = Broken\n")
    wanted = [f"test_{n}.py::TestBroken::{rule}" for n, rule in enumerate(BROKEN)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *wanted],
        cwd=folder, capture_output=True, text=True, timeout=100,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    return done.stdout + done.stderr


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_transport_is_found_out(outcome, rule):
    assert f"::{rule} FAILED" in outcome and f"::{rule} PASSED" not in outcome, outcome
