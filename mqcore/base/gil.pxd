"""Whether this thread holds the GIL (in a free-threaded build: whether it is attached)."""

cdef extern from "Python.h" nogil:
    bint holds_gil "PyGILState_Check"()           # any thread
