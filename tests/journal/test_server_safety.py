"""What a journal server refuses to begin with: exposed addresses, missing packages, odd limits."""

import subprocess
import sys

import pytest

import mqcore as mq
from mqcore import journal
from mqcore.security import ANY, Curve, Null, Plain, curve_keypair


@pytest.fixture
def where(tmp_path):
    with journal.open(tmp_path, "a", topic="t") as writer:
        writer.append_many([b"%d" % i for i in range(100)])
    return tmp_path


@pytest.mark.parametrize("bind", [
    "tcp://127.0.0.1:0", "tcp://localhost:0", "tcp://127.3.2.1:0", "inproc://served",
    "ipc://@mqcore-served", "ws://127.0.0.1:0", "tcp://lo:0"])
def test_addresses_of_this_machine_need_nothing(where, serve, bind):
    assert serve(where, bind).running


@pytest.mark.parametrize("bind", ["tcp://*:0", "tcp://0.0.0.0:0", "ws://0.0.0.0:0",
                                  ["tcp://127.0.0.1:0", "tcp://*:0"]])
def test_addresses_of_the_network_need_keys_or_the_word(where, serve, bind):
    with pytest.raises(mq.UsageError, match="insecure=True"):
        serve(where, bind)
    with pytest.raises(mq.UsageError, match="in the clear"):
        serve(where, bind, security=Plain(allow={"ann": "secret"}))
    with pytest.raises(mq.UsageError, match="exposed"):
        serve(where, bind, security=Null(allow=lambda asking: True))
    assert serve(where, bind, insecure=True).running


def test_keys_protect_an_address(where, serve):
    security = Curve(secret_key=curve_keypair().secret, allow=ANY)
    assert serve(where, "tcp://*:0", security=security).running


def test_tls_protects_an_address(where, serve, authority, caplog):
    assert serve(where, "tls+tcp://0.0.0.0:0", **authority.server).running
    assert "any peer that reaches" in caplog.text
    caplog.clear()
    assert serve(where, "tls+tcp://0.0.0.0:0", **authority.server, **authority.ca).running
    assert "any peer that reaches" not in caplog.text


def test_a_server_without_an_address(where, serve):
    with pytest.raises(mq.UsageError, match="address"):
        serve(where, [])


def test_without_msgspec_everything_but_the_server_works(where):
    program = """
import sys
sys.modules["msgspec"] = None
import mqcore as mq
from mqcore import journal
with journal.open(sys.argv[1], topic="t") as reader:
    assert reader.end == 100
try:
    journal.serve(sys.argv[1], "inproc://x")
except mq.NotSupported as error:
    assert "mqcore[journal]" in str(error)
else:
    raise SystemExit("served")
try:
    journal.open("inproc://x", timeout=0.05)
except mq.RecvTimeout:
    pass
"""
    done = subprocess.run([sys.executable, "-c", program, str(where)], capture_output=True,
                          text=True, timeout=200)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("limits", [{"peers": 0}, {"bytes": 1.5}, {"idle": True},
                                    {"streams": "x"}, {"idle": float("nan")}])
def test_limits_are_numbers(limits):
    with pytest.raises((mq.OptionError, TypeError)):
        journal.Limits(**limits)
