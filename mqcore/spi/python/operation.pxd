"""One operation in Python: what patterns, strategies and other plug-ins in Python share.

The socket calls operations under its lock, on any thread, without the GIL; these take the GIL. That
is sound because of four rules:

- No thread waits for a socket's lock with the GIL held (sock/gil.pxd), so the holder gets the GIL.
- The class waits for no other lock of ours: it calls no socket (`op_refuse` enforces this), and no
  cyclic garbage collection, whose finalizers might, starts while it runs.
- The class only decides. The adapter reads and writes the peers after it has returned. Any
  exception, including a signal handler's, means that nothing was taken.
- The caller of send or recv gets the exception once the lock is free. Without a caller it becomes
  an event and a line in the log; an exception of a signal handler is raised again in the main
  thread.

An interpreter that shuts down grants no GIL: operations then return "not now".
"""

from cpython.ref cimport PyObject
from libc.stdint cimport uint32_t

from mqcore.spi.pipe cimport Host

cdef struct Inside:           # one operation that runs Python
    void* before
    PyObject* kind
    PyObject* value
    PyObject* trace

# Around every operation that runs Python, with the GIL: `owner` is the pattern (op_begin).
cdef void enter(Inside* inside, void* owner)
cdef void leave(Inside* inside)
# An exception without a caller: an event, once in a run of failures (*failing), with `where` it was
# raised; or, of a signal handler, owed to the main thread. True: it is owed.
cdef bint report(Host* host, object error, str where, uint32_t* failing) except -1
