"""Hooks: see hooks.pxd. A burst passes stage after stage, so that a stage pays once for a burst
what it can (the GIL, the lock of a tap's socket). A message that a stage drops ends there and the
later stages do not see it.
"""

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.string cimport memcpy, memset, strncpy

from mqcore.base.lock cimport lock_release, lock_take
from mqcore.base.message cimport (
    MSG_ENVELOPE, MSG_GROUP, MSG_MORE, MSG_ROUTING_ID, Msg, msg_close, msg_copy, msg_size,
    vec_clear, vec_fini, vec_grow, vec_push,
)
from mqcore.base.status cimport MQ_AGAIN, MQ_FULL, MQ_OK
from mqcore.sock.sock cimport sock_send_many
from mqcore.spi.hook cimport (
    HOOK_ABI, HOOK_CHANGE, HOOK_DROP, HOOK_FAIL, HOOK_PASS, HOOK_SAMPLE, Hook, HookOps, Passing,
)
from mqcore.spi.pattern cimport PAT_ADDRESSES, PAT_EXCHANGE, PAT_GROUPS, PAT_SEND

from mqcore.errors import PluginError, UsageError

cdef const char* CAPSULE = b"mqcore.hook"
cdef const char* NO_BODY = b"it changed a message and pushed no new body, or there was no memory"
cdef const char* NO_MEMORY = b"there was no memory"


# -- a burst ---------------------------------------------------------------------------------------

cdef size_t head_of(Msg* parts, size_t n, bint words, bint routed) noexcept nogil:
    """The number of parts in front of the body. At least one part is left for the body."""
    cdef size_t head = 0
    cdef size_t i
    while head + 1 < n and parts[head].flags & (MSG_ENVELOPE | MSG_ROUTING_ID | MSG_GROUP):
        head += 1
    if words:
        for i in range(n - 1):
            if msg_size(&parts[i]) == 0:
                return i + 1
    return 1 if routed and head == 0 and n > 1 else head


cdef bint has_room(MsgVec* v, size_t n) noexcept nogil:
    """Room for n more handles; False: no memory."""
    return v.n + n <= v.cap or vec_grow(v, v.n + n) == MQ_OK


cdef bint _put_changed(MsgVec* to, Passing* p) noexcept nogil:
    """The envelope as it was, and the new body. False: there is none, or no memory."""
    cdef size_t i
    cdef Msg first
    if p.body.n == 0 or not has_room(to, p.head + p.body.n):
        return False
    first = p.parts[p.head]
    for i in range(p.head):
        vec_push(to, &p.parts[i])
    for i in range(p.head, p.n):
        msg_close(&p.parts[i])
    for i in range(p.body.n):
        p.body.at[i].flags = MSG_MORE if i + 1 < p.body.n else 0
        p.body.at[i].peer = first.peer
        p.body.at[i].hops = first.hops
        vec_push(to, &p.body.at[i])
    p.body.n = 0              # moved
    return True


cdef bint _put_whole(MsgVec* to, Passing* p) noexcept nogil:
    cdef size_t i
    if not has_room(to, p.n):
        return False
    for i in range(p.n):
        vec_push(to, &p.parts[i])
    return True


cdef void _close_parts(Passing* p) noexcept nogil:
    cdef size_t i
    for i in range(p.n):
        msg_close(&p.parts[i])


cdef void _ask_why(Stage* stage, int verdict) noexcept nogil:
    """Keep the text of a compiled hook, which is valid until the next call: stats() comes later."""
    cdef const char* text = NULL
    if verdict == HOOK_CHANGE:
        text = NO_BODY
    elif verdict == HOOK_PASS:
        text = NO_MEMORY
    elif stage.hook.ops.error != NULL:
        text = stage.hook.ops.error(stage.hook.self)
    lock_take(&stage.lock)
    stage.reason[0] = 0
    if text != NULL:
        strncpy(stage.reason, text, REASON - 1)
    lock_release(&stage.lock)


cdef int _settle(Stage* stage, Passing* p, int verdict, MsgVec* to) noexcept nogil:
    """Count what `call` decided, and do it. HOOK_FAIL: it failed, or there was no memory."""
    if verdict == HOOK_PASS and _put_whole(to, p):
        stage.passed.fetch_add(1)
        return HOOK_PASS
    if verdict == HOOK_CHANGE and _put_changed(to, p):
        stage.changed.fetch_add(1)
        return HOOK_CHANGE
    if verdict == HOOK_DROP or verdict == HOOK_SAMPLE:
        stage.dropped.fetch_add(verdict == HOOK_DROP)
        stage.sampled.fetch_add(verdict == HOOK_SAMPLE)
        _close_parts(p)
        return verdict
    stage.failed.fetch_add(1)
    _ask_why(stage, verdict)
    if not stage.spares or stage.fatal or not _put_whole(to, p):
        _close_parts(p)
    return HOOK_FAIL


