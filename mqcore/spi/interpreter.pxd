"""C declarations: the interpreter's state, as operations that run Python need it."""

from libc.stdint cimport uint64_t

cdef extern from "Python.h":
    # no cyclic collection while an operation runs: a finalizer may call the very socket
    int PyGC_Disable()        # what it was before
    int PyGC_Enable()
    ctypedef struct PyThreadState:
        pass
    PyThreadState* PyThreadState_Get()
    uint64_t PyThreadState_GetID(PyThreadState* state)    # unlike an ident, never used again

cdef extern from "Python.h" nogil:
    ctypedef int PyGILState_STATE
    PyGILState_STATE PyGILState_Ensure()              # take the GIL, whether or not it is held
    void PyGILState_Release(PyGILState_STATE state)   # what PyGILState_Ensure returned
