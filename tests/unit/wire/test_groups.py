"""RADIO and DISH on the wire: JOIN and LEAVE, a group's frame in front of the body's. The bytes are
those of libzmq's draft sockets."""

import pytest
from mqcore.testing.native.probe import CANCEL, MORE, SUBSCRIBE

SIGNATURE = bytes.fromhex("ff00000000000000017f")


@pytest.mark.parametrize("name,parts", [
    ("dish_join_initial", [(SUBSCRIBE, b"grp")]),
    ("dish_join", [(SUBSCRIBE, b"g2")]),
    ("dish_leave", [(CANCEL, b"g2")]),
])
def test_a_dish_is_heard(peer, vectors, name, parts):
    text = vectors[name]
    assert peer(pattern="RADIO").decode(text) == ("need_data", parts)
    whole = peer(pattern="RADIO")
    assert [p for b in text for p in whole.decode(bytes([b]))[1]] == parts


@pytest.mark.parametrize("version", [(3, 1), (3, 0)])
def test_a_dish_joins_and_leaves(peer, vectors, version):
    ours = peer(version, "DISH")
    ours.put(b"grp", flags=SUBSCRIBE)
    ours.put(b"g2", flags=SUBSCRIBE)
    ours.put(b"g2", flags=CANCEL)
    assert ours.wire() == (vectors["dish_join_initial"] + vectors["dish_join"]
                           + vectors["dish_leave"])
    assert ours.account["messages"] == 0


def test_messages(peer, vectors):
    ours = peer(pattern="RADIO")
    ours.put(b"news", b"v1")
    assert ours.wire() == vectors["radio_message"]
    assert peer(pattern="DISH").decode(vectors["dish_message_in"]) == (
        "need_data", [(MORE, b"grp"), (0, b"payload")])


def test_words_of_the_others_mean_nothing(peer, vectors):
    assert peer(pattern="RADIO").decode(vectors["zmtp31_subscribe_a"]) == ("need_data", [])
    assert peer(pattern="PUB").decode(vectors["dish_join"]) == ("need_data", [])


def test_a_join_in_the_middle_of_a_message_is_refused(peer, vectors):
    ours = peer(pattern="RADIO")
    assert ours.decode(b"\x01\x01x" + vectors["dish_join"])[0] == "protocol"
    assert "in the middle of a message" in ours.reason


def test_long_groups_have_long_frames(peer):
    ours = peer(pattern="DISH")
    ours.put(b"g" * 255, flags=SUBSCRIBE)
    assert ours.wire() == b"\x06" + (260).to_bytes(8, "big") + b"\x04JOIN" + b"g" * 255


@pytest.mark.parametrize("text", [
    b"\x01\x00",                                  # 1.0: an identity frame
    SIGNATURE + b"\x00\x0f",                      # 1.0 after a revision byte
    SIGNATURE + b"\x01\x0f",                      # 2.0
])
def test_old_peers_cannot_join(probe, text):
    ours = probe("RADIO")
    ours.start()
    assert ours.feed(text)[0] == "protocol"
    assert "which does not know the pattern RADIO" in ours.reason
