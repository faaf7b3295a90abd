"""Arrays of messages, and records of a reader, into a log."""

from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from mqcore.journal.store.log cimport Log

cdef struct Rows:             # columns of a block; NULL: it has none
    int64_t at
    int64_t end
    const int64_t* times
    const int32_t* ends
    const uint8_t* value_valid
    const uint8_t* values
    const int32_t* key_ends
    const uint8_t* key_valid
    const uint8_t* keys
    const int32_t* header_ends
    const int32_t* name_ends
    const uint8_t* names
    const int32_t* datum_ends
    const uint8_t* data
    const uint64_t* producers
    const uint64_t* sequences
    const int64_t* sent
    const uint32_t* lives
    const int64_t* offsets        # of the rows from `at` on; they rise

# -- with the GIL: what Python gave, checked; UsageError -----------------------------------------
cdef int get_buffer(object value, Py_buffer* view) except -1
cpdef bytes as_bytes(object value, str what=*)
cpdef bytes nothing(object key)
cdef tuple extras_of(object key, object headers)
cdef list many_of(object messages, object keys, list values, list nulls)
cdef int64_t micros(object time) except? -1
cdef object times_of(object times, int64_t n)
cdef object contiguous(object times)
cdef object values_of(object data)
cdef object ends_of(object offsets)
cdef int check_ends(const int64_t[::1] ends, int64_t size) except -1
# offsets: int64[], contiguous, where the rows from lo to hi belong; None: behind each other
cdef list rows_of(dict columns, int64_t lo, int64_t hi, object offsets, Rows* rows)
# -- with log.lock; 0, an errno or a Refusal. *taken: how many are in the log --------------------
# What extras_of() has made, between log_room() and log_take(). With the GIL. null: a tombstone.
cdef int put_extras(Log* log, tuple extras, bint null) except? 5
cdef int add_each(Log* log, const uint8_t* values, const int64_t* ends, int64_t n,
                  const int64_t* times, int64_t now, const uint8_t* keys, const int64_t* key_ends,
                  int64_t* taken) noexcept nogil
cdef int add_blocks(Log* log, const uint8_t* values, const int64_t* ends, int64_t n,
                    const int64_t* times, int64_t now, int64_t* taken) noexcept nogil
cdef int add_rows(Log* log, Rows* r, int64_t* taken) noexcept nogil
