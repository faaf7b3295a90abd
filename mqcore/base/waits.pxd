"""What compiled callers need of waits.pyx."""

# The main thread's YieldingLocks, released while it sleeps; None: it holds none, or this is another
# thread. What it gives goes to locks_back(), also when the sleep raises.
cdef list yield_locks()
cdef int locks_back(list held) except -1

# Between these two whatever runs on this thread is a guest, see guest().
cdef int busy_begin() except -1
cdef int busy_end() except -1

cpdef int stay_asleep() except -1


cdef class YieldingLock:
    cdef object _lock               # an RLock,
    cdef object _acquire            # and two of its methods
    cdef object _release
    cdef Py_ssize_t _depth
    cdef unsigned long _owner       # the thread that has it; 0: none
    cdef object __weakref__
    cdef int enter(self) except -1
    cdef int leave(self) except -1
    cdef bint _mine(self)
    cdef int _taken(self) except -1
    cdef int _let_go(self) except -1
