"""The options in the URL that `mq doctor` tests. It reads them as a socket does. Those that the
kernel may refuse, congestion_control and bind_device, it sets on its own raw socket.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterable, Mapping
from typing import Any

import mqcore as mq
from mqcore.options import CORE, parse_query
from mqcore.spi.transport import kernel_name

OFFERED = "/proc/sys/net/ipv4/tcp_{}_congestion_control"
NAME_MAX = 16  # bytes of either name including the zero byte (TCP_CA_NAME_MAX, IFNAMSIZ)


class Wrong(Exception):
    """An option is not correct, or the kernel refuses it: what is wrong, and what to do."""

    def __init__(self, found: str, advice: str) -> None:
        super().__init__(found)
        self.found = found
        self.advice = advice


def read(query: Iterable[tuple[str, str]], all_known: bool) -> dict[str, Any]:
    """The options of a parsed URL's query. `all_known`: what is not mqcore's own is a mistake.
    Otherwise a plug-in may know it, and it is left out."""
    try:
        return parse_query(pair for pair in query if all_known or pair[0] in CORE)
    except mq.Error as error:
        raise Wrong(error.text, error.hint or "correct the value in the URL") from None


def to_set(options: Mapping[str, Any]) -> list[str]:
    """What apply() sets, as words."""
    return [f"{name}={options[name]}" for name in KERNEL if options.get(name)]


def apply(sock: socket.socket, options: Mapping[str, Any]) -> None:
    """Set them on a socket that is not connected yet."""
    for name, (level, number, missing, explain) in KERNEL.items():
        value = options.get(name)
        if not value:
            continue
        raw = kernel_name(value, NAME_MAX)
        try:
            if raw is None:
                raise OSError(missing, os.strerror(missing))
            sock.setsockopt(level, number, raw)
        except OSError as error:
            why, advice = explain(error.errno)
            raise Wrong(f"{name}={value!r}: {why or error.strerror}", advice) from None


def _algorithm(number: int | None) -> tuple[str, str]:
    which = "available" if number == errno.ENOENT else "allowed"
    try:
        with open(OFFERED.format(which), encoding="ascii") as file:
            offered = ", ".join(sorted(file.read().split()))
    except OSError:  # a sandbox without /proc/sys
        offered = "the names are not readable here"
    setting = f"net.ipv4.tcp_{which}_congestion_control: {offered}"
    if number == errno.ENOENT:
        return ("the kernel has no such algorithm",
                f"use one that the system offers ({setting}), or load its kernel module")
    return ("this process may not choose it" if number == errno.EPERM else "",
            f"use one that every process may choose ({setting}), or leave the option out")


def _device(number: int | None) -> tuple[str, str]:
    if number == errno.ENODEV:
        devices = ", ".join(name for _, name in socket.if_nameindex())
        return ("this machine has no such network device",
                f"use one of its devices ({devices}), or leave the option out")
    return ("this process may not choose a device" if number == errno.EPERM else "",
            "run it with the capability CAP_NET_RAW, or leave the option out")


KERNEL = {
    "bind_device": (socket.SOL_SOCKET, socket.SO_BINDTODEVICE, errno.ENODEV, _device),
    "congestion_control": (socket.IPPROTO_TCP, socket.TCP_CONGESTION, errno.ENOENT, _algorithm),
}
