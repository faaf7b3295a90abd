"""Writers of many partitions as one: the partition of a message is found without the GIL."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.message cimport Msg
from mqcore.journal.store.includes cimport pthread_mutex_t
from mqcore.journal.store.log cimport Log
from mqcore.spi.sink cimport Sink

cdef struct Topic:
    const uint8_t* name       # of a bytes object that WritersCore keeps; NULL: a free place
    size_t size
    Log** logs                # one a partition

cdef struct Many:
    pthread_mutex_t lock      # over all below; never held while waiting for the GIL
    Topic* table              # open addressing; places are never moved or given up
    size_t mask
    Log** all                 # every log there is
    size_t n_all
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
    cdef list kept            # what the pointers point into
    cdef dict refusals        # topic: until when its messages are refused without a try
    cdef object why           # a topic could not be opened; in the critical section of this object

    cdef int take_in(self, bytes name, list writers) except -1
    cdef void failed(self, object error) noexcept

cdef Topic* find(Many* many, const uint8_t* name, size_t size) noexcept nogil
cdef int many_place(void* self, Msg* parts, size_t n, int64_t* offset,
                    uint32_t* partition) noexcept nogil
