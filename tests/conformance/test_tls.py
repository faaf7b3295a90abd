"""TLS passes the suites of a filter and of a transport, with certificates on both sides."""

import pytest

from mqcore.testing import FilterSuite, TransportSuite


class Certified:
    @pytest.fixture(autouse=True)
    def certificates(self, authority):
        self.bind_options = {**authority.server, **authority.ca}
        self.connect_options = {**authority.alice, **authority.ca}


class TestTls(Certified, FilterSuite):
    filter = "tls"


class TestTlsOverTcp(Certified, TransportSuite):
    scheme = "tls+tcp"
    bad = ("", "nothing", "127.0.0.1:x", ("*:5", "connect"))
    url = staticmethod(lambda tmp_path: "tls+tcp://127.0.0.1:0")
    wildcard = staticmethod(lambda tmp_path: "tls+tcp://127.0.0.1:*")
