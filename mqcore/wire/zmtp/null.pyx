"""NULL with an authentication callback: see null.pxd.

Each side sends READY at any time, so the peer's may arrive during authentication. Ours waits for
the result: until then the peer may send nothing more, and it may be refused with ERROR.
"""

from libc.stdint cimport uint8_t

from mqcore.base.status cimport MQ_DONE, MQ_NEED_DATA, MQ_OK
from mqcore.wire.codec cimport ASKING_NEW, ASKING_NOT, Codec, Verdict
from mqcore.wire.zmtp.greeting cimport Zmtp
from mqcore.wire.zmtp.mechanism cimport (
    FRAME_COMMAND, MechanismOps, mechanism_frame, mechanism_refuse,
)
from mqcore.wire.zmtp.ready cimport HANDSHAKE_MAX, ready_append, ready_size, refuse, take_ready

cdef enum:                    # Zmtp.step
    WAITS = 0                 # for the peer's READY
    HEARD = 1


cdef int _start(Codec* self) noexcept nogil:
    self.asking = ASKING_NEW
    return MQ_OK


cdef int _take(Codec* self, uint8_t* body, size_t size) noexcept nogil:
    cdef Zmtp* z = <Zmtp*> self
    cdef int rc
    if z.step == HEARD:
        return refuse(self, "the peer went on before it was answered")
    rc = take_ready(self, body, size)
    if rc:
        return rc
    z.step = HEARD
    return MQ_NEED_DATA if self.asking else MQ_DONE


cdef int _judged(Codec* self, const Verdict* verdict) noexcept nogil:
    cdef int rc
    self.asking = ASKING_NOT
    if verdict.code != 200:
        return mechanism_refuse(self, verdict.code, verdict.text, False)
    rc = mechanism_frame(self, FRAME_COMMAND, ready_size(self.config))
    if rc == MQ_OK:
        rc = ready_append(self.config, &self.ctl)
    if rc:
        return rc
    return MQ_DONE if (<Zmtp*> self).step == HEARD else MQ_NEED_DATA


cdef MechanismOps _OPS
_OPS.hello_max = HANDSHAKE_MAX   # the peer's READY, which is as long as it likes to be
_OPS.start = _start
_OPS.take = _take
_OPS.judged = _judged
_OPS.meanwhile = True


cdef const MechanismOps* null_ops() noexcept nogil:
    return &_OPS
