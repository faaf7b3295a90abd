"""What this machine has."""

import socket

import pytest


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
        return True
    except OSError:
        return False


ipv6 = pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")
