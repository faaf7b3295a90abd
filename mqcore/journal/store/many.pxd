"""Writers of many partitions as one: the partition of a message is found without the GIL.

A partition is borrowed while a call is in its log. With more partitions than may be open at once,
the one that has been idle for the longest time is made durable and closed (`_retire`, `_remove`)
in favour of another."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from mqcore.base.message cimport Msg
from mqcore.journal.store.includes cimport crc32c, pthread_cond_t, pthread_mutex_t
from mqcore.journal.store.log cimport Log
from mqcore.spi.sink cimport Sink

cdef struct Topic

cdef struct Partition:
    Topic* topic
    uint32_t number
    Log* log                  # NULL: it is closed
    uint32_t users            # calls that are in the log
    bint kept                 # a caller of writer() has it, and may use it at any time
    bint leaving              # being closed: no new call may borrow it
    uint64_t used             # the clock at its last use

cdef struct Topic:
    const uint8_t* name       # of a bytes object that WritersCore keeps; NULL: a free place
    size_t size
    Partition* partitions

cdef struct Many:
    pthread_mutex_t lock      # over all below; never held while waiting for the GIL
    pthread_cond_t unused     # the last user of a partition has gone
    Topic* table              # open addressing; places are never moved or given up
    size_t mask
    Partition** open          # those with a log, and NULL where one was closed
    size_t n_open             # behind these are only NULLs
    size_t most               # that may be open at once
    uint64_t clock            # counts uses
    uint32_t partitions
    bint first_part           # part 1 is the topic
    bint stamped
    bint each                 # fsync="always"
    Topic* only               # without first_part
    int problem               # the errno of a topic that could not be opened
    void* owner               # the WritersCore

cdef class WritersCore:
    cdef Many many
    cdef Sink own
    cdef dict kept            # topic: its name, which the table points to
    cdef dict refusals        # (topic, partition): until when it is refused without a try
    cdef object why           # a topic could not be opened; in the critical section of this object

    cdef Topic* named(self, bytes name) except NULL
    cdef void failed(self, object error) noexcept

cdef inline Topic* place_of(Many* many, const uint8_t* name, size_t size) noexcept nogil:
    """Where the topic is in the table, or would be. With the lock. There is always a free place."""
    cdef size_t i = crc32c(0, name, size) & many.mask
    cdef Topic* topic = &many.table[i]
    while topic.name != NULL and (topic.size != size or memcmp(topic.name, name, size) != 0):
        i = (i + 1) & many.mask
        topic = &many.table[i]
    return topic

cdef int many_place(void* self, Msg* parts, size_t n, int64_t* offset,
                    uint32_t* partition) noexcept nogil
