"""A hook: what a device asks about each message that passes it.

A device calls its hooks on its own thread, without a lock and without the GIL, one burst of
messages after the other. A compiled hook is an object whose `_mq_hook()` returns a capsule named
"mqcore.hook" with a `Hook*`, or that capsule itself. The memory behind it, and `self`, are valid as
long as the object lives, which the device keeps alive. mqcore.Hook.compiled() takes either.
"""

from libc.stddef cimport size_t
from libc.stdint cimport uint32_t

from mqcore.base.message cimport Msg, MsgVec
from mqcore.base.slab cimport Pool

cdef enum:
    HOOK_ABI = 1

cdef enum:                    # Passing.direction
    HOOK_FORTH = 1            # front to back
    HOOK_BACK = 2

cdef enum Verdict:            # what `call` returns
    HOOK_PASS = 0             # the message goes on as it is
    HOOK_CHANGE = 1           # it goes on with the body that `call` pushed to `body`
    HOOK_DROP = 2             # it ends here, counted as `dropped`
    HOOK_SAMPLE = 3           # it ends here, counted as `sampled_out`
    HOOK_FAIL = 4             # counted as `failed`; the option on_error says what follows

cdef struct Passing:          # a message on its way; valid during the call
    # All parts. The first `head` of them are the envelope (routing ids, an empty part, a group).
    # Read only: other sockets may hold the same bodies. A hook neither closes nor keeps a handle;
    # msg_copy() makes one to keep.
    Msg* parts
    size_t n
    size_t head
    uint32_t direction        # HOOK_FORTH or HOOK_BACK
    uint32_t peer             # id of the peer that the device received it from
    Pool* pool                # for msg_init_copy()
    # The new body for HOOK_CHANGE: push at least one handle. The device owns what is pushed,
    # whatever `call` returns. It sets the flags, and puts the envelope in front.
    MsgVec* body

cdef struct HookOps:
    uint32_t abi
    # Before and after each burst of up to 256 messages. May be NULL.
    void (*begin)(void* self) noexcept nogil
    void (*end)(void* self) noexcept nogil
    # One message. A Verdict; any other number counts as HOOK_FAIL. It may block, and the device
    # then moves nothing.
    int (*call)(void* self, Passing* message) noexcept nogil
    # Why the call that has just returned HOOK_FAIL did so, in UTF-8, valid until the next call: the
    # device copies up to 511 bytes at once. May be NULL.
    const char* (*error)(void* self) noexcept nogil

cdef struct Hook:
    const HookOps* ops
    void* self
