"""What mechanisms have in common: see mechanism.pxd."""

from libc.string cimport strlen

from mqcore.base.bytes cimport bytes_append, bytes_fini, bytes_reserve
from mqcore.base.cursor cimport store_be64
from mqcore.base.includes cimport explicit_bzero
from mqcore.base.status cimport MQ_NEED_DATA, MQ_OK
from mqcore.wire.codec cimport ASKING_NEW
from mqcore.wire.zmtp.ready cimport refuse_with


cdef int mechanism_frame(Codec* c, uint8_t flags, size_t size) noexcept nogil:
    cdef uint8_t[9] header
    cdef int rc
    if size <= 255:
        header[0] = flags
        header[1] = <uint8_t> size
        rc = bytes_append(&c.ctl, header, 2)
    else:
        header[0] = flags | FRAME_LONG
        store_be64(header + 1, size)
        rc = bytes_append(&c.ctl, header, 9)
    return rc if rc else bytes_reserve(&c.ctl, size)


cdef int mechanism_ask(Codec* c) noexcept nogil:
    c.asking = ASKING_NEW
    return MQ_NEED_DATA


cdef const char* _digits(int code) noexcept nogil:
    return "300" if code == 300 else "400" if code == 400 else "500"


cdef int mechanism_refuse(Codec* c, int code, const char* why, bint libzmq) noexcept nogil:
    cdef const char* digits = _digits(code)
    cdef const char* name = "^RROR" if libzmq else "\x05ERROR"
    cdef size_t size = strlen(name) + 4
    if code != 300 and mechanism_frame(c, FRAME_COMMAND, size) == MQ_OK:
        bytes_append(&c.ctl, name, size - 4)
        bytes_append(&c.ctl, "\x03", 1)
        bytes_append(&c.ctl, digits, 3)
    return refuse_with(c, "we refused the peer (%s): %s", digits, why)


cdef void mechanism_forget(Codec* c) noexcept nogil:
    if c.peer.password.at != NULL:
        explicit_bzero(c.peer.password.at, c.peer.password.cap)
        bytes_fini(&c.peer.password)
