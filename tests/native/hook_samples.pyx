"""A compiled hook, as a user would write it: it drops empty bodies, refuses bodies of several
parts, and writes the others in upper case."""

from cpython.pycapsule cimport PyCapsule_New
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

from mqcore.base.message cimport Msg, msg_data, msg_init_copy, msg_size, vec_push
from mqcore.spi.hook cimport (
    HOOK_ABI, HOOK_CHANGE, HOOK_DROP, HOOK_FAIL, HOOK_PASS, Hook, HookOps, Passing,
)


cdef int _upper(void* self, Passing* p) noexcept nogil:
    cdef Msg* last = &p.parts[p.n - 1]
    cdef uint8_t* to
    cdef Msg m
    cdef size_t i
    cdef bint changed = False
    if msg_size(last) == 0:
        return HOOK_DROP
    if p.n - p.head > 1 or msg_init_copy(&m, p.pool, msg_data(last), msg_size(last)):
        return HOOK_FAIL
    to = msg_data(&m)
    for i in range(msg_size(&m)):
        if c'a' <= to[i] <= c'z':
            to[i] -= 32
            changed = True
    vec_push(p.body, &m)      # the device closes it if it is not wanted
    return HOOK_CHANGE if changed else HOOK_PASS


cdef const char* _error(void* self) noexcept nogil:
    return b"it takes bodies of one part"


cdef HookOps OPS
OPS.abi = HOOK_ABI
OPS.begin = NULL
OPS.end = NULL
OPS.call = _upper
OPS.error = _error

cdef char[2] TEXT             # which each call overwrites


cdef int _picky(void* self, Passing* p) noexcept nogil:
    """Fails on what begins with an exclamation mark, and forgets the new body after a question
    mark."""
    TEXT[0] = msg_data(&p.parts[p.n - 1])[0]
    if TEXT[0] == c'?':
        return HOOK_CHANGE
    return HOOK_FAIL if TEXT[0] == c'!' else HOOK_PASS


cdef const char* _text(void* self) noexcept nogil:
    return TEXT


cdef HookOps PICKY
PICKY.abi = HOOK_ABI
PICKY.call = _picky
PICKY.error = _text

cdef HookOps OLD
OLD.abi = HOOK_ABI + 1
OLD.call = _upper

cdef Hook UPPER
UPPER.ops = &OPS

cdef Hook PICKS
PICKS.ops = &PICKY

cdef Hook FOREIGN
FOREIGN.ops = &OLD

upper = PyCapsule_New(&UPPER, "mqcore.hook", NULL)
picky = PyCapsule_New(&PICKS, "mqcore.hook", NULL)
foreign = PyCapsule_New(&FOREIGN, "mqcore.hook", NULL)


class Upper:
    def _mq_hook(self):
        return upper
