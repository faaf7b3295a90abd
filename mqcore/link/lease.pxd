"""The lease: which thread runs an engine, and what other threads leave to it.

The lease is one atomic word, `Engine.word`: HELD and the notes. A thread with a fact adds its note
and HELD in one operation. If HELD was clear, that thread now holds the lease and runs the engine.
If HELD was set, the thread goes on: the note is for the holder. The holder takes the notes, acts on
them, and releases the lease with a compare-and-swap that fails if a note arrived meanwhile.

Only engine_new(), when it reuses a slot, waits for a lease. Slots are type-stable while the plane
lives, so a stale note is at worst one wasted look. A request that must not reach the slot's next
connection (close it, reset it) is a flag on the pipe, and the note only makes the holder check its
pipe.

lease.pyx begins with the tables: NOTES, STATES, and what each note does in each state.
"""

from libc.stdint cimport int64_t, uint32_t

from mqcore.link.engine cimport Engine, Port

cdef enum:                    # Engine.word
    E_HELD = 1
    E_IN = 2
    E_OUT = 4
    E_HUP = 8
    E_START = 16
    E_TIMER = 32
    E_ASKED = 64
    E_TERM = 128
    E_ROOM = 256
    E_RELEASE = 512
    E_WAKE = 1024
    E_JUDGED = 2048
    E_LEAVE = 4096
    E_ALL = 0xffffffff        # of what a holder may do: everything

cdef enum:                    # Engine.state, the lease holder's
    ENGINE_FREE = 0
    ENGINE_HANDSHAKE = 1
    ENGINE_ACTIVE = 2
    ENGINE_DRAINING = 3
    ENGINE_DEAD = 4
    ENGINE_NEW = 5
    ENGINE_READING = 6

# What other threads call at an engine whose slot is used for the first time.
cdef void lease_init(Engine* e) noexcept nogil
# Run here if the lease is free. A posted engine (Engine.posted) is left to its own thread.
cdef void engine_kick(Engine* e, uint32_t facts) noexcept nogil
# The same, posted or not: on the engine's own thread, or for RELEASE.
cdef void engine_kick_here(Engine* e, uint32_t facts) noexcept nogil
# Run here if the lease is free, for OUT alone; other notes are posted.
cdef void engine_kick_out(Engine* e) noexcept nogil
# Run here if the lease is free and the message engine has something to read. E_WAKE ends a row of
# these.
cdef bint engine_peek(Engine* e, Port* port) noexcept nogil
# Leave facts; the I/O thread runs the engine.
cdef void engine_post(Engine* e, uint32_t facts) noexcept nogil
# The holder: do what was noted, restricted to `allowed`, and release the lease.
cdef void lease_run(Engine* e, uint32_t allowed) noexcept nogil
# The holder: release the lease; the engine's thread does what was noted.
cdef void lease_give_up(Engine* e) noexcept nogil
