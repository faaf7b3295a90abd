"""vsock:// passes the suite of transports, where the kernel has its loopback."""

import socket

from mqcore.testing import TransportSuite


class TestVsock(TransportSuite):
    scheme = "vsock"
    bad = ("", "3", "3:", "x:5", "3:x", "4294967295:5", ("*:5", "connect"), ("3:0", "connect"))
    url = staticmethod(lambda tmp_path: "vsock://local:0")
    wildcard = staticmethod(lambda tmp_path: "vsock://*:*")

    def unavailable(self):
        """It works as far as the host; only the loopback is ours to test."""
        try:
            with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM) as sock:
                sock.bind((1, socket.VMADDR_PORT_ANY))
        except OSError as error:
            return f"this kernel has no vsock loopback ({error.strerror})"
        return ""
