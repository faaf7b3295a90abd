"""Modules of pyzmq's that are run: what they print is the same."""

import signal
import subprocess
import sys
from importlib.util import find_spec

import pytest

import mqcore.zmq as ours

RECORDS = [(b"INFO", b"hello\n"), (b"root.ERROR.sub", b"wrong"), (b"root.WARNING", b" text "),
           (b"INFO", b"two\nlines\n"), (b"CRITICAL.a.b", b"")]
PLAIN = ["INFO | hello", "root.ERROR.sub | wrong", "root.WARNING | text", "INFO | two", "lines",
         "CRITICAL.a.b | "]


@pytest.fixture(params=["mqcore.zmq", pytest.param("zmq", marks=pytest.mark.skipif(
    find_spec("zmq") is None, reason="no pyzmq"))])
def module(request):
    return request.param


@pytest.mark.parametrize("given, expected", [
    ([], PLAIN),
    (["--topic", "root"], PLAIN[1:3]),
    (["--timestamp", "--dateformat", "then", "--separator", "::", "--align"],
     ["then INFO::hello", "then root.ERROR.sub::wrong", "then root.WARNING.   ::text",
      "then INFO.       .   ::two", "lines", "then CRITICAL.a      .b  ::"])])
def test_log(make, module, given, expected):
    pub = make(ours, "XPUB")
    pub.bind("tcp://127.0.0.1:*")
    watcher = subprocess.Popen([sys.executable, "-u", "-m", f"{module}.log", *given,
                                pub.last_endpoint.decode()], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.DEVNULL)
    with watcher:
        pub.recv()
        for record in RECORDS:
            pub.send_multipart(record)
        assert [watcher.stdout.readline().rstrip("\n") for _ in expected] == expected
        watcher.send_signal(signal.SIGINT)
    if module == "mqcore.zmq":
        assert watcher.returncode == 0


def test_colors_and_what_is_no_text(make):
    pub = make(ours, "XPUB")
    pub.bind("tcp://127.0.0.1:*")
    with subprocess.Popen([sys.executable, "-m", "mqcore.zmq.log", "--color",
                           pub.last_endpoint.decode()], stdout=subprocess.PIPE, text=True) as told:
        pub.recv()
        pub.send_multipart([b"root.ERROR", b"\xff"])
        pub.send(b"alone")
        assert told.stdout.readline() == "\x1b[31mroot.ERROR | \\xff\x1b[0m\n"
        assert told.stdout.readline() == "alone | \n"
        told.send_signal(signal.SIGINT)
    assert told.returncode == 0


@pytest.mark.skipif(not ours.has("curve"), reason="no libsodium")
def test_curve_keygen(module):
    printed = subprocess.run([sys.executable, "-m", f"{module}.curve_keygen"], text=True,
                             timeout=200, capture_output=True, check=True).stdout
    title, public, empty, again, secret = printed.splitlines()
    assert (title, empty, again) == ("== CURVE PUBLIC KEY ==", "", "== CURVE SECRET KEY ==")
    assert ours.curve_public(secret.encode()) == public.encode()
