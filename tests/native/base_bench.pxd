"""The classes of base_bench.pyx that Cython code may share: thin owners of the structs of base."""

from mqcore.base.message cimport Msg
from mqcore.base.slab cimport Landing, Owner, Pool
from mqcore.base.ypipe cimport YPipe

cdef class BasePool:
    cdef Pool* pool

cdef class BaseOwner:
    cdef BasePool keeper
    cdef Owner* owner

cdef class BaseLanding:
    cdef BasePool keeper
    cdef Landing landing

cdef class Handle:
    cdef BasePool keeper
    cdef Msg m

cdef class BasePipe:
    cdef BasePool keeper
    cdef YPipe* pipe
