"""C declarations for pattern.pyx alone: who else included this would get a variable of its own."""

cdef extern from * nogil:
    """
    static thread_local void *mq_op_current = NULL;
    static inline void mq_op_set(void *pattern) { mq_op_current = pattern; }
    """
    void* current_op "mq_op_current"    # the pattern whose Python operation this thread is in
    void set_current_op "mq_op_set"(void* pattern)

cdef extern from "Python.h":
    int Py_AddPendingCall(int (*call)(void*) except -1, void* arg)
    void PyErr_SetInterrupt()
