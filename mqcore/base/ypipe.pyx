"""ypipe's life: see ypipe.pxd for the pipe itself."""

from libc.string cimport memset

from mqcore.base.message cimport msg_close
from mqcore.base.status cimport MQ_OK
from mqcore.base.yqueue cimport yqueue_fini, yqueue_init


cdef int ypipe_init(YPipe* p) noexcept nogil:
    cdef int rc
    memset(<void*> p, 0, sizeof(YPipe))
    rc = yqueue_init(&p.q)
    if rc:
        return rc
    p.w = yqueue_back(&p.q)
    p.f = p.w
    p.r = NULL
    p.c.store(NULL)
    return MQ_OK


cdef void ypipe_fini(YPipe* p) noexcept nogil:
    cdef Msg m
    while ypipe_unwrite(p, &m):
        msg_close(&m)
    ypipe_flush(p)
    while ypipe_read(p, &m):
        msg_close(&m)
    yqueue_fini(&p.q)
