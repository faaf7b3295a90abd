"""Checks of what callers give. Each refuses with UsageError, which says what is wrong and what to
do."""

from cpython.float cimport PyFloat_CheckExact
from libc.stdint cimport int64_t

# timeout= or what `name` says, given and not None, in seconds
cpdef double seconds_of(object timeout, str name) except -1
# Several messages or parts: not one buffer, no dict; if they are `ordered`, no set. `what`: the
# call and what it takes.
cpdef object several(str what, object given, bint ordered)
# a view of the buffer of recv_into()
cdef object writable(object buffer)
cdef int64_t at_least_one(str name, most) except -1
# Whether asyncio or trio runs in this thread. A module that is not imported does not run.
cdef bint loop_runs() except -1


cdef inline int check_timeout(object timeout) except -1:
    """Refuse a `timeout` that means nothing, in a call that need not wait, too: a mistake must not
    wait for the first day with much to do."""
    if timeout is ... or timeout is None or PyFloat_CheckExact(timeout) and timeout >= 0:
        return 0
    seconds_of(timeout, "timeout")
    return 0
