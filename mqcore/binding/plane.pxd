"""PlaneCore: the data plane of a context as Python holds it."""

from mqcore.link.plane cimport Plane


cdef class PlaneCore:
    cdef Plane* plane
    cdef public bint forked
    # called when a Python object is sent by reference: let go of it soon
    cdef public object on_pins
    cdef object stopping      # a lock
    # of a plane without threads: called instead of a sleep, see SocketHandle.wait
    cdef public object stepper
    cdef object __weakref__
