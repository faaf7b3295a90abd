"""The hooks of a device: a list of stages that each burst passes, and the two built-in ones."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libcpp.atomic cimport atomic

from mqcore.base.lock cimport Lock
from mqcore.base.message cimport MsgVec
from mqcore.base.slab cimport Pool
from mqcore.binding.core cimport SocketCore
from mqcore.sock.sock cimport Sock
from mqcore.spi.hook cimport Hook

cdef enum:
    REASON = 512              # bytes of why a compiled hook failed

cdef struct Stage:            # a hook at its place in a device
    Hook hook
    uint32_t directions       # HOOK_FORTH | HOOK_BACK
    bint stops                # on_error="stop"
    bint spares               # a message on which it fails goes on (a tap)
    bint fatal                # it failed with what no option covers (KeyboardInterrupt)
    # what became of the messages that it was shown
    atomic[int64_t] passed
    atomic[int64_t] changed
    atomic[int64_t] dropped
    atomic[int64_t] sampled
    atomic[int64_t] failed
    # copies of a tap
    atomic[int64_t] tapped
    atomic[int64_t] missed
    # why a compiled hook failed last: a C string, protected by the lock
    Lock lock
    char[REASON] reason

cdef struct Stages:
    Stage** at
    size_t n

cdef struct Burst:            # what stages_run works on
    MsgVec* hand              # whole messages; afterwards those that remain
    MsgVec* spare             # scratch memory
    Pool* pool
    uint32_t direction        # HOOK_FORTH or HOOK_BACK
    bint words                # a message is an envelope, an empty part, and a body
    bint routed               # without an empty part, the first part is an address
    int64_t cut               # messages dropped behind the one at which a stage stopped the device

cdef class HookCore:          # owns one stage
    cdef Stage stage
    cdef readonly str name
    cdef readonly object last_error           # an exception, a text, or None
    cdef object why(self)     # what the stage's last failure was

cdef struct Lot:              # draws with a fixed probability
    uint64_t state
    uint64_t keeps            # draws up to this one count

cdef struct Tap:
    Lot lot
    Stage* stage
    Sock* socket
    MsgVec copies             # of one burst

cdef class SampleHook(HookCore):
    cdef Lot lot

cdef class SocketTap(HookCore):
    cdef readonly SocketCore socket
    cdef Tap tap

cdef class CompiledHook(HookCore):
    cdef object owner

# Pass a burst through all stages of its direction. *count: messages that remain, if any stage saw
# them. Returns the place of the first stage that stops the device; -1: none does.
cdef int stages_run(Stages* stages, Burst* burst, size_t* count) noexcept nogil
