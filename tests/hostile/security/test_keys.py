"""Keys as text, in files and in memory; and what happens without libsodium."""

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import zmq
import zmq.auth
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from zmq.utils import z85

import mqcore as mq
from mqcore.cli import cli
from mqcore.security import (
    ANY,
    AuthResult,
    Certificate,
    Curve,
    Plain,
    curve_keypair,
    curve_public,
    key_bytes,
    load_certificate,
    load_certificates,
    save_certificate,
    z85_decode,
    z85_encode,
)


@given(st.binary(max_size=64).filter(lambda data: len(data) % 4 == 0))
def test_z85_is_libzmqs(data):
    assert z85_encode(data).encode() == z85.encode(data)
    assert z85_decode(z85_encode(data)) == data


@pytest.mark.parametrize("text", ["#####", "0000", "0000~", "0 000", "%nSc1"])
def test_what_is_no_z85(text):
    with pytest.raises(mq.OptionError):
        z85_decode(text)


def test_pairs_are_libzmqs():
    pair = curve_keypair()
    assert zmq.curve_public(pair.secret.encode()).decode() == pair.public
    assert curve_public(pair.secret) == pair.public
    assert pair.secret not in repr(pair)
    assert key_bytes(pair.public) == key_bytes(pair.public.encode()) == z85_decode(pair.public)
    assert Curve(secret_key=z85_decode(pair.secret), allow=ANY).public_key == pair.public


@pytest.mark.parametrize("make", [
    lambda: Curve(), lambda: Curve("short"), lambda: Curve(b"x" * 31),
    lambda: Curve("~" * 40), lambda: Curve("0" * 40, allow=["0" * 40]),
    lambda: Curve(secret_key="0" * 40, allow="0" * 40),
    lambda: Curve(secret_key="0" * 40, allow=["0" * 39]), lambda: Plain(),
    lambda: Plain("a", "b", allow={}), lambda: Plain("a" * 256, "b"),
    lambda: Plain(allow={"a": "b" * 256}), lambda: AuthResult(404),
])
def test_what_cannot_be_demanded(make):
    with pytest.raises(mq.OptionError):
        make()


def test_secrets_are_not_shown_and_not_pickled():
    pair = curve_keypair()
    for demands in (Curve(secret_key=pair.secret, allow=ANY), Plain("ann", "hush")):
        assert pair.secret not in repr(demands) and "hush" not in repr(demands)
        with pytest.raises(TypeError):
            pickle.dumps(demands)


def test_certificates_are_pyzmqs(tmp_path):
    pair = curve_keypair()
    public, secret = save_certificate(tmp_path / "ann.key", pair, {"name": "Ann", "n": "1"})
    assert secret == tmp_path / "ann.key_secret" and secret.stat().st_mode & 0o777 == 0o600
    theirs = zmq.auth.load_certificate(secret)
    assert tuple(key.decode() for key in theirs) == (pair.public, pair.secret)
    assert zmq.auth.load_certificate(public) == (pair.public.encode(), None)
    assert load_certificate(secret) == Certificate(pair.public, pair.secret,
                                                         {"name": "Ann", "n": "1"})
    assert load_certificate(public).secret == "" and pair.secret not in public.read_text()
    with pytest.raises(FileExistsError):
        save_certificate(tmp_path / "ann.key", pair)
    _, theirs = zmq.auth.create_certificates(tmp_path, "bob", {"name": "Bob"})
    os.chmod(theirs, 0o600)           # it leaves that to the umask
    bob = load_certificate(tmp_path / "bob.key_secret")
    assert curve_public(bob.secret) == bob.public and bob.metadata["name"] == "Bob"
    assert load_certificates(tmp_path) == {pair.public: "ann", bob.public: "bob"}


def test_certificates_that_are_refused(tmp_path):
    _, secret = save_certificate(tmp_path / "a.key", curve_keypair())
    for mode in (0o640, 0o604, 0o660):
        os.chmod(secret, mode)
        with pytest.raises(mq.OptionError, match=rf"others can read .*\(mode {mode:o}\)"):
            load_certificate(secret)
    for text, word in (("", "no public-key"), ("curve\n    public-key = \"x\"\n", "40 char"),
                       ("curve\n    = 3\n", "line 2"), ("\0\1\2", "line 1")):
        (tmp_path / "bad.key").write_text(text)
        with pytest.raises(mq.OptionError, match=word):
            load_certificate(tmp_path / "bad.key")
    with pytest.raises(mq.OptionError, match="cannot hold"):
        save_certificate(tmp_path / "b.key", curve_keypair(), {"a": 'x"'})
    assert not (tmp_path / "b.key_secret").exists()


