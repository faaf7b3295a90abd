"""Tunnels of the system's ssh program.

Each is a child process: `ssh -L 127.0.0.1:port:host:port server sleep SECONDS`. ssh ends when the
remote command has ended and no connection is left. When the program ends, it ends its tunnels. If
an ssh master already runs (ControlMaster in ssh_config), it does the forwarding instead.

A password never stands in arguments, an environment or a file: ssh asks for it with a script
(SSH_ASKPASS), which reads it from a fifo that only we may open.
"""

from __future__ import annotations

import atexit
import os
import re
import selectors
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 60.0  # seconds until a tunnel is up
PARTING = 5.0  # seconds for ssh to end after a signal
UP = b"mqcore: up\n"
ASKPASS = """#!/bin/sh
case "$1" in
*[Pp]assword*) IFS= read -r word <"${0%/*}/word" && printf '%s\\n' "$word" ;;
*) exit 1 ;;
esac
"""


class Denied(RuntimeError):
    """The server requires a password, or refuses this one."""


class Child:
    """An ssh that runs for us."""

    def __init__(self, arguments: list[str], env: dict[str, str] | None) -> None:
        try:
            # a session of its own: ^C at the terminal is not for it, and it asks no terminal
            self.process = subprocess.Popen(
                ["ssh", *arguments], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, start_new_session=True)
        except FileNotFoundError:
            raise RuntimeError("there is no program ssh: install OpenSSH's client, or use "
                               "paramiko=True") from None
        self.owner = os.getpid()

    def wait_up(self, what: str) -> None:
        """Until its LocalCommand has run, which is when it listens."""
        limit = time.monotonic() + PATIENCE
        said = self._read(limit)
        if UP in said["stdout"]:
            # ssh ignores a closed stderr; an unread one would block it eventually
            self.shut()
            return
        late = time.monotonic() >= limit
        self.end()
        raise failure(what, f"no answer for {PATIENCE:.0f} s" if late else said["stderr"].decode())

    def _read(self, limit: float) -> dict[str, bytes]:
        said = {"stdout": b"", "stderr": b""}
        with selectors.DefaultSelector() as selector:
            for name in said:
                selector.register(getattr(self.process, name), selectors.EVENT_READ, name)
            while UP not in said["stdout"] and selector.get_map() and time.monotonic() < limit:
                # what ssh starts (ProxyCommand) may keep the pipes open when ssh has ended
                ended = self.process.poll() is not None
                found = selector.select(0 if ended else 0.1)
                if ended and not found:
                    break
                for key, _ in found:
                    data = os.read(key.fd, 4096)
                    said[key.data] += data
                    if not data:
                        selector.unregister(key.fileobj)
        return said

    def shut(self) -> None:
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

    def end(self) -> None:
        """Not in a forked child: it is not ours there."""
        if self.owner != os.getpid():
            return
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PARTING)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.shut()


_children: list[Child] = []
_cancels: list[Callable[[], object]] = []  # forwards that a master does for us


def failure(what: str, said: str) -> RuntimeError:
    """ssh's words as an exception."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    kind = Denied if "Permission denied" in said else RuntimeError
    hint = ""
    if "Host key verification failed" in said:
        hint = "; log in once with ssh to see and accept its key"
    return kind(f"{what}: {' / '.join(lines) or 'ssh ended without a word'}{hint}")


def destination(server: str, keyfile: str | None) -> tuple[list[str], str]:
    """ssh's options, and user and host, of "user@host:port"."""
    host, port = split(server)
    options = ["-i", keyfile] if keyfile else []
    if port is not None:
        options += ["-p", str(port)]
    return options, host


def split(server: str) -> tuple[str, int | None]:
    """"user@host", port or None. An IPv6 address with a port stands in brackets."""
    found = re.fullmatch(r"((?:[^@\s]+@)?)(?:\[([^\]\s]+)\]|([^:\s]+))(?::(\d+))?", server)
    if found is None and re.fullmatch(r"(?:[^@\s]+@)?[0-9a-fA-F.]*:[0-9a-fA-F.]*:[0-9a-fA-F:.]*"
                                      r"(?:%\w+)?", server):
        return server, None
    if found is None or server.startswith("-"):
        raise ValueError(f"no ssh server: {server!r}; it is [user@]host[:port]")
    user, bracketed, host, port = found.groups()
    return user + (bracketed or host), int(port) if port else None


