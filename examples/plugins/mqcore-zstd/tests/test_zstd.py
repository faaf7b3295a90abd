"""The suite of all filters, that of all transports over a compressed stream, and what is peculiar
to this one."""

import pytest
from mqcore_zstd import Session

from mqcore import OptionError
from mqcore.spi.filter import Refused
from mqcore.testing import FilterSuite, TransportSuite

LIMIT = 1 << 20


class TestZstd(FilterSuite):
    filter = "zstd"


class TestZstdAtWork(TransportSuite):
    scheme = "zstd+tcp"
    bad = ("127.0.0.1", ("*:1", "connect"))

    def url(self, tmp_path):
        return "zstd+tcp://127.0.0.1:0"

    def wildcard(self, tmp_path):
        return "zstd+tcp://*:0"


def session(limit=LIMIT):
    return Session(3, limit)


def test_each_send_is_readable_at_once_and_smaller():
    near, far = session(), session()
    for body in (b"a" * 10_000, b"b", bytes(range(256)) * 100):
        near.send(memoryview(body)[:1])
        near.send(memoryview(body)[1:])
        packed = near.outgoing()
        assert far.receive(packed) == body
        assert len(packed) < len(body) / 5 or len(body) == 1
        assert near.outgoing() == b""


def test_a_small_frame_that_unpacks_to_much_is_refused():
    near, far = session(), session()
    near.send(bytes(64 << 20))
    packed = near.outgoing()
    assert len(packed) < 10_000
    with pytest.raises(Refused, match="zstd_limit=1048576"):
        far.receive(packed)


@pytest.mark.parametrize("data", [b"\xff\0\0\0", b"(\xb5/\xfe", b"(\xb5/\xfd\x08" + bytes(20)])
def test_what_is_no_frame_is_refused(data):
    with pytest.raises(Refused):
        session().receive(data)


def test_options_are_checked_at_bind(mq_context):
    pull = mq_context.socket("pull")
    with pytest.raises(OptionError, match="1 to 19, not 20"):
        pull.bind("zstd+tcp://127.0.0.1:0", zstd_level=20)


@pytest.mark.parametrize("bound, connected, words", [
    ("zstd+tcp", "tcp", "does its address begin with zstd+ too"),
    ("tcp", "zstd+tcp", "speaks zstd, not ZMTP"),
])
def test_a_peer_without_the_filter_is_told_apart(mq_context, bound, connected, words):
    pull, push = mq_context.socket("pull"), mq_context.socket("push")
    with pull.events() as events:
        at = pull.bind(f"{bound}://127.0.0.1:0").url.partition("://")[2]
        push.connect(f"{connected}://{at}")
        while words not in str(events.get(20)):
            pass
