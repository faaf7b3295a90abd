"""The raw codec by itself: pieces in, parts out as they are, the end, and what is taken back."""

import pytest
from mqcore.testing.native.probe import MORE, Probe

DONE = 17  # MQ_DONE of base/status.pxd


def ready(**options):
    probe = Probe(codec="raw", **options)
    assert probe.start() == b"" and probe.feed(b"") == ("done", 0, b"")
    return probe


@pytest.mark.parametrize("copy", [False, True])
def test_what_is_read_in_one_go_is_a_message(copy):
    probe = ready()
    for size in (1, 56, 57, 5000, 100_000):
        data = bytes(range(256)) * (size // 256 + 1)
        assert probe.decode(data[:size], copy=copy) == ("need_data", [(0, data[:size])])
    assert probe.room == 0
    cut = ready(max_message_size=3)
    pieces = [(0, b"123"), (0, b"456"), (0, b"78")]
    assert cut.decode(b"12345678", cap=2) == ("need_data", pieces)
    assert ready(max_message_size=0).decode(b"ab") == ("need_data", [(0, b"a"), (0, b"b")])


def test_parts_go_out_one_after_the_other():
    probe = ready()
    probe.put(b"head ", b"", b"x" * 20_000, b" tail")
    probe.put(b"next")
    assert probe.encode() == (2, 20_014)
    assert probe.wire() == b"head " + b"x" * 20_000 + b" tail" + b"next"


def test_an_empty_message_ends_it_behind_the_others():
    probe = ready()
    for parts in ((b"a",), (b"",), (b"never",)):
        probe.put(*parts)
    for _ in range(2):                # nothing more is taken while the batch is not written
        probe.encode()
        assert probe.gather() == [b"a"]
    probe.advance(1)
    probe.reset()
    with pytest.raises(RuntimeError, match=f"status {DONE}"):
        probe.encode()
    assert probe.gather() == [] == probe.unsent()


@pytest.mark.parametrize("sent", [0, 1, 5, 6, 30_005, 30_010])
def test_what_was_not_begun_is_taken_back_as_it_was(sent):
    messages = [[b"12345"], [b"a" * 30_000], [b"p", b"", b"q" * 60, b"r"], [b"last"]]
    probe = ready()
    for parts in messages:
        probe.put(*parts)
    probe.encode()
    if sent:
        probe.advance(sent)
    ends = [0, 5, 30_005, 30_067]     # where each begins
    left = [m for m, begin in zip(messages, ends, strict=True) if begin >= sent]
    assert probe.unsent() == [(MORE if at < len(m) - 1 else 0, part)
                              for m in left for at, part in enumerate(m)]
