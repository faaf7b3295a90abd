"""The head of an answer and its body in one write."""

import pytest

from mqcore.http.guarded import Corked


class Transport:
    """What was written, one entry a write."""

    def __init__(self):
        self.writes, self.closed = [], False

    def write(self, data):
        assert not self.closed
        self.writes.append(data)

    def writelines(self, parts):
        self.write(b"".join(parts))

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    abort = close


@pytest.fixture
def transport():
    return Transport()


@pytest.fixture
def corked(transport):
    return Corked(transport)


def test_without_hold_each_write_is_one(transport, corked):
    corked.write(b"head")
    corked.write(b"body")
    assert transport.writes == [b"head", b"body"]


def test_a_head_waits_for_its_body(transport, corked):
    for _ in range(2):
        corked.hold()
        corked.write(b"head")
        corked.write(b"body")
    corked.write(b"more")
    assert transport.writes == [b"headbody", b"headbody", b"more"]


def test_an_empty_body_brings_the_head(transport, corked):
    corked.hold()
    corked.write(b"head")
    corked.write(b"")
    assert transport.writes == [b"head"]


def test_a_close_brings_the_head(transport, corked):
    corked.hold()
    corked.write(b"head")
    corked.close()
    assert transport.writes == [b"head"] and corked.is_closing()
    corked.close()
    assert transport.writes == [b"head"]


def test_nothing_is_written_to_a_closed_connection(transport, corked):
    """An answer may be on its way when the connection is refused."""
    corked.hold()
    transport.close()
    corked.write(b"head")
    corked.write(b"body")
    corked.close()
    assert not transport.writes
