"""Noise_XXpsk0_25519_ChaChaPoly_SHA256 against an independent implementation, a published vector,
and bytes that are wrong in every way."""

import random

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from noise.connection import Keypair, NoiseConnection

from mqcore.base.aead import SmallAead
from mqcore.cluster import crypto
from mqcore.cluster.errors import NoiseError
from mqcore.cluster.noise import MAX_NONCE, MESSAGE, PROTOCOL, Cipher, Handshake

PSK = bytes(range(4, 36))
PROLOGUE = b"mqcore test"


def counting(start):
    return bytes(range(start, start + 32))


def pair(psk=PSK, **of_both):
    return Handshake(True, psk, **of_both), Handshake(False, psk, **of_both)


def shake(left, right, payloads=(b"", b"", b"")):
    for payload in payloads:
        assert right.read_message(left.write_message(payload)) == payload
        left, right = right, left


def oracle(initiator, psk=PSK, static=None):
    other = NoiseConnection.from_name(PROTOCOL)
    (other.set_as_initiator if initiator else other.set_as_responder)()
    other.set_psks(psk=psk)
    other.set_prologue(PROLOGUE)
    other.set_keypair_from_private_bytes(Keypair.STATIC, static or counting(1))
    other.start_handshake()
    return other


# -- the other implementation --------------------------------------------------------------------

@pytest.mark.parametrize("initiator", [True, False], ids=["initiator", "responder"])
@pytest.mark.parametrize("payload", [b"", b"x", bytes(1000)], ids=len)
def test_against_the_independent_implementation(initiator, payload):
    ours = Handshake(initiator, PSK, prologue=PROLOGUE)
    other = oracle(not initiator)
    for turn in range(3):
        if (turn % 2 == 0) is initiator:
            assert other.read_message(ours.write_message(payload)) == payload
        else:
            assert ours.read_message(bytes(other.write_message(payload))) == payload
    assert ours.done and other.handshake_finished
    assert ours.handshake_hash == other.get_handshake_hash()
    assert ours.remote_static == Handshake(True, PSK, counting(1)).static_public
    sending, receiving = ours.split()
    for number in range(5):
        data = b"%d" % number * number
        assert other.decrypt(sending.encrypt(b"", data)) == data
        assert receiving.decrypt(b"", other.encrypt(data)) == data
    sending.rekey()
    other.rekey_inbound_cipher()
    assert other.decrypt(sending.encrypt(b"", b"after rekey")) == b"after rekey"
    receiving.rekey()
    other.rekey_outbound_cipher()
    assert receiving.decrypt(b"", other.encrypt(b"after rekey")) == b"after rekey"


def test_a_published_vector():
    """The expected third message of snow's test_XXpsk0_expected_value (tests/general.rs)."""
    left = Handshake(True, counting(4), counting(0), bytes([1, 2, 3]), _ephemeral=counting(32))
    right = Handshake(False, counting(4), counting(1), bytes([1, 2, 3]), _ephemeral=counting(33))
    first = left.write_message(b"abc")
    assert len(first) == 51 and right.read_message(first) == b"abc"
    second = right.write_message(b"defg")
    assert len(second) == 100 and left.read_message(second) == b"defg"
    third = left.write_message()
    assert third.hex() == (
        "072b7bbd237ac602c4aa938db36998f31ca4750752d1758d59850c627d0bdbc5"
        "1205592c3baa101b4a31f062695b7c1dbee99d5123fbd2ad03052078c570e028")
    assert right.read_message(third) == b""


# -- keys ----------------------------------------------------------------------------------------

def test_both_ends_agree():
    left, right = pair()
    shake(left, right, (b"a", b"b", b"c"))
    assert left.remote_static == right.static_public and right.remote_static == left.static_public
    assert left.handshake_hash == right.handshake_hash
    to_right, from_right = left.split()
    to_left, from_left = right.split()
    assert from_left.decrypt(b"ad", to_right.encrypt(b"ad", b"hello")) == b"hello"
    assert from_right.decrypt(b"", to_left.encrypt(b"", b"hello")) == b"hello"


