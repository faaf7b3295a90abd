"""Servers for ssh on the loopback: OpenSSH's own, and one of paramiko's that takes a password. Both
have throw-away keys, and `ssh` in PATH reads a configuration of the test's."""

import os
import select
import shutil
import socket
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import paramiko

from mqcore.testing import until
from mqcore.zmq.ssh.tunnel import select_random_ports

SSHD = shutil.which("sshd", path=f"/usr/sbin:/usr/local/sbin:{os.defpath}")


def keygen(path):
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return Path(path)


class Home:
    """Keys, known hosts and an `ssh` that uses them."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.key, self.host_key = keygen(folder / "user"), keygen(folder / "host")
        (folder / ".ssh").mkdir()
        self.known = folder / ".ssh" / "known_hosts"
        self.config = folder / "config"
        self.config.write_text(f"UserKnownHostsFile {self.known}\nGlobalKnownHostsFile none\n"
                               "IdentitiesOnly yes\nIdentityAgent none\nIdentityFile none\n")
        wrapper = folder / "bin" / "ssh"
        wrapper.parent.mkdir()
        wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.config} "$@"\n')
        wrapper.chmod(0o755)
        monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
        monkeypatch.setenv("HOME", str(folder))
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)

    def know(self, port):
        kind, key = self.host_key.with_suffix(".pub").read_text().split()[:2]
        with self.known.open("a") as file:
            file.write(f"[127.0.0.1]:{port} {kind} {key}\n")


class Sshd:
    """OpenSSH's server, for the user that runs the test."""

    def __init__(self, home):
        self.port = select_random_ports(1)[0]
        allowed = home.folder / "allowed"
        shutil.copy(home.key.with_suffix(".pub"), allowed)
        config = home.folder / "sshd"
        config.write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {home.host_key}\nPidFile none\n"
            f"AuthorizedKeysFile {allowed}\nStrictModes no\nPasswordAuthentication no\n"
            "KbdInteractiveAuthentication no\nUsePAM no\n")
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        self.log = (home.folder / "sshd.log").open("wb")
        self.process = subprocess.Popen([SSHD, "-D", "-e", "-f", config], stderr=self.log)
        until(self.answers)
        home.know(self.port)
        self.server = f"127.0.0.1:{self.port}"

    def answers(self):
        assert self.process.poll() is None, Path(self.log.name).read_text()
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


class Interface(paramiko.ServerInterface):
    def __init__(self, password):
        self.password = password
        self.targets = {}

    def get_allowed_auths(self, username):
        return "password"

    def check_auth_password(self, username, password):
        good = username == "me" and password == self.password
        return paramiko.AUTH_SUCCESSFUL if good else paramiko.AUTH_FAILED

    def check_channel_request(self, kind, chanid):
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel, command):
        return True         # it never ends: ssh waits for it

    def check_channel_direct_tcpip_request(self, chanid, origin, destination):
        self.targets[chanid] = destination
        return paramiko.OPEN_SUCCEEDED


class PasswordServer:
    """Lets "me" in with the password, and forwards."""

    def __init__(self, home, password):
        self.password = password
        self.key = paramiko.Ed25519Key(filename=str(home.host_key))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        home.know(self.port)
        self.server = f"me@127.0.0.1:{self.port}"
        self.transports, self.ended = [], False
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def accept(self):
        while not self.ended:
            if not select.select([self.listener], [], [], 0.05)[0]:
                continue
            sock, _ = self.listener.accept()
            transport = paramiko.Transport(sock)
            transport.add_server_key(self.key)
            self.transports.append(transport)
            thread = threading.Thread(target=self.serve, args=(transport,))
            self.threads.append(thread)
            thread.start()

    def serve(self, transport):
        interface = Interface(self.password)
        try:
            transport.start_server(server=interface)
        except (paramiko.SSHException, OSError, EOFError):
            return
        while transport.is_active() and not self.ended:
            channel = transport.accept(0.05)
            target = channel and interface.targets.get(channel.get_id())
            if target:
                thread = threading.Thread(target=self.pump, args=(channel, target))
                self.threads.append(thread)
                thread.start()

    def pump(self, channel, target):
        try:
            far = socket.create_connection(target)
        except OSError:
            channel.close()
            return
        with suppress(OSError, EOFError), far, channel:     # somebody ended the connection
            while not self.ended:
                ready = select.select([far, channel], [], [], 0.05)[0]
                for source, to in ((far, channel), (channel, far)):
                    if source in ready:
                        data = source.recv(65536)
                        if not data:
                            return
                        to.sendall(data)

    def close(self):
        self.ended = True
        for transport in self.transports:
            transport.close()
        for thread in self.threads:
            thread.join()
        for transport in self.transports:
            transport.join()
        self.listener.close()
