"""Where the next bytes go: see reading.pxd.

The bytes that a low-water mark waits for come: it is 64 KiB below what the body still lacks, or the
connection ends, of which the kernel tells regardless. These 64 KiB are a segment that the peer's
kernel may hold back until ours has acknowledged all before it (Nagle's algorithm), which it does
late while we do not read. The mark is never above what one read has given, so the kernel has space.
A peer that pauses in the middle of a body is heard when its engine's timer fires: the timer reads
before it judges (lease.pyx).
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from mqcore.base.slab cimport LAND_FROM, owner_data
from mqcore.link.engine cimport DOWN_MEMORY
from mqcore.link.includes cimport SO_RCVLOWAT, SOL_SOCKET, setsockopt
from mqcore.link.lease cimport ENGINE_ACTIVE, ENGINE_READING
from mqcore.link.session cimport session_end
from mqcore.link.stream cimport stream_slab

cdef enum:
    MARK_MOST = 128 * 1024    # more lets sender and receiver wait for each other
    MARK_LEAST = 64 * 1024    # less is not worth a system call
    SEGMENT = 64 * 1024


cdef void reading_adapt(Engine* e, size_t n) noexcept nogil:
    if n == e.slab.capacity and e.klass < 2:
        e.klass += 1          # reads fill it
    elif e.klass > 0 and n < e.slab.capacity // 16:
        e.klass -= 1          # not sooner: a small slab is read full, which takes one more call


cdef bint reading_target(Engine* e, iovec* iov) noexcept nogil:
    cdef uint8_t* at = NULL
    cdef size_t room = 0
    cdef uint64_t size = 0
    if ((e.state == ENGINE_ACTIVE or e.state == ENGINE_READING)
            and e.codec.ops.direct(e.codec, &at, &room, &size)):
        session_end(e, DOWN_MEMORY, b"out of memory", 0)
        return False
    iov[0].iov_base = at
    iov[0].iov_len = room
    iov[1].iov_base = NULL    # the kernel looks at it even where the length is 0
    iov[1].iov_len = 0
    if room:
        if size < LAND_FROM:
            return True
        e.klass = 0           # the next one's beginning is copied out of a slab
    if not stream_slab(e, e.klass):
        return False
    iov[1].iov_base = owner_data(e.slab)
    iov[1].iov_len = e.slab.capacity
    return True


cdef bint reading_low_water(Engine* e, size_t n) noexcept nogil:
    cdef uint32_t mark = 1
    cdef uint32_t before = e.low_water
    cdef uint64_t rest
    if n > e.burst:
        e.burst = <uint32_t> min(n, <size_t> MARK_MOST)
    if e.state == ENGINE_ACTIVE and e.codec.body.busy and not e.hup:
        rest = e.codec.body.size - e.codec.body.got
        if e.burst >= MARK_LEAST and rest >= MARK_LEAST + SEGMENT:
            mark = <uint32_t> min(<uint64_t> e.burst, rest - SEGMENT)
    if mark == before or setsockopt(e.fd, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof(mark)) != 0:
        return False
    e.low_water = mark
    return mark < before
