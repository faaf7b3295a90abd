"""fd:// passes the suite of transports, with descriptors of Unix sockets."""

import contextlib
import os
import socket

import pytest

import mqcore as mq
from mqcore.spi.url import parse
from mqcore.testing import TransportSuite


class TestFd(TransportSuite):
    """Listening Unix sockets, and connections to them, as numbers."""

    scheme = "fd"
    bad = ("", "a:b", "a b", "-\u00e4", "x" * 256)

    @pytest.fixture(autouse=True)
    def given(self):
        """Sockets for the plug-in to take; what it did not take is closed here."""
        self.made = {}
        yield
        for number, inode in self.made.items():
            with contextlib.suppress(OSError):
                if os.fstat(number).st_ino == inode:
                    os.close(number)

    def hand_over(self, sock):
        number = sock.detach()
        self.made[number] = os.fstat(number).st_ino
        return f"fd://{number}"

    def url(self, tmp_path):
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(f"{tmp_path}/{len(self.made)}")
        sock.listen(1024)
        return self.hand_over(sock)

    def dial(self, stream, address):
        listener = socket.socket(fileno=int(address))
        path = listener.getsockname()
        listener.detach()
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(path)
        return sock

    def connect_url(self, endpoint):
        return self.hand_over(self.dial(self.plugin, parse(endpoint.url).address))

    def gaps(self):
        return {**super().gaps(), "descriptors": "it makes none, and names go by their family"}

    def test_unbind_frees_the_address_at_once(self, bed):
        """There is no address: the descriptor is closed."""
        r = bed.socket(self.receiver)
        at = bed.bind(r)
        r.unbind(at)
        with pytest.raises(mq.AddressError, match="is not open"):
            r.bind(at.url)

    def test_names_of_both_ends(self, bed):
        """Both go by the name of their family."""
        s, r = bed.linked()
        [there], [here] = s.peers(), r.peers()
        assert there.endpoint == s.endpoints[0].url and here.endpoint == r.endpoints[0].url
        assert there.address == here.address and there.address.startswith("ipc://")
