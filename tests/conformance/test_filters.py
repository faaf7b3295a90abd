"""Filters pass the suite that anybody's must, and bad ones do not."""

import zlib

import pytest

from mqcore.spi.filter import FilterSession, Refused, StreamFilter
from mqcore.testing import FilterSuite, installed


class Deflating(FilterSession):
    """Says its name first; then a deflated stream, flushed after each message."""

    established = False
    flush = zlib.Z_SYNC_FLUSH

    def start(self):
        self.out = bytearray(b"DEFL")
        self.head = b""
        self.deflate, self.inflate = zlib.compressobj(), zlib.decompressobj()

    def receive(self, data):
        if not self.established:
            self.head += data
            if not b"DEFL".startswith(self.head[:4]):
                raise Refused("the other side does not deflate")
            if len(self.head) < 4:
                return b""
            self.established, data = True, self.head[4:]
        try:
            return self.inflate.decompress(data)
        except zlib.error as error:
            raise Refused(f"this is no deflated stream: {error}") from None

    def send(self, data):
        self.out += self.deflate.compress(data)

    def outgoing(self):
        if self.established and self.flush is not None:
            self.out += self.deflate.flush(self.flush)
        out, self.out = bytes(self.out), bytearray()
        # a flush that had nothing to say is five bytes all the same
        return b"" if out == b"\0\0\0\xff\xff" else out


class Deflate(StreamFilter):
    name = "deflate"
    doc = "a compressed stream"
    session = Deflating

    def open(self, own, role, options):
        return self.session()


class TestDeflate(FilterSuite):
    filter = "deflate"

    @pytest.fixture
    def mq_installed(self):
        with installed("filter", Deflate()):
            yield


class TestPassThrough(FilterSuite):
    filter = "plain"

    @pytest.fixture
    def mq_installed(self):
        class Plain(StreamFilter):
            name = "plain"
            doc = "nothing in the way"

            def open(self, own, role, options):
                return FilterSession()

        with installed("filter", Plain()):
            yield


# -- the suite can fail ----------------------------------------------------------------------------

class Holds(Deflating):
    flush = None


class Raises(Deflating):
    def receive(self, data):
        if not self.established and not data.startswith(b"D"):
            raise ValueError(data)
        return super().receive(data)


class Greedy(Deflating):
    """Takes it that a handshake comes in one piece."""

    def receive(self, data):
        if not self.established and data != b"DEFL":
            raise Refused("that is no greeting")
        return super().receive(data)


@pytest.mark.parametrize("session, rule", [
    (Holds, "test_every_message_comes_through_at_once"),
    (Raises, "test_nonsense_is_refused_or_waited_for"),
    (Greedy, "test_the_handshake_in_any_pieces"),
])
def test_a_bad_filter_is_found_out(session, rule):
    plugin = Deflate()
    plugin.session = session
    suite = type("Suite", (FilterSuite,), {"filter": "deflate"})()
    with installed("filter", plugin), pytest.raises((AssertionError, ValueError, Refused)):
        getattr(suite, rule)()
