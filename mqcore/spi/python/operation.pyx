"""One operation in Python: see operation.pxd."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_Fetch, PyErr_Restore
from libc.stdint cimport uint8_t

from mqcore.spi.interpreter cimport PyGC_Disable, PyGC_Enable
from mqcore.spi.pattern cimport EV_FAILED, op_begin, op_end, op_owe

import os

from mqcore.base.described import described
from mqcore.base.native import threading

cdef object MAIN = threading.main_thread().ident
cdef object get_ident = threading.get_ident


def _forked() -> None:
    """In a child the thread that forked is the main one."""
    global MAIN
    MAIN = get_ident()


os.register_at_fork(after_in_child=_forked)

# Its critical section guards the next two: without a GIL, operations of different sockets begin and
# end at the same moment.
cdef object GATE = []
cdef int RUNNING              # operations, of all sockets
cdef int COLLECTING           # cyclic collection was on when the first of them began


cdef void enter(Inside* inside, void* owner):
    global RUNNING, COLLECTING
    PyErr_Fetch(&inside.kind, &inside.value, &inside.trace)
    inside.before = op_begin(owner)
    with cython.critical_section(GATE):
        if RUNNING == 0:
            COLLECTING = PyGC_Disable()
        RUNNING += 1


cdef void leave(Inside* inside):
    global RUNNING
    with cython.critical_section(GATE):
        RUNNING -= 1
        if RUNNING == 0 and COLLECTING:
            PyGC_Enable()
    op_end(inside.before)
    PyErr_Restore(inside.kind, inside.value, inside.trace)


cdef bint report(Host* host, object error, str where, uint32_t* failing) except -1:
    cdef bytes raw
    if not isinstance(error, Exception) and get_ident() == MAIN:
        op_owe(error)
        return True
    if not failing[0]:
        failing[0] = 1
        raw = _told(error, where).encode("utf-8", "backslashreplace")
        host.emit(host, EV_FAILED, NULL, <const uint8_t*> PyBytes_AS_STRING(raw),
                  PyBytes_GET_SIZE(raw))
    return False


cdef str _told(object error, str where):
    cdef object trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    text = f"{where}() raised {described(error)}"
    if trace is not None:
        text += f" ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"
    return text
