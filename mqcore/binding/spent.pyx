"""Memory of bodies that no other code refers to any more: see spent.pxd."""

from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM
from cpython.object cimport PyObject

from mqcore.base.slab cimport LAND_FROM

cdef enum:
    KEPT_BYTES = 8 << 20
    KEPT_EACH = 4 << 20

cdef list kept = []               # the oldest first


cdef bytes body_new(Py_ssize_t size):
    cdef bytes body
    cdef Py_ssize_t i
    if LAND_FROM <= size <= KEPT_EACH:
        for i in range(len(kept) - 1, -1, -1):      # the last is in the core's cache
            if (mq_unseen(PyList_GET_ITEM(kept, i))
                    and PyBytes_GET_SIZE(<object> PyList_GET_ITEM(kept, i)) == size):
                body = kept.pop(i)
                (<mq_bytes*> <void*> body).hash = -1    # not yet computed
                return body
    return PyBytes_FromStringAndSize(NULL, size)


cdef int body_given(bytes body) except -1:
    cdef Py_ssize_t in_all = PyBytes_GET_SIZE(body)
    cdef Py_ssize_t i
    if not KEEPS or not LAND_FROM <= in_all <= KEPT_EACH:
        return 0
    for i in range(len(kept)):
        if PyList_GET_ITEM(kept, i) == <PyObject*> body:
            return 0
        in_all += PyBytes_GET_SIZE(<object> PyList_GET_ITEM(kept, i))
    kept.append(body)
    while in_all > KEPT_BYTES:
        in_all -= PyBytes_GET_SIZE(kept.pop(0))
    return 0
