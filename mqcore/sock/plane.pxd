"""PlaneCore: the data plane of a context as Python holds it."""

from mqcore.link.plane cimport Plane


cdef class PlaneCore:
    cdef Plane* plane
    cdef public bint forked
    # called when a Python object is sent by reference: let go of it soon
    cdef public object on_pins
    cdef object stopping      # a lock
    cdef object __weakref__
