"""Ports that nothing else takes, for every listener of ours that asks for port 0 in the tests.

The kernel gives port 0 a number of the range that outgoing connections get theirs from. A test that
closes a listener and binds the same port again then fails now and then: with several workers, some
other test's connection has the port by then. install() takes the ports from below that range, from
a part of it that is this worker's own.
"""

import contextlib
import errno
import os
import random
import socket
from pathlib import Path

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST, WORKERS = 10_240, 8
UNUSED = []     # ports that free_port() has not given out yet


def first_ephemeral():
    try:
        return int(RANGE.read_text().split()[0])
    except (OSError, ValueError):
        return 32_768


def own_ports(worker):
    """The ports of a worker ("gw0", "gw1" ...; "" for a run without), none if there is no room."""
    size = (first_ephemeral() - LOWEST) // WORKERS
    number = int(worker.removeprefix("gw") or 0) % WORKERS
    return range(LOWEST + number * size, LOWEST + (number + 1) * size) if size > 1000 else range(0)


def free_port():
    """One of this worker's, for a program that must be told its port. The same one comes again
    only when all others were given out."""
    for _ in range(100):
        if not UNUSED:
            ports = own_ports(os.environ.get("PYTEST_XDIST_WORKER", ""))
            UNUSED.extend(random.sample(ports, len(ports)) or [0])
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind(("127.0.0.1", UNUSED.pop()))
            return sock.getsockname()[1]
    raise AssertionError("no port is free")


def install():
    """From now on mqcore's TCP listeners of this process take these ports in turn."""
    from mqcore.transports import tcp

    ports = own_ports(os.environ.get("PYTEST_XDIST_WORKER", ""))
    if not ports:
        return
    turn = random.SystemRandom().randrange(len(ports))
    bound = tcp._bound

    def next_free(family, sockaddr, options):
        nonlocal turn
        if sockaddr[1]:
            return bound(family, sockaddr, options)
        for _ in ports:
            turn += 1
            place = (sockaddr[0], ports[turn % len(ports)], *sockaddr[2:])
            try:
                return bound(family, place, options)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        return bound(family, sockaddr, options)

    tcp._bound = next_free
