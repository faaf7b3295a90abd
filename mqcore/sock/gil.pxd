"""Releasing the GIL before parking, for code that may run with or without it.

A pattern written in Python takes the GIL under the socket's lock. So a thread that holds the GIL
must not sleep for that lock: it releases the GIL, sleeps, takes the GIL back, and only then tries
the lock again. In a free-threaded build "holding the GIL" means being attached, and the same
functions apply.
"""

cdef extern from * nogil:
    """
    #if PY_VERSION_HEX >= 0x030d0000
    #define mq_current_thread PyThreadState_GetUnchecked
    #else
    #define mq_current_thread _PyThreadState_UncheckedGet
    #endif
    static inline void *mq_gil_let_go(void) {
        PyThreadState *mine = PyGILState_GetThisThreadState();
        return mine != NULL && mine == mq_current_thread() ? PyEval_SaveThread() : NULL;
    }
    static inline void mq_gil_take_back(void *state) {
        if (state != NULL) PyEval_RestoreThread((PyThreadState *) state);
    }
    """
    void* gil_let_go "mq_gil_let_go"()                  # NULL: this thread does not hold it
    void gil_take_back "mq_gil_take_back"(void* state)  # what gil_let_go gave
