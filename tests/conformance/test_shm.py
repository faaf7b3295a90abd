"""shm:// passes the suite of transports."""

from mqcore.testing import TransportSuite


class TestShm(TransportSuite):
    scheme = "shm"
    bad = ("", "@", "x" * 200, ("*", "connect"))
    url = staticmethod(lambda tmp_path: f"shm://{tmp_path}/socket")


class TestSmallRings(TransportSuite):
    """Nearly every large message streams through a ring that is smaller, and nobody looks twice."""

    scheme = "shm"
    url = staticmethod(lambda tmp_path: f"shm://{tmp_path}/socket")
    connect_options = {"ring": 65536, "spin": 0}
