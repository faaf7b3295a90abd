"""Large bodies that the application has let go of, and whose memory the next ones are read into.

`malloc` gives memory of this size back to the kernel as soon as it is free, and the kernel has to
clear each of its pages before the next body is read. That took longer than all the rest of
receiving 256 KiB.

One list for the process, guarded by the GIL. It has 8 MiB of memory at most, of bodies that were
given to the application. Where the list's reference is the last one, no other code can see the
object any more, and it is filled again. Free-threaded Python cannot tell, so nothing is kept there.
"""

from cpython.object cimport PyObject

cdef extern from * nogil:
    """
    typedef struct {        /* PyBytesObject, whose own ob_shash is deprecated but still there */
        PyObject_VAR_HEAD
        Py_hash_t hash;
    } mq_bytes;
    #ifdef Py_GIL_DISABLED
    #define mq_unseen(o) 0
    #define mq_keeps 0
    #else
    #define mq_unseen(o) (Py_REFCNT(o) == 1)
    #define mq_keeps 1
    #endif
    """
    ctypedef struct mq_bytes:
        Py_hash_t hash
    bint mq_unseen(PyObject* object)
    bint KEEPS "mq_keeps"

cdef bytes body_new(Py_ssize_t size)      # not yet filled; MemoryError
# `body` goes to the application; from now on only a caller that body_new gives it to fills it.
cdef int body_given(bytes body) except -1