def test_a_wrong_key_fails_at_the_first_message():
    left, right = Handshake(True, PSK), Handshake(False, bytes(32))
    with pytest.raises(NoiseError, match="another cluster key") as caught:
        right.read_message(left.write_message())
    assert caught.value.reason == "authentication"
    assert right.remote_static is None
    with pytest.raises(NoiseError) as caught:
        right.write_message()
    assert caught.value.reason == "order"


def test_a_responder_finds_the_key_among_several():
    others = [bytes([n]) * 32 for n in range(5)]
    left, right = Handshake(True, PSK), Handshake(False, [*others, PSK])
    shake(left, right)
    assert right.psk_index == 5
    with pytest.raises(NoiseError):
        Handshake(True, [PSK, PSK])
    with pytest.raises(NoiseError):
        Handshake(False, [PSK] * 9)


def test_another_prologue_fails():
    left, right = Handshake(True, PSK, prologue=b"1"), Handshake(False, PSK, prologue=b"2")
    with pytest.raises(NoiseError):
        right.read_message(left.write_message())


@pytest.mark.parametrize("point", [bytes(32), b"\1" + bytes(31)], ids=["zero", "one"])
def test_points_of_small_order_are_refused(point):
    """A peer that knows the key and sends such a point gets no shared secret of zeros."""
    left, right = pair()
    left._ephemeral = type("Fake", (), {"public_key": lambda self: self,
                                        "public_bytes_raw": lambda self: point})()
    right.read_message(left.write_message())
    with pytest.raises(NoiseError) as caught:
        right.write_message()
    assert caught.value.reason == "key"


@pytest.mark.parametrize("arguments", [
    {"psk": b"short"}, {"psk": []}, {"psk": PSK, "static": b"short"}])
def test_bad_arguments(arguments):
    with pytest.raises(NoiseError) as caught:
        Handshake(True, **arguments)
    assert caught.value.reason == "key"


def test_nothing_secret_is_shown():
    left, right = pair(static=counting(7))
    shake(left, right)
    for thing in (left, left.split()[0]):
        assert PSK.hex() not in repr(thing) and counting(7).hex() not in repr(thing)
        assert str(PSK) not in repr(thing)


# -- bad bytes -----------------------------------------------------------------------------------

def at_message(turn):
    """(the writer, the reader) of that message."""
    left, right = pair()
    for _ in range(turn):
        right.read_message(left.write_message())
        left, right = right, left
    return left, right


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_cut_messages(turn):
    writer, _ = at_message(turn)
    whole = len(writer.write_message(b"payload"))
    for size in range(whole):
        writer, reader = at_message(turn)
        with pytest.raises(NoiseError) as caught:
            reader.read_message(writer.write_message(b"payload")[:size])
        assert caught.value.reason in {"size", "authentication"}


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_changed_and_long_messages(turn):
    chance = random.Random(turn)
    for _ in range(100):
        writer, reader = at_message(turn)
        message = bytearray(writer.write_message(b"payload"))
        message[chance.randrange(len(message))] ^= 1 << chance.randrange(8)
        # X25519 ignores the top bit of a point, but the transcript does not
        with pytest.raises(NoiseError):
            reader.read_message(bytes(message))
    writer, reader = at_message(turn)
    with pytest.raises(NoiseError):
        reader.read_message(writer.write_message() + b"x")
    _, reader = at_message(turn)
    with pytest.raises(NoiseError) as caught:
        reader.read_message(bytes(MESSAGE + 1))
    assert caught.value.reason == "size"
    writer, _ = at_message(turn)
    with pytest.raises(NoiseError) as caught:
        writer.write_message(bytes(MESSAGE - TAGS[turn] + 1))
    assert caught.value.reason == "size"
    writer, reader = at_message(turn)
    reader.read_message(writer.write_message(bytes(MESSAGE - TAGS[turn])))


TAGS = [48, 96, 64]     # bytes of each message without payload


def test_calls_in_the_wrong_order():
    left, right = pair()
    for wrong in (lambda: left.read_message(b""), left.split, lambda: left.handshake_hash,
                  right.write_message):
        with pytest.raises(NoiseError) as caught:
            wrong()
        assert caught.value.reason == "order"
    shake(left, right)
    left.split()
    for wrong in (left.split, left.write_message, lambda: left.read_message(b"")):
        with pytest.raises(NoiseError) as caught:
            wrong()
        assert caught.value.reason == "order"


