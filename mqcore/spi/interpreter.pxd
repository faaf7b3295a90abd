"""C declarations: the interpreter's state, as operations that run Python need it."""

cdef extern from "Python.h":
    # no cyclic collection while an operation runs: a finalizer may call the very socket
    int PyGC_Disable()        # what it was before
    int PyGC_Enable()

cdef extern from * nogil:
    """
    #if PY_VERSION_HEX >= 0x030d0000
    #define mq_finalizing Py_IsFinalizing
    #else
    #define mq_finalizing _Py_IsFinalizing
    #endif
    """
    int finalizing "mq_finalizing"()    # whoever asks for the GIL now may never come back
