"""Keys and passwords on the command line: `mq doctor` behind them, and sockets that have them."""

import threading
from contextlib import contextmanager

import pytest
import zmq
from programs import mq, run
from zmq.auth.thread import ThreadAuthenticator

import mqcore
from mqcore.cli import run as run_here


@pytest.fixture
def certificates(tmp_path):
    """Files of a server, of a client that it knows and of one that it does not know."""
    pairs = {name: mqcore.security.curve_keypair() for name in ("server", "ann", "eve")}
    (tmp_path / "known").mkdir()
    for name, pair in pairs.items():
        folder = tmp_path / "known" if name == "ann" else tmp_path
        mqcore.security.save_certificate(folder / f"{name}.key", pair)
    (tmp_path / "password").write_text("open sesame\nand nothing else\n")
    (tmp_path / "wrong").write_text("open\n")
    pairs["folder"] = tmp_path
    return pairs


@contextmanager
def listening(library, pattern, security):
    """security: of a server, or (its keys, the client's public key) for libzmq."""
    if library == "mqcore":
        with mqcore.Context() as context, mqcore.socket(
                pattern, bind="tcp://127.0.0.1:0", context=context, security=security) as s:
            yield s.endpoints[0].url
        return
    keys, client = security
    with zmq.Context() as context:
        judge = ThreadAuthenticator(context)
        judge.start()
        try:
            judge.configure_curve(location=str(client.parent))
            with context.socket(getattr(zmq, pattern.upper())) as s:
                s.linger, s.curve_server, s.curve_secretkey = 0, True, keys.secret.encode()
                yield f"tcp://127.0.0.1:{s.bind_to_random_port('tcp://127.0.0.1')}"
        finally:
            judge.stop()


@pytest.mark.parametrize("library", ["mqcore", "pyzmq"])
@pytest.mark.parametrize("pattern", ["router", "xpub", "pull", "push"])
def test_a_curve_server(certificates, capsys, library, pattern):
    folder, server = certificates["folder"], certificates["server"]
    ann = folder / "known" / "ann.key_secret"
    demands = (mqcore.security.Curve(secret_key=server.secret, allow={certificates["ann"].public})
               if library == "mqcore" else (server, folder / "known" / "ann.key"))

    def diagnose(*args):
        status = run_here(["doctor", url, "-t", "5", *map(str, args)])
        return status, capsys.readouterr().out

    with listening(library, pattern, demands) as url:
        if pattern == "push":   # nobody's messages are taken, so what it is stays its secret
            status, out = diagnose("--server-key", server.public, "--key", ann)
            assert status == 1 and "ok      server key" in out and "FAILED  socket type" in out
            return
        status, out = diagnose("--server-key", folder / "server.key", "--key", ann)
        assert status == 0 and "FAILED" not in out, out
        assert pattern.upper() in out and "CURVE" in out and certificates["ann"].public in out
        if pattern == "router":
            for args, step, said in (
                    ((), "mechanism", "--server-key"),
                    (("--server-key", server.public, "--key", folder / "eve.key_secret"),
                     "credentials", "400"),
                    (("--server-key", certificates["eve"].public, "--key", ann),
                     "server key", "not its public key"),
                    (("--user", "ann"), "mechanism", "for PLAIN")):
                status, out = diagnose(*args)
                assert status == 1 and f"FAILED  {step}" in out and said in out, out


def test_a_plain_server(certificates, capsys):
    folder = certificates["folder"]
    with listening("mqcore", "pub", mqcore.security.Plain(allow={"ann": "open sesame"})) as url:
        for file, expected in (("password", 0), ("wrong", 1)):
            status = run_here(["doctor", url, "--user", "ann", "--password-file",
                               str(folder / file)])
            out = capsys.readouterr().out
            assert status == expected, out
            assert ("PUB, to us as SUB" if status == 0 else "FAILED  credentials") in out


def test_no_security_where_some_is_expected(certificates, capsys):
    with listening("mqcore", "rep", None) as url:
        status = run_here(["doctor", url, "--server-key", certificates["server"].public])
    assert status == 1 and "FAILED  mechanism    NULL" in capsys.readouterr().out


def test_sockets_with_keys(certificates, start):
    folder = certificates["folder"]
    server = start(*mq("cat", "rep", "--bind", "tcp://127.0.0.1:0", "-n", 1, "-d", "fine",
                       "--key", folder / "server.key_secret", "--allow", folder / "known"))
    url = server.line("err").removeprefix("listening on ")
    ask = ("cat", "req", url, "-d", "how are you?", "--server-key", folder / "server.key")
    refused = threading.Thread(target=lambda: results.append(
        run(*mq(*ask, "-t", 0.5, "--key", folder / "eve.key_secret"))))
    results = []
    refused.start()
    status, out, err = run(*mq(*ask, "-t", 20, "--key", folder / "known" / "ann.key_secret"))
    refused.join()
    assert (status, out) == (0, b"fine\n"), err
    assert results[0][0] == 3 and not results[0][1]
    assert server.result()[0] == 0


@pytest.mark.parametrize(("args", "said"), [
    (["--key", "server.key_secret"], "--allow any"),
    (["--server-key", "server.key", "--key", "known/ann.key"], "no secret key"),
    (["--server-key", "short"], "40 characters"),
    (["--user", "ann", "--server-key", "server.key"], "PLAIN"),
    (["--password-file", "password"], "--user"),
])
def test_what_does_not_go_together(certificates, capsys, monkeypatch, args, said):
    monkeypatch.chdir(certificates["folder"])
    assert run_here(["doctor", "tcp://127.0.0.1:1", *args]) == 2
    assert said in capsys.readouterr().err