cdef bint _stage_run(Stage* stage, Burst* burst, Passing* p, size_t* count) noexcept nogil:
    """One stage. True: it stops the device, and what came behind in the hand is dropped."""
    cdef MsgVec* hand = burst.hand
    cdef size_t at = 0
    cdef bint stopped = False
    cdef int done
    burst.spare.n = count[0] = 0
    if stage.hook.ops.begin != NULL:
        stage.hook.ops.begin(stage.hook.self)
    while at < hand.n:
        p.parts = hand.at + at
        p.n = 1
        while p.parts[p.n - 1].flags & MSG_MORE:
            p.n += 1
        at += p.n
        if stopped:
            burst.cut += 1
            _close_parts(p)
            continue
        p.head = head_of(p.parts, p.n, burst.words, burst.routed)
        p.peer = p.parts[0].peer
        done = _settle(stage, p, stage.hook.ops.call(stage.hook.self, p), burst.spare)
        vec_clear(p.body)
        stopped = done == HOOK_FAIL and (stage.stops or stage.fatal)
        count[0] += done == HOOK_PASS or done == HOOK_CHANGE or (
            done == HOOK_FAIL and stage.spares and not stage.fatal)
    if stage.hook.ops.end != NULL:
        stage.hook.ops.end(stage.hook.self)
    hand.n = 0                # every handle was moved or closed
    hand[0], burst.spare[0] = burst.spare[0], hand[0]
    return stopped


cdef int stages_run(Stages* stages, Burst* burst, size_t* count) noexcept nogil:
    cdef MsgVec body
    cdef Passing p
    cdef size_t i
    cdef int stopped = -1
    memset(&body, 0, sizeof(MsgVec))
    p.body = &body
    p.pool = burst.pool
    p.direction = burst.direction
    for i in range(stages.n):
        if stages.at[i].directions & burst.direction:
            if _stage_run(stages.at[i], burst, &p, count) and stopped < 0:
                stopped = <int> i
    vec_fini(&body)
    return stopped


# -- one hook --------------------------------------------------------------------------------------

cdef class HookCore:
    """One hook of one device. `options`: (name, directions, stops, spares)."""

    def __cinit__(self, *args):
        memset(&self.stage, 0, sizeof(Stage))

    def __init__(self, tuple options):
        self.name, self.stage.directions, self.stage.stops, self.stage.spares = options
        self.stage.hook.self = <void*> self

    cdef object why(self):
        return self.last_error

    def counters(self):
        """(passed, changed, dropped, sampled out, failed, tapped, missed by the tap)"""
        return (self.stage.passed.load(), self.stage.changed.load(), self.stage.dropped.load(),
                self.stage.sampled.load(), self.stage.failed.load(), self.stage.tapped.load(),
                self.stage.missed.load())

    def reason(self):
        """What the last failure was: an exception, a text, or None."""
        return self.why()


# -- sampling --------------------------------------------------------------------------------------

cdef bint drawn(Lot* lot) noexcept nogil:
    """splitmix64, by Sebastiano Vigna (public domain): https://prng.di.unimi.it/splitmix64.c"""
    cdef uint64_t z
    lot.state += <uint64_t> 0x9e3779b97f4a7c15
    z = lot.state
    z = (z ^ (z >> 30)) * <uint64_t> 0xbf58476d1ce4e5b9
    z = (z ^ (z >> 27)) * <uint64_t> 0x94d049bb133111eb
    return (z ^ (z >> 31)) <= lot.keeps


cdef Lot lot_of(double rate, uint64_t seed) noexcept:
    cdef Lot lot
    lot.state = seed
    lot.keeps = <uint64_t> 0xffffffffffffffff if rate >= 1 else <uint64_t> (rate * 2.0 ** 64)
    return lot


cdef int _sample(void* self, Passing* p) noexcept nogil:
    return HOOK_PASS if drawn(<Lot*> self) else HOOK_SAMPLE


cdef HookOps SAMPLE
SAMPLE.abi = HOOK_ABI
SAMPLE.begin = NULL
SAMPLE.end = NULL
SAMPLE.call = _sample
SAMPLE.error = NULL