def passwordless(server: str, keyfile: str | None) -> bool:
    """Can one log in without typing? RuntimeError if it is not that what fails."""
    options, host = destination(server, keyfile)
    child = Child([*options, "-S", "none", "-o", "BatchMode=yes", "-o",
                   f"ConnectTimeout={PATIENCE:.0f}", "--", host, "true"], None)
    try:
        _, said = child.process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{server}: no answer for {PATIENCE:.0f} s") from None
    finally:
        child.end()
    if child.process.returncode != 255:  # 255 is ssh's own; others are the remote command's
        return True
    error = failure(server, said.decode())
    if isinstance(error, Denied):
        return False
    raise error


def forward(lport: int, remote: str, server: str, keyfile: str | None, password: str | None,
            timeout: float) -> int:
    """127.0.0.1:lport leads to `remote` ("host:port") as seen from the server. Returns the number
    of the process that does it. Denied: a password is needed, or another."""
    reap()
    options, host = destination(server, keyfile)
    what = ["-L", f"127.0.0.1:{lport}:{remote}"]
    if password is None:
        master = _master([*options, "--", host])
        if master is not None:
            _ask(["-O", "forward", *what, *options, "--", host], server)
            _cancels.append(lambda: _run(["-O", "cancel", *what, *options, "--", host]))
            return master
    tail = [*what, *options, "-S", "none", "-o", "ExitOnForwardFailure=yes",
            "-o", "PermitLocalCommand=yes", "-o", f"LocalCommand=echo {UP.decode().strip()}",
            "-o", f"ConnectTimeout={PATIENCE:.0f}",
            "--", host, f"sleep {max(1, round(timeout))}"]
    with _asked(password) as (how, env):
        child = Child([*how, *tail], env)
        child.wait_up(f"a tunnel to {remote} by {server}")
    _children.append(child)
    return child.process.pid


@contextmanager
def _asked(password: str | None) -> Iterator[tuple[list[str], dict[str, str] | None]]:
    """Options and environment for an ssh that answers the question for a password so."""
    if password is None:
        yield ["-o", "BatchMode=yes"], None
        return
    if "\n" in password or "\0" in password:
        raise ValueError("a password is one line")
    with tempfile.TemporaryDirectory(prefix="mqcore-ssh-") as folder:
        script, fifo = Path(folder, "ask"), Path(folder, "word")
        script.write_text(ASKPASS)
        script.chmod(0o700)
        os.mkfifo(fifo, 0o600)
        fd = os.open(fifo, os.O_RDWR | os.O_CLOEXEC)  # the word lies in the kernel's buffer
        try:
            os.write(fd, password.encode() + b"\n")
            env = {**os.environ, "SSH_ASKPASS": str(script), "SSH_ASKPASS_REQUIRE": "force"}
            env.setdefault("DISPLAY", ":0")  # before OpenSSH 8.4 it asks with a script only so
            yield ["-o", "NumberOfPasswordPrompts=1"], env
        finally:
            os.close(fd)


def _run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ssh", *arguments], capture_output=True, text=True, timeout=PATIENCE,
                          stdin=subprocess.DEVNULL)


def _ask(arguments: list[str], server: str) -> None:
    answer = _run(arguments)
    if answer.returncode:
        raise failure(f"the master of {server}, asked for {shlex.join(arguments[:4])}",
                      answer.stderr)


def _master(arguments: list[str]) -> int | None:
    """The process number of the master that ssh_config names and that runs."""
    try:
        answer = _run(["-O", "check", *arguments])
    except FileNotFoundError:  # said when the tunnel is tried
        return None
    found = re.search(r"pid=(\d+)", answer.stderr + answer.stdout)
    return int(found[1]) if found and answer.returncode == 0 else None


def reap() -> None:
    """Forget tunnels that have ended."""
    for child in tuple(_children):
        if child.owner != os.getpid() or child.process.poll() is not None:
            _children.remove(child)


@atexit.register
def end_all() -> None:
    """End every tunnel of this process."""
    while _children:
        _children.pop().end()
    owned, _cancels[:] = tuple(_cancels), []
    for cancel in owned:
        try:
            cancel()
        except (OSError, subprocess.SubprocessError):  # the master is gone
            pass
