"""Tunnels: connect() to a port that a server behind ssh can reach and we cannot.

With OpenSSH's program, or in a child process with paramiko. A server is "[user@]host[:port]".
"""

from __future__ import annotations

import getpass
import multiprocessing
import socket as pysocket
import sys
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from mqcore.zmq.borrowed import lend
from mqcore.zmq.ssh import openssh
from mqcore.zmq.ssh.forward import serve

TRIES = 3  # ports to try, because another process may take the free port first


def select_random_ports(n: int) -> list[int]:
    """n ports that are free on 127.0.0.1 now."""
    sockets = []
    try:
        for _ in range(n):
            sockets.append(pysocket.socket())
            sockets[-1].bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def try_passwordless_ssh(server: str, keyfile: str | None = None, paramiko: bool | None = None
                         ) -> bool:
    """Whether one can log in without a password. paramiko: with it, not with ssh (None: on
    Windows). RuntimeError if the server cannot be reached or its key is not known."""
    if not _use_paramiko(paramiko):
        return openssh.passwordless(server, keyfile)
    try:
        _login(server, keyfile, None).close()
    except openssh.Denied:
        return False
    return True


def tunnel_connection(socket: Any, addr: str, server: str, keyfile: str | None = None,
                      password: str | None = None, paramiko: bool | None = None,
                      timeout: int = 60) -> BaseProcess | int:
    """socket.connect() to `addr` as the server sees it. Returns what open_tunnel() does of the
    tunnel."""
    url, tunnel = open_tunnel(addr, server, keyfile, password, paramiko, timeout)
    socket.connect(url)
    return tunnel


def open_tunnel(addr: str, server: str, keyfile: str | None = None, password: str | None = None,
                paramiko: bool | None = None, timeout: int = 60) -> tuple[str, BaseProcess | int]:
    """(a local address that leads to `addr`, the tunnel): a process number, with paramiko a
    Process. A tunnel ends `timeout` seconds after its last connection, and with this program.
    Without a key or password, ssh asks for the password on the terminal."""
    transport, _, place = addr.partition("://")
    host, _, port = place.rpartition(":")
    if transport != "tcp" or not host or not port.isdecimal():
        raise ValueError(f"ssh leads to tcp://host:port, not to {addr!r}")
    open_one = paramiko_tunnel if _use_paramiko(paramiko) else openssh_tunnel
    for tries in range(1, TRIES + 1):
        lport = select_random_ports(1)[0]
        try:
            return (f"tcp://127.0.0.1:{lport}",
                    open_one(lport, int(port), server, host.strip("[]"), keyfile, password,
                             timeout))
        except RuntimeError as error:
            if "in use" not in str(error) or tries == TRIES:
                raise
    raise AssertionError("unreachable")


def openssh_tunnel(lport: int, rport: int, server: str, remoteip: str = "127.0.0.1",
                   keyfile: str | None = None, password: str | None = None, timeout: int = 60
                   ) -> int:
    """127.0.0.1:lport leads to remoteip:rport as the server sees it, by the program ssh. Returns
    its process number."""
    remote = f"[{remoteip}]:{rport}" if ":" in remoteip else f"{remoteip}:{rport}"
    try:
        return openssh.forward(lport, remote, server, keyfile, password, timeout)
    except openssh.Denied:
        if password is not None or not sys.stdin.isatty():
            raise
    password = getpass.getpass(f"{server}'s password: ")
    return openssh.forward(lport, remote, server, keyfile, password, timeout)


def paramiko_tunnel(lport: int, rport: int, server: str, remoteip: str = "127.0.0.1",
                    keyfile: str | None = None, password: str | None = None, timeout: int = 60
                    ) -> BaseProcess:
    """The same in a child process with paramiko, which this returns. ImportError without it."""
    import_paramiko()
    if password is None and not try_passwordless_ssh(server, keyfile, paramiko=True):
        if not sys.stdin.isatty():
            raise openssh.Denied(f"{server}: Permission denied without a password")
        password = getpass.getpass(f"{server}'s password: ")
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(
        target=_serve, name="mqcore-ssh", daemon=True,
        args=(theirs, lport, rport, server, remoteip, keyfile, password, timeout))
    process.start()
    theirs.close()
    with ours:
        said = ours.recv() if ours.poll(openssh.PATIENCE) else "no answer"
    if said:
        process.terminate()
        process.join()
        kind = openssh.Denied if "Permission denied" in said else RuntimeError
        raise kind(f"a tunnel to {remoteip}:{rport} by {server}: {said}")
    return process


ssh_tunnel = paramiko_tunnel if sys.platform == "win32" else openssh_tunnel


def _serve(pipe: Connection, lport: int, rport: int, server: str, remoteip: str,
           keyfile: str | None, password: str | None, timeout: float) -> None:
    """The child process: it says "" once it listens, or what went wrong."""
    up = False

    def listening() -> None:
        nonlocal up
        up = True
        pipe.send("")
        pipe.close()

    try:
        with _login(server, keyfile, password) as client:
            serve(lport, remoteip, rport, client.get_transport(), timeout, listening)
    except (RuntimeError, OSError) as error:
        if up:
            raise
        pipe.send(str(error) or type(error).__name__)
    except KeyboardInterrupt:
        pass


def _login(server: str, keyfile: str | None, password: str | None) -> Any:
    """A client of paramiko's. Denied, or RuntimeError with what failed."""
    paramiko = import_paramiko()
    name, port = openssh.split(server)
    user, _, host = name.rpartition("@")
    client = paramiko.SSHClient()
    client.load_system_host_keys()  # a server whose key is unknown is refused, as by ssh
    try:
        client.connect(host, port or 22, user or None, key_filename=keyfile, password=password,
                       look_for_keys=keyfile is None, timeout=openssh.PATIENCE)
    except paramiko.AuthenticationException as error:
        client.close()
        raise openssh.Denied(f"{server}: Permission denied: {error}") from error
    except (paramiko.SSHException, OSError) as error:
        client.close()
        if password is None and "No authentication methods" in str(error):
            raise openssh.Denied(f"{server}: Permission denied: {error}") from error
        raise RuntimeError(f"{server}: {error}") from error
    return client


def import_paramiko() -> Any:
    try:
        import paramiko
    except ImportError as error:
        raise ImportError("this needs paramiko: pip install paramiko; or use OpenSSH's program "
                          "(paramiko=False)") from error
    return paramiko


def _use_paramiko(paramiko: bool | None) -> bool:
    return sys.platform == "win32" if paramiko is None else paramiko


__all__ = ["openssh_tunnel", "paramiko_tunnel", "ssh_tunnel", "try_passwordless_ssh",
           "tunnel_connection"]


__getattr__ = lend(__name__)