def test_keygen(tmp_path):
    run = CliRunner()
    out = run.invoke(cli, ["keygen"]).output.split()
    assert curve_public(out[3]) == out[1]
    path = tmp_path / "server.key"
    done = run.invoke(cli, ["keygen", str(path), "--name", "the server"])
    assert done.exit_code == 0
    own = load_certificate(f"{path}_secret")
    assert own.metadata == {"name": "the server"} and own.public in done.output
    assert run.invoke(cli, ["keygen", str(path)]).exit_code == 1      # it is there already
    assert load_certificate(f"{path}_secret") == own


def test_the_guide(tmp_path):
    """What it says, typed in."""
    guide = (Path(mq.__file__).parent / "api/SECURITY.md").read_text()
    run = CliRunner()
    (tmp_path / "clients").mkdir()
    for line in re.findall(r"^mq (keygen [^#\n]*)", guide, re.MULTILINE):
        words = [word if "key" not in word or word == "keygen" else str(tmp_path / word)
                 for word in line.split()]
        assert run.invoke(cli, words).exit_code == 0
    server, client = (
        block.replace("tcp://*:5555", "ipc://s").replace("tcp://example.org:5555", "ipc://s")
        for block in re.findall(r"```python\n(.*?)```", guide, re.DOTALL)[:2])
    with subprocess.Popen([sys.executable, "-c", server], cwd=tmp_path) as running:
        try:
            out = subprocess.run([sys.executable, "-c", client], cwd=tmp_path, timeout=200,
                                 capture_output=True, text=True)
        finally:
            running.terminate()
    assert out.stdout == "b'hello ann'\n", out.stderr


def test_without_libsodium(tmp_path):
    """Only CURVE is missing, and the error says what to install."""
    code = """if True:
        import mqcore.base.sodium as sodium
        sodium.LIBRARIES = (b"libsodium.so.none",)
        import mqcore as mq
        from mqcore.security import Curve, Plain, curve_keypair
        for call in (curve_keypair, lambda: Curve("0" * 40)):
            try:
                call()
            except mq.NotSupported as error:
                assert "apt install libsodium23" in str(error)
            else:
                raise SystemExit("it went on")
        with mq.Rep(bind="tcp://127.0.0.1:0", security=Plain(allow={"a": "b"})) as rep:
            with mq.Req(connect=rep.endpoints[0].url, security=Plain("a", "b")) as req:
                req.send(b"x")
                assert rep.recv(timeout=10) == b"x"
        print("fine")
        """
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert out.stdout == "fine\n", out.stderr


def test_a_server_must_state_whose_keys_it_accepts():
    secret = curve_keypair().secret
    with pytest.raises(mq.OptionError, match="must set allow=; pass allow=.*mqcore.security.ANY"):
        Curve(secret_key=secret)
    assert repr(ANY) == "mqcore.security.ANY"
    assert Curve(secret_key=secret, allow=ANY).keys is None
    assert Curve(secret_key=secret, allow=()).keys == frozenset()


def test_a_certificate_or_its_path_is_no_key(tmp_path):
    own, path = save_certificate(tmp_path / "new" / "ann.key", curve_keypair())[::-1]
    assert path.parent.is_dir()                 # which was not there
    secret, public = load_certificate(own), load_certificate(path)
    for call, hint in (
            (lambda: Curve(public, secret_key=secret.secret), r"pass its \.public"),
            (lambda: Curve(public.public, secret_key=secret), r"pass its \.secret"),
            (lambda: Curve(secret_key=own, allow=ANY), r"load_certificate\(path\)\.secret"),
            (lambda: Curve(str(path)), r"load_certificate\(path\)\.public"),
            (lambda: Curve("server.key"), r"load_certificate\(path\)\.public"),
            (lambda: Curve(secret_key=secret.secret, allow=[public]), r"pass its \.public")):
        with pytest.raises(mq.OptionError, match=hint):
            call()


def test_a_folder_without_certificates_is_an_error(tmp_path):
    with pytest.raises(mq.OptionError, match=r"has no \*\.key files; `mq keygen .*ann\.key`"):
        load_certificates(tmp_path)
    with pytest.raises(mq.OptionError, match="is not a folder"):
        load_certificates(tmp_path / "clients")