# -- ciphers -------------------------------------------------------------------------------------

@pytest.fixture
def aeads():
    """The two libraries' ciphers for one key."""
    other = ChaCha20Poly1305(PSK)
    return SmallAead(PSK, other, InvalidTag), other


@pytest.mark.parametrize("ad", [None, b"", b"ad", bytes(100)])
@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1007, 1008, 1023, 1024, 5000])
def test_both_libraries_seal_alike(aeads, size, ad):
    nonce, plain = bytes(range(12)), bytes(map(random.randrange, [256] * size))
    sealed = aeads[0].encrypt(nonce, plain, ad)
    assert sealed == aeads[1].encrypt(nonce, plain, ad)
    assert aeads[0].decrypt(nonce, sealed, ad) == plain


@pytest.mark.parametrize("size", [0, 20, 1008, 1200])
def test_a_changed_bit_does_not_open(aeads, size):
    nonce, ad = bytes(12), b"additional"
    sealed = aeads[0].encrypt(nonce, bytes(size), ad)
    for at in (*range(0, len(sealed), 7), len(sealed) - 1):
        with pytest.raises(InvalidTag):
            aeads[0].decrypt(nonce, changed(sealed, at), ad)
    for wrong in ((changed(nonce, 3), sealed, ad), (nonce, sealed, changed(ad, 0)),
                  (nonce, sealed[:-1], ad), (nonce, sealed[:15], ad), (nonce, b"", ad)):
        with pytest.raises(InvalidTag):
            aeads[0].decrypt(*wrong)


def changed(data, at):
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1:]


@pytest.mark.parametrize("wrong", [
    lambda aead: SmallAead(bytes(31), aead, InvalidTag), lambda aead: aead.encrypt(b"", b"", b""),
    lambda aead: aead.decrypt(bytes(13), bytes(16), b""), lambda aead: aead.encrypt(None, b"", b""),
    lambda aead: aead.encrypt(bytes(12), None, b""), lambda aead: aead.decrypt(bytes(12), "", b"")])
def test_what_no_cipher_takes(aeads, wrong):
    with pytest.raises((ValueError, TypeError)):
        wrong(aeads[0])


def test_one_side_has_no_libsodium(monkeypatch):
    here = Cipher(PSK)
    monkeypatch.setattr(crypto, "_SODIUM", False)
    there = Cipher(PSK)
    for size in (0, 50, 2000):
        assert there.decrypt(b"", here.encrypt(b"", bytes(size))) == bytes(size)
        here.rekey()
        there.rekey()


def test_replayed_reordered_and_lost_messages():
    sender, receiver = Cipher(PSK), Cipher(PSK)
    first, second = sender.encrypt(b"", b"1"), sender.encrypt(b"", b"2")
    with pytest.raises(NoiseError):
        receiver.decrypt(b"", second)
    assert receiver.decrypt(b"", first) == b"1"         # a failure has not moved the nonce
    with pytest.raises(NoiseError):
        receiver.decrypt(b"", first)
    with pytest.raises(NoiseError):
        receiver.decrypt(b"other", second)
    assert receiver.decrypt(b"", second) == b"2"


@pytest.mark.parametrize("call", ["encrypt", "decrypt"])
def test_the_last_nonce_is_never_used(call):
    cipher = Cipher(PSK)
    cipher.nonce = MAX_NONCE
    with pytest.raises(NoiseError) as caught:
        getattr(cipher, call)(b"", bytes(16))
    assert caught.value.reason == "nonce"


def test_sizes_of_sealed_messages():
    cipher = Cipher(PSK)
    assert len(cipher.encrypt(b"", bytes(MESSAGE - 16))) == MESSAGE
    for call, size in ((cipher.encrypt, MESSAGE - 15), (cipher.decrypt, 15),
                       (cipher.decrypt, MESSAGE + 1)):
        with pytest.raises(NoiseError) as caught:
            call(b"", bytes(size))
        assert caught.value.reason == "size"
