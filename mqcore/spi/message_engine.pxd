"""The third door: a message engine. Whole messages in and out, for what is no stream of bytes.

Datagrams, shared memory, packets, multicast. The Python half is a transport of kind "engine"
(`MessageTransport` in transport.py): it knows addresses, makes descriptors, and for each connection
its `open()` returns a `NativeEngine`, which carries the state declared here. The host (the engine
of mqcore/link) brings everything else: the lease, the lanes with their high-water marks, the
poller, timers, accounting, the end.

All operations are called by whoever holds the engine's lease, one at a time, on any thread (a
caller's, an I/O thread's): nogil, never blocking, no lock that anybody holds across a system call.
A system call on the engine's own descriptors is fine. State is one struct that starts with
`MessageEngine`.

Two descriptors may bring news. `fd`, the connection itself, comes from the transport and belongs to
the host. `wake`, if it is not -1, is a second one (an eventfd) that belongs to the engine; each
write to it is an edge, nobody needs to read it. Edges are hints: an operation may be called and
find nothing.

With ENGINE_STREAM, `fd` also carries an ordinary byte stream: the host runs the wire's handshake
over it (patterns are checked, routing ids told, as on any stream), and heartbeats afterwards;
messages go through the operations, never over that stream; its end is the peer's end. `read` and
`write` are then called for edges of `wake`. Without ENGINE_STREAM there is no handshake: one peer
is there as soon as the engine starts, and `fd` is the engine's to read and write.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.base.message cimport Msg
from mqcore.base.slab cimport Landing, Pool

cdef enum:
    MESSAGE_ENGINE_ABI = 1

cdef enum MessageEngineFlag:
    ENGINE_STREAM = 1         # see above
    ENGINE_UNRELIABLE = 2     # what is written may be lost on the way without a sign

cdef struct MessageEngine:    # the head of every message engine's state
    const MessageEngineOps* ops
    int wake                  # second descriptor, -1: none; open until fini
    int also                  # one more that a forked child is to close; 0: none
    int64_t spin              # ns that asking `peek` pays, 0: it does not
    size_t land_from          # bodies from this size on go to `landing`, 0: LAND_FROM (slab.pxd)
    const char* reason        # why MQ_PROTOCOL or MQ_GONE
    char[160] reason_text     # room for a composed reason
    # -- set by the host before `start` -----------------------------------------------------------
    int fd
    Pool* pool                # bodies come from here (msg_init_copy, slab_new)
    Landing* landing          # memory made ahead for large bodies; NULL: none
    int64_t max_message_size  # bytes of a whole message; -1 no limit
    bint connected            # 1: our connect(), 0: our bind()
    # -- counted by the engine, in messages; the host looks after each operation ------------------
    int64_t held              # taken by `write`, not with the kernel yet: they are not written
    # These since the host last looked: it takes them, and leaves 0.
    int64_t refused           # taken by `write`, then refused for good: dropped (unsendable)
    int64_t missed            # lost for want of room on their last step to us: read, dropped (full)
    int64_t bounced           # written, and then known not to have arrived

cdef struct MessageEngineOps:
    uint32_t abi              # MESSAGE_ENGINE_ABI
    uint32_t flags            # MessageEngineFlag
    # The host begins (after the handshake, if there is one). MQ_OK, MQ_NOMEM, MQ_PROTOCOL.
    int (*start)(MessageEngine* self) noexcept nogil
    # Frees everything, the state itself too. Last call. `fd` is still open.
    void (*fini)(MessageEngine* self) noexcept nogil
    # Messages in: fills out[0..cap) with parts, in order, *n of them; a part that is not the last
    # of its message is flagged MSG_MORE, subscriptions are MSG_SUBSCRIBE or MSG_CANCEL with the
    # bare topic. A message may be spread over several calls. The handles are the host's then.
    # MQ_OK: there may be more, call again; MQ_AGAIN: nothing more now, and the engine has seen to
    # it that there will be an edge when there is; MQ_GONE: the peer has ended, in order or not;
    # MQ_PROTOCOL; MQ_NOMEM. A host at its mark does not call until the socket makes room.
    int (*read)(MessageEngine* self, Msg* out, size_t cap, size_t* n) noexcept nogil
    # One whole message out (control ones too). MQ_OK: taken, the handles are the engine's, and it
    # counts as written: the kernel or the peer's memory has it; MQ_AGAIN: no room, nothing taken,
    # there will be an edge when there is, and the host then offers the same message again (so an
    # engine may have begun with it: shm streams what is larger than its ring); MQ_UNSUPPORTED: it
    # can never be carried (too large, too many parts), nothing taken, the host counts it as dropped
    # (unsendable); MQ_GONE; MQ_PROTOCOL; MQ_NOMEM.
    int (*write)(MessageEngine* self, Msg* parts, size_t n) noexcept nogil
    # After a run of writes, and at each edge while any are `held`: publish, wake the other side.
    # May be NULL. MQ_OK; MQ_AGAIN: some are still held, there will be an edge; MQ_GONE.
    int (*flush)(MessageEngine* self) noexcept nogil
    # Bytes written that the peer has not taken yet; close() with a linger waits for it to be 0. May
    # be NULL.
    int64_t (*pending)(MessageEngine* self) noexcept nogil
    # Is there something to read? Asked again and again, for up to `spin` ns, by a caller that would
    # otherwise sleep and has this connection alone to wait for: going to sleep and being woken
    # takes longer than many an answer. The peer need not wake us from here to the next MQ_AGAIN of
    # `read`, which always follows. May be NULL.
    bint (*peek)(MessageEngine* self) noexcept nogil
    # We end in order: tell the peer that nothing comes after what was written. May be NULL.
    void (*finish)(MessageEngine* self) noexcept nogil

cdef class NativeEngine:
    """Carries a message engine's state from Python to the host. Whoever still has it at the end
    calls fini."""
    cdef MessageEngine* engine
    cdef MessageEngine* take(self) noexcept  # the caller owns the state now

# The entry point of a message engine's Python half: judges the table, PluginError if it was made
# for another ABI or lacks an operation (state is freed by the caller then).
cdef NativeEngine native_engine(MessageEngine* engine)
