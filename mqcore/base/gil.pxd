"""Whether this thread holds the GIL (in a free-threaded build: whether it is attached), whether it
can still get it, and what a thread needs that is not Python's own and often calls Python."""

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

cdef extern from * nogil:
    """
    static inline void *mq_thread_state_new(void) {
        if (mq_finalizing()) return NULL;
        PyGILState_Ensure();
        return PyEval_SaveThread();
    }
    static inline void mq_thread_state_free(void *state) {
        if (state == NULL || mq_finalizing()) return;
        PyEval_RestoreThread((PyThreadState *) state);
        PyGILState_Release(PyGILState_UNLOCKED);
    }
    """
    # From the first call to the second, `with gil` finds a thread state. Without one it makes one
    # and frees it, with a mapping for the frames, at each entry. Both wait for the GIL.
    void* thread_state_new "mq_thread_state_new"()
    void thread_state_free "mq_thread_state_free"(void* state)
