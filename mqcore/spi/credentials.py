"""Credentials: which process and user is at the other end of a Unix socket, as the kernel tells
(SO_PEERCRED, unix(7)): when it connected, or began to listen.

A process in a user namespace sees each user who has no number there as the overflow user, 65534
(user_namespaces(7)). So that number identifies no user there, not even the one who has it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from mqcore.base.native import socket

UCRED = struct.Struct("iII")  # struct ucred: pid, uid, gid
OVERFLOW = "/proc/sys/kernel/overflowuid"
ALL = 1 << 32  # user ids, less one that means none


class Credentials(NamedTuple):
    pid: int  # 0: a process that has no number in our pid namespace
    uid: int
    gid: int


def credentials(sock: socket.socket) -> Credentials:
    """Of the peer. Without a peer, pid is 0, and uid and gid are 4294967295."""
    return Credentials(*UCRED.unpack(
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, UCRED.size)))


def is_anybody(uid: int) -> bool:
    """Whether this number may stand for any user that has no number here."""
    try:
        with open(OVERFLOW) as overflow:
            if uid != int(overflow.read()):
                return False
        with open("/proc/self/uid_map") as table:
            return sum(int(row.split()[2]) for row in table) < ALL - 1
    except (OSError, ValueError, IndexError):
        return False
