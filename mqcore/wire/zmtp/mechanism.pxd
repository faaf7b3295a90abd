"""The interface of a security mechanism in ZMTP's handshake: an exchange of commands after the
greeting.

To add one: a file like plain.pyx with a table of these calls, a row in `mechanism_name`
(security.pyx), and a codec that sets `Zmtp.mechanism`. The holder of the engine's lease calls them.
"""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from mqcore.wire.codec cimport Codec, Verdict

cdef enum:
    FRAME_MORE = 1
    FRAME_LONG = 2
    FRAME_COMMAND = 4

cdef struct MechanismOps:
    # The size of the longest HELLO, for which a server waits at Zmtp.step 0. The peer has proven
    # nothing yet, so no more is buffered for it.
    size_t hello_max
    # Both greetings are complete: say what comes first. MQ_OK, MQ_NOMEM.
    int (*start)(Codec* self) noexcept nogil
    # The peer's next command; its body may be changed. MQ_NEED_DATA: more are to come, or `asking`;
    # MQ_DONE: traffic; MQ_PROTOCOL, MQ_NOMEM.
    int (*take)(Codec* self, uint8_t* body, size_t size) noexcept nogil
    # As CodecOps.judged.
    int (*judged)(Codec* self, const Verdict* verdict) noexcept nogil
    bint meanwhile            # `take` continues during authentication; else the peer must wait

# The header of a frame of `size` bytes into ctl, which then has space for it. MQ_OK, MQ_NOMEM.
cdef int mechanism_frame(Codec* c, uint8_t flags, size_t size) noexcept nogil
# Ask the application to authenticate peer.proof. MQ_NEED_DATA.
cdef int mechanism_ask(Codec* c) noexcept nogil
# We refuse the peer: ERROR into ctl, or nothing if code is 300. `why` ends up in our events.
# `libzmq`: as it spells ERROR itself, where it knows no other spelling. MQ_PROTOCOL.
cdef int mechanism_refuse(Codec* c, int code, const char* why, bint libzmq) noexcept nogil
# PLAIN's password, once it has been judged.
cdef void mechanism_forget(Codec* c) noexcept nogil
