"""Hooks written in Python. The device's thread takes the GIL once for each burst of up to 256
messages, and holds no lock, so a function may use any other socket.
"""

cimport cython
from cpython.ref cimport PyObject
from libcpp.atomic cimport atomic

from mqcore.base.gil cimport finalizing
from mqcore.base.message cimport Msg, msg_close, vec_push
from mqcore.base.slab cimport Owner, owner_release
from mqcore.binding.message cimport part_from, part_view
from mqcore.devices.hooks cimport HookCore
from mqcore.spi.hook cimport (
    HOOK_ABI, HOOK_CHANGE, HOOK_DROP, HOOK_FAIL, HOOK_FORTH, HOOK_PASS, HookOps, Passing,
)
from mqcore.spi.interpreter cimport PyGILState_Ensure, PyGILState_Release, PyGILState_STATE

from types import CoroutineType

from mqcore.errors import UsageError

cdef enum:                    # CallableHook.kind
    KIND_FILTER = 0
    KIND_TRANSFORM = 1
    KIND_TAP = 2

cdef struct Caller:
    PyObject* owner           # borrowed: the CallableHook that this lies in
    PyGILState_STATE held
    bint late                 # the interpreter ends, so the function is not called


@cython.final
cdef class HookMessage:
    """A message that passes a device. Read-only; it may be kept after the hook has returned."""

    cdef readonly tuple parts         # the body: bytes, and from 4 KiB on memoryviews
    cdef readonly tuple envelope      # routing ids and empty part in front of it, as bytes
    cdef readonly str direction       # "forth" or "back"
    cdef readonly int peer_id         # Peer.id of the peer that the device received it from

    def __init__(self):
        raise UsageError("a HookMessage comes from a device",
                         hint="return bytes, or a list of parts, to replace a message")

    @property
    def body(self):
        """The last part, as bytes."""
        return bytes(self.parts[len(self.parts) - 1])

    @property
    def topic(self):
        """The first part if there are several, else None."""
        return bytes(self.parts[0]) if len(self.parts) > 1 else None

    def __bytes__(self):
        return b"".join(self.parts)

    def __len__(self):
        return sum(len(part) for part in self.parts)

    def __repr__(self):
        sizes = ", ".join(str(len(part)) for part in self.parts)
        return f"<HookMessage of {len(self.parts)} part(s) ({sizes} B), {self.direction}>"


cdef HookMessage shown(Passing* p):
    cdef HookMessage message = HookMessage.__new__(HookMessage)
    cdef list envelope = [], parts = []
    cdef size_t i
    for i in range(p.head):
        envelope.append(bytes(part_view(&p.parts[i])))
    for i in range(p.head, p.n):
        parts.append(part_view(&p.parts[i]))
    message.envelope = tuple(envelope)
    message.parts = tuple(parts)
    message.direction = "forth" if p.direction == HOOK_FORTH else "back"
    message.peer_id = p.peer
    return message


@cython.final
cdef class CallableHook(HookCore):
    """A function: a filter, a transform, or a tap."""

    cdef object function
    cdef int kind
    cdef Caller caller
    cdef atomic[Owner*] arena

    def __init__(self, tuple options, function, int kind):
        super().__init__(options)
        self.function = function
        self.kind = kind
        self.caller.owner = <PyObject*> self
        self.stage.hook.ops = &CALLABLE
        self.stage.hook.self = &self.caller

    def __dealloc__(self):
        cdef Owner* arena = self.arena.exchange(NULL)
        if arena != NULL:
            owner_release(arena)

    cdef int decide(self, Passing* p) except -1:
        cdef HookMessage message = shown(p)
        cdef object result = self.function(message)
        if self.kind == KIND_TAP:
            self.stage.tapped.fetch_add(1)
            return HOOK_PASS
        if self.kind == KIND_FILTER:
            if result is True or result is False:
                return HOOK_PASS if result is True else HOOK_DROP
            if isinstance(result, CoroutineType):     # which is true, whatever it would say
                result.close()
                raise UsageError("a filter returned a coroutine, which nothing awaits",
                                 hint="a device's thread has no event loop: use a plain function")
            return HOOK_PASS if result else HOOK_DROP
        if result is message:
            return HOOK_PASS
        if result is None:
            return HOOK_DROP
        self.replace(p, result)
        return HOOK_CHANGE

    cdef int replace(self, Passing* p, result) except -1:
        cdef bint pinned = False
        cdef Msg m
        if isinstance(result, HookMessage):
            raise UsageError("a transform returned another message than the one it was given",
                             hint="return the message itself, or its parts: list(message.parts)")
        if not isinstance(result, (list, tuple)):
            result = (result,)
        if not result:
            raise UsageError("a transform returned a message without parts",
                             hint="return None to drop the message, b'' for an empty body")
        for part in result:
            part_from(&m, p.pool, &self.arena, part, &pinned)
            if vec_push(p.body, &m):
                msg_close(&m)
                raise MemoryError()
        return 0


cdef void _begin(void* self) noexcept nogil:
    cdef Caller* caller = <Caller*> self
    caller.late = finalizing()
    if not caller.late:
        caller.held = PyGILState_Ensure()


cdef void _end(void* self) noexcept nogil:
    cdef Caller* caller = <Caller*> self
    if not caller.late:
        PyGILState_Release(caller.held)


cdef int _decide(PyObject* owner, Passing* p) noexcept with gil:
    cdef CallableHook hook = <CallableHook> owner
    try:
        return hook.decide(p)
    except BaseException as error:
        hook.last_error = error
        hook.stage.fatal = not isinstance(error, Exception)
        return HOOK_FAIL


cdef int _call(void* self, Passing* p) noexcept nogil:
    cdef Caller* caller = <Caller*> self
    if caller.late:
        return HOOK_FAIL      # it ends with the process, counted like any other failure
    return _decide(caller.owner, p)


cdef HookOps CALLABLE
CALLABLE.abi = HOOK_ABI
CALLABLE.begin = _begin
CALLABLE.end = _end
CALLABLE.call = _call
CALLABLE.error = NULL
