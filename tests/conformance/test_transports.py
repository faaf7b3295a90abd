"""Every built-in transport passes the suite that anybody's must. A new one is three lines."""

from mqcore.testing import TransportSuite


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
