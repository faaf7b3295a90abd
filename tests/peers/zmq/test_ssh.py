"""zmq.ssh against OpenSSH's server, and a server of paramiko's for passwords."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import mqcore.zmq as ours
from mqcore.testing import until

pytest.importorskip("paramiko")
if shutil.which("ssh") is None or shutil.which("ssh-keygen") is None:
    pytest.skip("OpenSSH's client is not installed", allow_module_level=True)

from sshpeer import SSHD, Home, PasswordServer, Sshd

from mqcore.zmq.ssh import openssh, tunnel

HOW = [pytest.param(False, id="openssh"), pytest.param(True, id="paramiko")]
WORD = "it's a \"secret\" $HOME"


@pytest.fixture
def home(tmp_path, monkeypatch):
    yield Home(tmp_path, monkeypatch)
    openssh.end_all()


@pytest.fixture
def sshd(home):
    if SSHD is None:
        pytest.skip("OpenSSH's server is not installed: apt install openssh-server")
    server = Sshd(home)
    yield server
    server.close()


@pytest.fixture
def guarded(home):
    server = PasswordServer(home, WORD)
    yield server
    server.close()


@pytest.fixture
def rep(make):
    """One that answers behind the tunnel: (socket, address)."""
    made = make(ours, "REP")
    made.bind("tcp://127.0.0.1:*")
    return made, made.last_endpoint.decode()


def talk(req, rep):
    req.send(b"through")
    rep.send(rep.recv() + b" and back")
    assert req.recv() == b"through and back"


def listens(url):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", int(url.rpartition(":")[2]))) == 0


def end(opened):
    if isinstance(opened, int):
        openssh.end_all()
    else:
        opened.terminate()
        opened.join()
        opened.close()


@pytest.mark.parametrize("paramiko", HOW)
def test_a_key(sshd, home, make, rep, paramiko):
    assert tunnel.try_passwordless_ssh(sshd.server, str(home.key), paramiko)
    assert not tunnel.try_passwordless_ssh(sshd.server, str(home.host_key), paramiko)
    req = make(ours, "REQ")
    opened = tunnel.tunnel_connection(req, rep[1], sshd.server, str(home.key), paramiko=paramiko,
                                      timeout=2)
    talk(req, rep[0])
    url = req.last_endpoint.decode()
    assert listens(url)
    end(opened)
    assert not listens(url)


@pytest.mark.parametrize("paramiko", HOW)
def test_a_password(guarded, make, rep, paramiko):
    with pytest.raises(openssh.Denied, match="Permission denied"):
        tunnel.open_tunnel(rep[1], guarded.server, password="wrong", paramiko=paramiko)
    with pytest.raises(openssh.Denied, match="Permission denied"):  # nobody to be asked
        tunnel.open_tunnel(rep[1], guarded.server, paramiko=paramiko)
    req = make(ours, "REQ")
    opened = tunnel.tunnel_connection(req, rep[1], guarded.server, password=WORD,
                                      paramiko=paramiko, timeout=2)
    if not paramiko:
        for what in ("environ", "cmdline"):
            assert b"secret" not in Path(f"/proc/{opened}/{what}").read_bytes()
    talk(req, rep[0])
    end(opened)


@pytest.mark.parametrize("paramiko", HOW)
def test_it_is_asked_for(guarded, make, rep, paramiko, monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    asked = []
    monkeypatch.setattr("getpass.getpass", lambda prompt: asked.append(prompt) or WORD)
    req = make(ours, "REQ")
    opened = tunnel.tunnel_connection(req, rep[1], guarded.server, paramiko=paramiko, timeout=2)
    assert asked == [f"{guarded.server}'s password: "]
    talk(req, rep[0])
    end(opened)


def test_what_goes_wrong(home, monkeypatch):
    port = tunnel.select_random_ports(1)[0]
    for paramiko in (False, True):
        with pytest.raises(RuntimeError, match="(?i)refused|unable to connect"):
            tunnel.try_passwordless_ssh(f"127.0.0.1:{port}", None, paramiko)
    for addr in ("ipc:///x", "tcp://127.0.0.1:*", "tcp://:5", "127.0.0.1:5"):
        with pytest.raises(ValueError, match="ssh leads to tcp://host:port"):
            tunnel.open_tunnel(addr, "somewhere")
    for server in ("", "two words", "-oProxyCommand=true", "host:port", "[::1:22"):
        with pytest.raises(ValueError, match="no ssh server"):
            tunnel.open_tunnel("tcp://127.0.0.1:5", server)
    with pytest.raises(ValueError, match="one line"):
        tunnel.openssh_tunnel(port, 5, "somewhere", password="a\nb")
    monkeypatch.setenv("PATH", str(home.folder / "nowhere"))
    with pytest.raises(RuntimeError, match="no program ssh"):
        tunnel.openssh_tunnel(port, 5, "somewhere")


@pytest.mark.parametrize("server, parts", [
    ("host", ("host", None)), ("me@host:22", ("me@host", 22)), ("[::1]:22", ("::1", 22)),
    ("me@[fe80::1%eth0]:2022", ("me@fe80::1%eth0", 2022)), ("::1", ("::1", None)),
])
def test_servers(server, parts):
    assert openssh.split(server) == parts


def test_a_port_in_use_and_an_unknown_key(sshd, home, rep):
    taken = int(rep[1].rpartition(":")[2])
    with pytest.raises(RuntimeError, match="Address already in use"):
        tunnel.openssh_tunnel(taken, taken, sshd.server, keyfile=str(home.key))
    with pytest.raises(RuntimeError, match="Errno 98"):
        tunnel.paramiko_tunnel(taken, taken, sshd.server, keyfile=str(home.key))
    home.known.write_text("")
    with pytest.raises(RuntimeError, match="Host key verification failed.*; log in once"):
        tunnel.openssh_tunnel(*tunnel.select_random_ports(2), sshd.server, keyfile=str(home.key))
    with pytest.raises(RuntimeError, match="not found in known_hosts"):
        tunnel.paramiko_tunnel(*tunnel.select_random_ports(2), sshd.server, keyfile=str(home.key))


@pytest.mark.parametrize("paramiko", HOW)
def test_an_unused_one_ends(sshd, home, make, rep, paramiko):
    """And one in use does not, whatever ssh has to say about connections that fail."""
    used, first = tunnel.open_tunnel(rep[1], sshd.server, str(home.key), paramiko=paramiko,
                                     timeout=1)
    req = make(ours, "REQ")
    req.connect(used)
    talk(req, rep[0])
    nobody = tunnel.select_random_ports(1)[0]
    url, opened = tunnel.open_tunnel(f"tcp://127.0.0.1:{nobody}", sshd.server, str(home.key),
                                     paramiko=paramiko, timeout=1)
    for _ in range(20):
        assert listens(url)
    if paramiko:
        opened.join()
        assert opened.exitcode == 0
        opened.close()
    else:
        until(lambda: openssh.reap() or len(openssh._children) == 1)
    assert not listens(url)
    talk(req, rep[0])
    end(first)


def test_a_master_is_asked(sshd, home, make, rep):
    control = home.folder / "control"
    home.config.write_text(home.config.read_text() + f"ControlPath {control}\n")
    master = subprocess.Popen(["ssh", "-M", "-N", "-i", home.key, "-p", str(sshd.port),
                               "127.0.0.1"], stderr=subprocess.DEVNULL)
    try:
        until(control.exists)
        req = make(ours, "REQ")
        assert tunnel.tunnel_connection(req, rep[1], sshd.server) == master.pid
        talk(req, rep[0])
        url = req.last_endpoint.decode()
        openssh.end_all()
        assert not listens(url)
        assert master.poll() is None
    finally:
        master.terminate()
        master.wait()


def test_a_tunnel_ends_with_its_program(sshd, home):
    script = ("import sys; from mqcore.zmq.ssh import tunnel\n"
              "print(tunnel.open_tunnel('tcp://127.0.0.1:9', *sys.argv[1:], timeout=2))")
    said = subprocess.run([sys.executable, "-c", script, sshd.server, str(home.key)],
                          capture_output=True, text=True, check=True, env=os.environ).stdout
    url, pid = eval(said)
    assert not listens(url)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
