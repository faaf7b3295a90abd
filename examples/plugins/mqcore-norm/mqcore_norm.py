"""norm://interface;group:port: reliable multicast (NORM, RFC 5740) by libnorm, with forward error
correction, and congestion control if asked. For PUB, XPUB, SUB and XSUB of mqcore.

bind() and connect() do the same: no connection exists, and all sources of a group are one peer.
mqcore/spi/multicast.py says what the interface may be. libnorm runs in a process of its own
(mqcore_norm_process.py). mqcore_norm_engine.pyx moves the messages.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
from collections.abc import Generator

import mqcore_norm_process as process
from mqcore_norm_engine import new_engine

from mqcore import BindError
from mqcore.spi.inet import host_port
from mqcore.spi.message_engine import NativeEngine
from mqcore.spi.multicast import SENDERS, MulticastTransport, open_group
from mqcore.spi.transport import Options

RECV_BUFFER = 4 << 20  # bytes: a receiver that pauses for a moment shall not need repairs
QUEUE = 1 << 20  # bytes between this process and libnorm's
PATIENCE = 30.0  # seconds until that process must have begun
INSTALL = "install libnorm 1.5: apt-get install libnorm1"


class NormSocket(socket.socket):
    """The way to the process that runs libnorm."""

    sends = False
    where = ""


class Norm(MulticastTransport):
    scheme = "norm"
    doc = "reliable multicast with error correction and congestion control (NORM)"
    gaps = {**MulticastTransport.gaps, "raw": "libnorm owns the descriptors, in another process"}
    options = (
        *MulticastTransport.options,
        ("norm_rate", "int", 100_000, "kbit/s that a publisher sends at most, repairs included",
         (1, 16_000_000)),
        ("norm_congestion", "bool", False,
         "find the rate by what subscribers report, up to norm_rate, fair to TCP"),
        ("norm_window", "size", 4 << 20,
         "bytes that a publisher keeps for repairs, and a subscriber keeps for each source",
         (1 << 20, 256 << 20)),
        ("norm_mtu", "int", 1400, "bytes of a packet, with its IP header", (256, 9000)),
        ("norm_parity", "int", 0,
         "packets sent with each 48 so that as many losses need no request", (0, process.PARITY)),
    )

    def unavailable(self) -> str:
        if not sys.executable:
            return "libnorm runs in a process of its own, and sys.executable, the Python for it, " \
                   "is not known"
        try:
            process.library()  # only opened: this process calls nothing of it
        except process.Failed as error:
            return f"libnorm cannot be used ({error}); {INSTALL}"
        return ""

    def open(self, sock: socket.socket, role: str,
             options: Options) -> Generator[str, None, NativeEngine]:
        return new_engine(sock.sends)
        yield ""  # no peer will ever connect

    # -- opening -----------------------------------------------------------------------------------

    def open_socket(self, address: str, options: Options) -> NormSocket:
        where = f"cannot open norm://{address}"
        reason = self.unavailable()
        if reason:
            raise BindError(f"{where}: {reason}", errno=errno.ENOSYS)
        found, place, group = open_group(where, address)
        interface = socket.if_indextoname(found.number)
        sends = options["pattern.name"] in SENDERS
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise BindError(f"{where}: {error.strerror}", errno=error.errno) from None
        sock = NormSocket(fileno=ours.detach())
        sock.sends = sends
        sock.where = f"norm://{interface};{host_port(group)}"
        try:
            with theirs:
                for end in (sock, theirs):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, QUEUE)
                start(theirs, self._settings(place, interface, sends, options))
            await_start(sock, where)
        except BaseException:
            sock.close()
            raise
        return sock

    def _settings(self, place, interface: str, sends: bool, options: Options) -> dict:
        return {
            "sends": sends, "again": False, "interface": interface,
            "group": place.host.partition("%")[0], "port": place.port,
            "node": int.from_bytes(os.urandom(4), "big") % 0xfffffffe + 1,
            "rate": options["norm_rate"], "congestion": options["norm_congestion"],
            "window": options["norm_window"], "mtu": options["norm_mtu"],
            "parity": options["norm_parity"], "hops": options["multicast_hops"],
            "loop": options["multicast_loop"],
            "recv_buffer": options.get("recv_buffer") or RECV_BUFFER,
            "send_buffer": options.get("send_buffer") or 0,
        }


def start(theirs: socket.socket, settings: dict) -> None:
    """The process that runs libnorm; it detaches itself. BindError."""
    try:
        done = subprocess.run(
            [sys.executable, "-IS", process.__file__, str(theirs.fileno()), json.dumps(settings)],
            pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, capture_output=True,
            timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BindError(f"the process for libnorm does not start: {error}",
                        errno=errno.EAGAIN) from None
    if done.returncode:
        raise BindError("the process for libnorm does not start: "
                        f"{done.stderr.decode(errors='replace')[-500:]}", errno=errno.EIO)


def await_start(sock: NormSocket, where: str) -> None:
    """BindError."""
    sock.settimeout(PATIENCE)
    reply = b""
    with contextlib.suppress(TimeoutError, ConnectionError):
        reply = sock.recv(process.PACKET)
    sock.setblocking(False)
    if reply[:1] in (process.OPEN, process.AGAIN):
        return
    if reply[:1] == process.FAILED:
        reason = reply[1:].decode(errors="replace")
        raise BindError(f"{where}: {reason}", errno=errno.EIO,
                        hint="`ip link` shows whether the interface is up; a large norm_window "
                             "takes several times as much memory")
    raise BindError(f"{where}: the process for libnorm says nothing", errno=errno.ETIMEDOUT)


norm = Norm()