cdef class SampleHook(HookCore):
    def __init__(self, tuple options, double rate, uint64_t seed):
        super().__init__(options)
        self.lot = lot_of(rate, seed)
        self.stage.hook.ops = &SAMPLE
        self.stage.hook.self = &self.lot


# -- copies to a socket ----------------------------------------------------------------------------

cdef int _tap(void* self, Passing* p) noexcept nogil:
    """The body of the message, to be sent at the end of the burst."""
    cdef Tap* hook = <Tap*> self
    cdef size_t i
    cdef Msg m
    if not drawn(&hook.lot):
        return HOOK_PASS
    if not has_room(&hook.copies, p.n - p.head):
        hook.stage.missed.fetch_add(1)
        return HOOK_PASS
    for i in range(p.head, p.n):
        msg_copy(&m, &p.parts[i])
        m.peer = 0
        m.flags &= MSG_MORE
        vec_push(&hook.copies, &m)
    return HOOK_PASS


cdef void _tap_end(void* self) noexcept nogil:
    """What the socket cannot take now, or ever, is dropped and counted."""
    cdef Tap* hook = <Tap*> self
    cdef MsgVec* v = &hook.copies
    cdef size_t at = 0, done = 0, taken = 0
    cdef int rc = MQ_OK
    cdef bint more
    while at < v.n:
        taken = 0
        done = at
        if rc == MQ_OK:
            rc = sock_send_many(hook.socket, v, at, &done, &taken)
            hook.stage.tapped.fetch_add(<int64_t> taken)
            at = done
            if at == v.n:
                break
        more = True
        while more:
            more = v.at[at].flags & MSG_MORE
            msg_close(&v.at[at])
            at += 1
        hook.stage.missed.fetch_add(1)
        if rc != MQ_AGAIN and rc != MQ_FULL:
            rc = MQ_OK        # only this one was refused
    v.n = 0


cdef HookOps TAP
TAP.abi = HOOK_ABI
TAP.begin = NULL
TAP.end = _tap_end
TAP.call = _tap
TAP.error = NULL


cdef class SocketTap(HookCore):
    """The device claims the socket, as it claims its ends."""

    def __init__(self, tuple options, SocketCore socket, double rate, uint64_t seed):
        super().__init__(options)
        socket.check()
        if (not socket.s.flags & PAT_SEND
                or socket.s.flags & (PAT_EXCHANGE | PAT_ADDRESSES | PAT_GROUPS)):
            raise UsageError(f"a {socket.plugin.name} socket cannot be the tap of a device",
                             hint="use push, pub or pair")
        self.socket = socket
        self.tap.lot = lot_of(rate, seed)
        self.tap.stage = &self.stage
        self.tap.socket = socket.s
        self.stage.hook.ops = &TAP
        self.stage.hook.self = &self.tap

    def __dealloc__(self):
        vec_fini(&self.tap.copies)


# -- a compiled one --------------------------------------------------------------------------------

cdef class CompiledHook(HookCore):
    """`owner`: a capsule named "mqcore.hook", or an object whose _mq_hook() returns one."""

    def __init__(self, tuple options, owner):
        cdef object capsule = owner
        cdef Hook* hook
        super().__init__(options)
        if hasattr(owner, "_mq_hook"):
            capsule = owner._mq_hook()
        if not PyCapsule_IsValid(capsule, CAPSULE):
            raise UsageError(f"{owner!r} is no compiled hook: it is no capsule named "
                             "'mqcore.hook' and has no _mq_hook() that returns one",
                             hint="for a Python function use Hook.filter, Hook.transform or "
                                  "Hook.tap")
        hook = <Hook*> PyCapsule_GetPointer(capsule, CAPSULE)
        if hook.ops == NULL or hook.ops.call == NULL or hook.ops.abi != HOOK_ABI:
            raise PluginError(f"the compiled hook {owner!r} was made for another version of the "
                              f"hook interface: it has ABI {hook.ops.abi if hook.ops else None}, "
                              f"this mqcore has {HOOK_ABI}",
                              hint="build it again against this mqcore")
        self.stage.hook = hook[0]
        self.owner = (owner, capsule)

    cdef object why(self):
        cdef char[REASON] copy
        lock_take(&self.stage.lock)
        memcpy(copy, self.stage.reason, REASON)
        lock_release(&self.stage.lock)
        return copy.decode("utf-8", "replace") or None
