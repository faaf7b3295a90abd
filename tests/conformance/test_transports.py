"""Every built-in transport passes the suite that anybody's must. A new one is three lines."""

import pytest

from mqcore.spi.filter import FilterSession, StreamFilter
from mqcore.testing import TransportSuite, installed


class TestTcp(TransportSuite):
    scheme = "tcp"
    bad = ("", "nothing", "127.0.0.1:x", "127.0.0.1:70000", ("*:5", "connect"), "[::1:5")
    url = staticmethod(lambda tmp_path: "tcp://127.0.0.1:0")
    wildcard = staticmethod(lambda tmp_path: "tcp://127.0.0.1:*")


class TestIpc(TransportSuite):
    scheme = "ipc"
    bad = ("", "@", "x" * 200, ("*", "connect"))
    url = staticmethod(lambda tmp_path: f"ipc://{tmp_path}/socket")


class TestInproc(TransportSuite):
    scheme = "inproc"
    bad = ("", "x" * 256)
    url = staticmethod(lambda tmp_path: f"inproc://{tmp_path}")


class TestWs(TransportSuite):
    scheme = "ws"
    bad = ("", "nothing", "127.0.0.1:x", "127.0.0.1:70000/x", ("*:5/x", "connect"),
           "127.0.0.1:1/#x")
    url = staticmethod(lambda tmp_path: "ws://127.0.0.1:0/a/path")
    wildcard = staticmethod(lambda tmp_path: "ws://127.0.0.1:*")


class Plain(StreamFilter):
    """Passes everything through, in Python."""

    name = "plain"
    doc = "nothing in the way"

    def open(self, own, role, options):
        return FilterSession()


class TestPlainTcp(TransportSuite):
    """A filter over a stream, as any filter is tested: only its scheme says so."""

    scheme = "plain+tcp"
    bad = ("nothing", "127.0.0.1:x")
    url = staticmethod(lambda tmp_path: "plain+tcp://127.0.0.1:0")
    wildcard = staticmethod(lambda tmp_path: "plain+tcp://127.0.0.1:*")

    @pytest.fixture
    def mq_installed(self):
        with installed("filter", Plain()):
            yield

    def gaps(self):
        return {**super().gaps(), "processes": "the filter is installed in this one only"}
