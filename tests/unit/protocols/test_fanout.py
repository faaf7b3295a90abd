"""One message to many receivers: what they share, and that each gets it once."""

import pytest
from mqcore.protocols import pub, xpub
from mqcore.testing.native.pattern_bench import Bench, Status

both = pytest.mark.parametrize("plugin", [pub.pattern, xpub.pattern])


@both
@pytest.mark.parametrize("parts", [[b"t" * 500], [b"t", b"x" * 500, b"y" * 500]])
def test_receivers_share_a_body_and_the_full_give_it_back(plugin, parts):
    with Bench(plugin) as b:
        fars = [b.attach(hwm=1 + i % 2) for i in range(10)]
        for far in fars:
            far.put_subscribe(b"t")
        for _ in range(3):
            assert b.send(*parts) is Status.OK
        assert b.live_bodies == 2 * sum(len(part) > 56 for part in parts)  # the third: nobody
        assert [far.take_all() for far in fars] == [[parts] * (1 + i % 2) for i in range(10)]
        assert b.live_bodies == 0
        b.check()


@both
def test_a_topic_of_many_beside_a_topic_of_one(plugin):
    """Whether one topic matches or several, each gets it once."""
    with Bench(plugin) as b:
        fars = [b.attach() for _ in range(9)]
        for far in fars:
            far.put_subscribe(b"a")
        fars[3].put_subscribe(b"abc")
        for message, hits in ((b"ab", 9), (b"abc", 9), (b"abcd", 9)):
            b.send(message)
            assert b.query("subscribers", message) == hits
        fars[3].put_cancel(b"a")
        b.send(b"abcde")
        b.send(b"a")
        assert len(fars[3].take_all()) == 4
        assert {len(far.take_all()) for far in fars if far is not fars[3]} == {5}
        b.check()
