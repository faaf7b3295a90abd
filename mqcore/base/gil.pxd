"""Whether this thread holds the GIL (in a free-threaded build: whether it is attached), and whether
it can still get it."""

cdef extern from "Python.h" nogil:
    bint holds_gil "PyGILState_Check"()           # any thread

cdef extern from * nogil:
    """
    #if PY_VERSION_HEX >= 0x030d0000
    #define mq_finalizing Py_IsFinalizing
    #else
    #define mq_finalizing _Py_IsFinalizing
    #endif
    """
    int finalizing "mq_finalizing"()    # a thread that requests the GIL now may never return
