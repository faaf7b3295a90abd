"""The suites can fail: what breaks a rule is found out by the test of that rule."""

import os
import re
import subprocess

import pytest
from nested import PYTEST

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


# pattern, partner, a flag that is taken away or given, and the rule that is then not kept
LIES = [
    ("push", "pull", "fans-out", "test_peers_get_their_share"),
    ("pub", "sub", "fans-out", "test_peers_get_their_share"),
    ("push", "pull", "exclusive", "test_a_second_peer_is_refused"),
    ("pair", "pair", "exclusive", "test_peers_get_their_share"),
    ("pub", "sub", "waits", "test_messages_wait_for_the_first_peer"),
    ("router", "dealer", "addresses", "test_a_message_arrives_as_it_was_sent"),
    ("pub", "sub", "fans-out", "test_what_happens_at_the_mark"),
    ("dealer", "dealer", "fans-out", "test_what_happens_at_the_mark"),
    ("req", "rep", "exchanges", "test_what_happens_at_the_mark"),
]

LIAR = """
class TestLiar(PatternSuite):
    pattern, partner = {0!r}, {1!r}

    def has(self, name=""):
        return super().has(name) ^ ({{{2!r}}} if name in ("", self.pattern) else set())
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    """What pytest says, in one run: each rule's test against what breaks it."""
    folder = tmp_path_factory.mktemp("broken")
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(
        "import mqcore.testing.suite as suite\nsuite.LIMIT = 1.0\n")
    wanted = []
    for n, (rule, code) in enumerate(BROKEN.items()):
        (folder / f"test_{n}.py").write_text(
            HEAD + code + "\n\nclass TestBroken(Suite):\n    Broken = Broken\n")
        wanted.append(f"test_{n}.py::TestBroken::{rule}")
    for n, (pattern, partner, flag, rule) in enumerate(LIES):
        (folder / f"test_lie_{n}.py").write_text(HEAD + LIAR.format(pattern, partner, flag))
        wanted.append(f"test_lie_{n}.py::TestLiar::{rule}")
    done = subprocess.run(
        [*PYTEST, "-v", *wanted],
        cwd=folder, capture_output=True, text=True, timeout=200,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    return done.stdout + done.stderr


def verdicts(outcome, node):
    """The verdict on the test, for each of its parameters."""
    return re.findall(rf"^{re.escape(node)}(?:\[\S*\])? ([A-Z]+)", outcome, re.M)


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_transport_is_found_out(outcome, rule):
    node = f"test_{list(BROKEN).index(rule)}.py::TestBroken::{rule}"
    found = set(verdicts(outcome, node))  # an ERROR after it: something was left behind
    assert "FAILED" in found and found <= {"FAILED", "ERROR"}, outcome


@pytest.mark.parametrize("n", range(len(LIES)), ids=lambda n: f"{LIES[n][0]}-{LIES[n][2]}")
def test_a_pattern_that_says_what_it_does_not_is_found_out(outcome, n):
    rule = LIES[n][3]
    assert "FAILED" in verdicts(outcome, f"test_lie_{n}.py::TestLiar::{rule}"), outcome
