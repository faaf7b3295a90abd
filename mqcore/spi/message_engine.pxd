"""The plug-in interface for message engines: transports of whole messages instead of byte streams.

Datagrams, shared memory, packets, multicast. The Python half is a transport of kind "engine"
(`MessageTransport` in transport.py). It parses addresses and creates descriptors. For each
connection its `open()` returns a `NativeEngine`, which carries the state declared here. The host
(the engine of mqcore/link) provides everything else: the lease, the lanes with their high-water
marks, the poller, timers, counters, the end.

The thread that holds the engine's lease calls all operations, one at a time; it may be any thread
(a caller's, an I/O thread's). They are nogil, never block, and take no lock that another thread
holds across a system call. System calls on the engine's own descriptors are allowed. The state is
one struct that starts with `MessageEngine`.

Two descriptors may signal events. `fd`, the connection itself, comes from the transport and belongs
to the host. `wake`, unless -1, is a second one that belongs to the engine: an eventfd, of which
each write is an edge and which need not be read, or with ENGINE_SET an epoll set. The engine puts
its other descriptors into that set, each with the interest it has at the moment, and changes them
with epoll_ctl at any time. Edges are hints: an operation may be called and find nothing.

An engine that must act by the clock (repeat a request, send again once a rate limit allows it) sets
`again`. The host then calls `read` and `write` after that time, even if the connection is idle.

With ENGINE_STREAM, `fd` also carries an ordinary byte stream. The host performs the protocol's
handshake over it (it checks the patterns and exchanges routing ids, as on any stream), and
heartbeats afterwards. Messages go through the operations, never over that stream, and its end is
the peer's end. The host then calls `read` and `write` for edges of `wake`. Without ENGINE_STREAM
no handshake takes place: there is one peer as soon as the engine starts, and the engine reads and
writes `fd`. That peer announces no subscriptions, so a publisher sends it everything and a
subscriber filters. `write` gets the subscriptions of our own socket and may close them.

An engine may have many sources behind that one peer (multicast). `read` then gives the parts of one
message without parts of another between them, and a source that joins late, or of which something
was lost, begins with its next whole message. What is lost is reported by `lost`.

close() ends an engine in two steps. First it calls `pending` until that is 0, for `linger` at most.
Operations go on meanwhile: the engine repairs, repeats and flushes. Then come `finish` and `fini`.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from mqcore.base.message cimport Msg
from mqcore.base.slab cimport Landing, Pool

cdef enum:
    MESSAGE_ENGINE_ABI = 3

cdef enum:
    MORE_FDS = 5              # see MessageEngine.more

cdef enum MessageEngineFlag:
    ENGINE_STREAM = 1         # see above
    ENGINE_UNRELIABLE = 2     # written messages may be lost without notice
    ENGINE_SET = 4            # `wake` is an epoll set

cdef struct MessageEngine:    # the head of every message engine's state
    const MessageEngineOps* ops
    int wake                  # second descriptor, -1: none; open until fini
    int also                  # another one for a forked child to close; 0: none
    int[MORE_FDS] more        # the same: further ones, up to the first 0
    int64_t spin              # ns for which polling `peek` pays off, 0: it does not
    size_t land_from          # bodies from this size on go to `landing`, 0: LAND_FROM (slab.pxd)
    const char* reason        # why MQ_PROTOCOL or MQ_GONE
    char[160] reason_text     # space for a composed reason
    # -- set by the host before `start` -----------------------------------------------------------
    int fd
    Pool* pool                # memory for bodies comes from here (msg_init_copy, slab_new)
    Landing* landing          # memory prepared for large bodies; NULL: none
    int64_t max_message_size  # bytes of a whole message; -1 no limit
    bint connected            # 1: our connect(), 0: our bind()
    # -- counted by the engine, in messages; the host reads them after each operation
    # ------------------
    # taken by `write`, but not passed to the kernel yet: not counted as written
    int64_t held
    # Counts since the host last read them; the host resets them to 0.
    int64_t refused           # taken by `write`, then refused permanently: dropped (unsendable)
    int64_t missed            # lost for lack of space on the last step to us: read, dropped (full)
    int64_t bounced           # written, then reported undelivered
    int64_t malformed         # received, and no messages: read, dropped (malformed)
    # Bytes of an incomplete part that the engine keeps. The host reads it after each `read`.
    uint64_t under_way
    # -- the engine's requests and reports; the host reads them after each operation and resets them
    # to 0
    # ns from now after which the host calls `read` and `write`. 0: no request. The host may call
    # earlier, and calls once: ask again as long as it is needed. Any operation may ask.
    int64_t again
    # Units (packets, messages: what the transport numbers) of one source that will never arrive.
    # The host counts them in `PeerStats.lost` and reports the event Lost. After setting these
    # `read` returns at once, so that one call reports one source.
    int64_t lost
    char[96] lost_from        # the source, as text

cdef struct MessageEngineOps:
    uint32_t abi              # MESSAGE_ENGINE_ABI
    uint32_t flags            # MessageEngineFlag
    # The host starts (after the handshake, if there is one). MQ_OK, MQ_NOMEM, MQ_PROTOCOL.
    int (*start)(MessageEngine* self) noexcept nogil
    # Frees everything, including the state. Last call. `fd` is still open.
    void (*fini)(MessageEngine* self) noexcept nogil
    # Receive: fills out[0..cap) with parts in order, *n of them. A part that is not the last of its
    # message is flagged MSG_MORE; subscriptions are MSG_SUBSCRIBE or MSG_CANCEL with the plain
    # topic. A message may be spread over several calls. The host then owns the handles. MQ_OK:
    # there may be more, call again. MQ_AGAIN: nothing more now, and an edge will follow when there
    # is. MQ_GONE: the peer has ended, orderly or not. MQ_PROTOCOL; MQ_NOMEM. At its HWM
    # the host does not call until the socket has space.
    int (*read)(MessageEngine* self, Msg* out, size_t cap, size_t* n) noexcept nogil
    # Send one whole message (including control messages). MQ_OK: taken, the engine owns the
    # handles, and it counts as written: the kernel or the peer's memory has it. MQ_AGAIN: no space,
    # nothing taken, an edge will follow, and the host then offers the same message again (so an
    # engine may have begun with it: shm streams a message larger than its ring). If `again` is set,
    # that time takes the place of the edge, and the host does not watch `fd`. MQ_UNSUPPORTED: it
    # can never be carried (too large, too many parts), nothing taken, the host counts it as dropped
    # (unsendable). MQ_GONE; MQ_PROTOCOL; MQ_NOMEM.
    int (*write)(MessageEngine* self, Msg* parts, size_t n) noexcept nogil
    # After a run of writes, and at each edge while any are `held`: publish, wake the other side.
    # May be NULL. MQ_OK, MQ_GONE, or MQ_AGAIN: some are still held, an edge will follow.
    int (*flush)(MessageEngine* self) noexcept nogil
    # Bytes written that the peer has not taken yet; close() with linger waits until it is 0. May be
    # NULL.
    int64_t (*pending)(MessageEngine* self) noexcept nogil
    # Whether there is something to read. A caller that would otherwise sleep, and that waits for
    # this connection only, polls it for up to `spin` ns, because sleeping and waking take longer
    # than many replies. From here to the next MQ_AGAIN of `read`, which always follows, the peer
    # need not wake this side. May be NULL.
    bint (*peek)(MessageEngine* self) noexcept nogil
    # Orderly end: inform the peer that nothing follows what was written. May be NULL.
    void (*finish)(MessageEngine* self) noexcept nogil

cdef class NativeEngine:
    """Carries a message engine's state from Python to the host. If nothing has taken the state,
    this object calls fini at its end."""
    cdef MessageEngine* engine
    cdef MessageEngine* take(self) noexcept  # the caller owns the state now

# The entry point of a message engine's Python half: checks the table; PluginError if it was made
# for another ABI or lacks an operation (the caller then frees the state).
cdef NativeEngine native_engine(MessageEngine* engine)
