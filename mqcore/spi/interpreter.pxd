"""C declarations: the interpreter's state, as operations that run Python need it."""

cdef extern from "Python.h":
    # no cyclic collection while an operation runs: a finalizer may call the very socket
    int PyGC_Disable()        # what it was before
    int PyGC_Enable()

cdef extern from "Python.h" nogil:
    ctypedef int PyGILState_STATE
    PyGILState_STATE PyGILState_Ensure()              # take the GIL, whether or not it is held
    void PyGILState_Release(PyGILState_STATE state)   # what PyGILState_Ensure returned

cdef extern from * nogil:
    """
    #if PY_VERSION_HEX >= 0x030d0000
    #define mq_finalizing Py_IsFinalizing
    #else
    #define mq_finalizing _Py_IsFinalizing
    #endif
    """
    int finalizing "mq_finalizing"()    # a thread that requests the GIL now may never return
