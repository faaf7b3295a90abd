"""The suite of all transports. Where the kernel has no SCTP, what needs a live socket is skipped,
with the reason that the transport itself gives; its contract is always held against it."""

from mqcore.testing import TransportSuite


class TestSctp(TransportSuite):
    scheme = "sctp"
    bad = ("127.0.0.1", "127.0.0.1:x", "256.0.0.1:1", ":1", ("*:1", "connect"),
           ("127.0.0.1:0", "connect"))

    def url(self, tmp_path):
        return "sctp://127.0.0.1:0"

    def wildcard(self, tmp_path):
        return "sctp://*:0"
