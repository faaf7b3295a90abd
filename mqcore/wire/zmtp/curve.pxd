"""CURVE's state and its handshake (RFC 25 and 26): see curve.pyx. Its traffic: curve_codec.pyx."""

from libc.stdint cimport uint8_t, uint64_t

from mqcore.base.sodium cimport Sodium
from mqcore.wire.zmtp.greeting cimport Zmtp
from mqcore.wire.zmtp.mechanism cimport MechanismOps

cdef enum:
    COOKIE = 96
    MESSAGE_LEAD = 33         # of a MESSAGE: its name, a nonce, a MAC, its flags; then the body

cdef struct Curve:
    Zmtp z
    const Sodium* na
    uint8_t[32] secret        # ours, of this connection; cleared when `key` is there
    uint8_t[32] public
    uint8_t[32] peer          # the peer's public key of this connection
    uint8_t[32] first         # what HELLO and WELCOME are boxed with
    uint8_t[32] cookie_key    # the server's, from WELCOME to INITIATE
    uint8_t[32] key           # what everything after that is boxed with
    uint64_t said             # the last nonce of ours, of the peer's
    uint64_t heard

cdef const MechanismOps* curve_ops() noexcept nogil
# A nonce: 16 bytes of text and a number.
cdef void curve_nonce(uint8_t* out, const char* text, uint64_t number) noexcept nogil
# Nothing secret stays.
cdef void curve_forget(Curve* c) noexcept nogil
