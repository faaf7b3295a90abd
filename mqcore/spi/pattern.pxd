"""The plug-in interface of patterns: an ops table, and the Python object that registers it.

A pattern only decides which pipe a message goes to and which pipe the next one comes from. It knows
no connections, protocols or threads. `protocols/push.pyx` and `pull.pyx` are the shortest examples,
`protocols/README.md` explains how to write one, `mqcore/protocols/routing/` has the
parts that most patterns need. For a pattern as a Python class see `mqcore/spi/python/pattern.py`.

**Callers and threads.** Each operation is called by one socket, under that socket's lock, on any
thread that holds it: a caller's in send(), an I/O thread that attaches a peer, the control thread
at the end. So operations of one socket never overlap, and two sockets share nothing unless you make
them. `init` and `fini` are called once, before and after all others.

**May it block.** Never: nogil, no Python, no system call, no lock, no waiting; it is short, since
all others that use the socket wait meanwhile. It may allocate.

**Messages.** A message is a run of handles, with MSG_MORE on all but the last. An operation that
gets one owns it if it returns MQ_OK or MQ_DROPPED, and must leave it untouched otherwise. It either
moves a message that it owns to a pipe (`pipe_write`), or closes every part (`msg_close`) and counts
the drop. A message that it takes out of a pipe it either appends to `out`, or closes and counts.
`mqcore.testing` checks the counters.

**Errors** are only the return values listed at each operation (`mqcore/base/status.pxd`).

**Protocols.** On ZMTP a pattern announces its Socket-Type (`zmtp`) and its number of ZMTP 2.0, and
checks the peer's announcement against the `zmtp` of the patterns in its `peers`. Each side checks
for itself, as in every implementation of ZMTP:

- To talk to a standard pattern, announce a type that it accepts. A pattern of yours that feeds
  `pull` announces "PUSH", number 8, and peers ("pull",). Every ZeroMQ program then treats it as a
  PUSH, so its messages must be those of a PUSH. The registry refuses a pattern that names a
  standard peer which would refuse it (`mqcore/spi/zmtp.py` has the table).
- Two patterns of your own announce their own names ("LANES"), number -1, and name each other. They
  do not talk to standard peers, nor to peers older than ZMTP 3.0, which introduced the names.
- A name in `peers` that is not installed stands for the type of that name in upper case.
- `zmtp` "": no ZMTP. The pattern only talks within the process (`inproc`), under its name.

Within a process the same types are compared, so inproc accepts exactly the peers that tcp accepts.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from mqcore.base.message cimport Msg, MsgVec
from mqcore.spi.pipe cimport Host, Pipe

cdef enum:
    PATTERN_ABI = 5           # of this file, pipe.pxd and base/message.pxd: any change of a layout
                              # changes the number, and plug-ins must be compiled again

cdef enum PatternFlag:
    PAT_SEND = 1              # supports send(); without it `send` is never called
    PAT_RECV = 2              # supports recv(); without it `readable` must read and drop what peers
                              # send (with PAT_SERVICE), or it accumulates
    PAT_WAITS = 4             # without any peer, messages wait in the socket for the first one
    PAT_REROUTE = 8           # messages not yet sent to a lost peer may go to another
    PAT_IDENTITY = 16         # announces its routing id in the handshake (REQ, DEALER, ROUTER)
    PAT_FANOUT = 32           # one send reaches many peers; `unmatched` counts
    PAT_EXCHANGE = 64         # strict order of send and recv (REQ, REP)
    PAT_CONFLATE = 128        # supports the conflate option
    PAT_SERVICE = 256         # its inbound pipes need service even if the application makes no call
                              # (subscriptions that arrive at a publisher)
    PAT_EXCLUSIVE = 512       # at most one peer: attach() refuses a second one (PAIR)
    PAT_ADDRESSES = 1024      # a message names its peer (ROUTER)
    PAT_GROUPS = 2048         # a message is a group and a body (RADIO, DISH): the first of its two
                              # parts is flagged MSG_GROUP; peers join groups instead of prefixes
    PAT_WORDS = 4096          # a message is an envelope, an empty part, and the body (REQ, REP,
                              # SURVEYOR ..). On SP each part of the envelope is a word: 00 and four
                              # bytes with a clear top bit a hop, four with a set one the id
    PAT_HOPS = 8192           # Msg.hops counts the links passed (PAIR1)
    PAT_SINGLE = 16384        # a message has one part (CLIENT, SERVER, SCATTER ..): the socket
                              # refuses to send others, and a fair queue (FairQueue.parts) drops
                              # them
    PAT_RAW = 32768           # its peers are byte streams without a protocol. A message is a piece
                              # of such a stream; an empty one ends it (STREAM)
    PAT_ALL = 65535           # others are refused: this version of mqcore does not support them

cdef enum PatternEvent:       # for Host.emit
    EV_SUBSCRIBED = 1         # data: topic
    EV_UNSUBSCRIBED = 2
                              # 3 is EV_DROPPED of pipe.pxd
    EV_FAILED_OVER = 4
    EV_FAILED_BACK = 5
    EV_TOO_SLOW = 6
    EV_REFUSED = 7            # a second peer for PAIR, a duplicate routing id: data is the reason
    EV_LOST = 9               # a message engine's: units lost (int64), then their source as text
    EV_FAILED = 8             # the pattern's code failed where no caller can get the error; data
                              # describes it. Reported and logged even if no program reads events()

cdef enum PatternQuery:
    # data: topic; number of peers that would get a message starting with it
    Q_SUBSCRIBERS = 1
    Q_CAN_SEND = 2            # 1 if send() would not return MQ_AGAIN now
    Q_CAN_RECV = 3            # 1 if recv() would not return MQ_AGAIN now (exact; may read and drop)
    Q_TOPICS = 4              # SUB: number of distinct topics
    Q_RESENT = 5              # REQ: number of requests sent again

cdef struct Pattern:          # the head of every pattern's state
    const PatternOps* ops
    Host* host                # counts drops without a peer and unmatched messages
    uint32_t context          # the context for which recv, subscribe, abandon, query and set_option
                              # are called: 0 the socket itself, else one that `context` opened (of
                              # set_option only names without a row are a context's). A message to
                              # send carries it in parts[0].peer

cdef struct PatternOps:       # static, read-only, outlives every socket
    # send_to, subscribe, abandon, context and alarm may be NULL; the registry refuses any other
    # NULL
    uint32_t abi              # PATTERN_ABI
    uint32_t flags            # PatternFlag
    # bytes of state; the socket allocates and zeroes it and fills in the head
    size_t size
    # -- life ------------------------------------------------------------------------------------
    # Before any other operation, without a lock; no other code knows the socket yet. MQ_OK;
    # anything else (MQ_NOMEM): the socket is not created, and `fini` is not called.
    int (*init)(Pattern* self) noexcept nogil
    # After all others; all pipes are detached. Frees what the operations allocated, not self.
    void (*fini)(Pattern* self) noexcept nogil
    # One of the pattern's own options: when the socket is created (if it is not the default) and
    # whenever the application assigns it. Numbers and booleans are in `number`, bytes and text in
    # data/size, borrowed. MQ_OK; MQ_INVALID (the caller gets OptionError), MQ_UNSUPPORTED (no such
    # option, or no longer possible).
    int (*set_option)(Pattern* self, const char* name, int64_t number, const uint8_t* data,
                      size_t size) noexcept nogil
    # -- peers: attach, then any number of readable and writable, then hangup, then detach ---------
    # A peer has completed the handshake. Its pipe may be written now, and read after `readable`
    # (which follows at once). MQ_OK; anything else refuses the peer (PAIR's second): its link is
    # closed, and neither hangup nor detach is called for it.
    int (*attach)(Pattern* self, Pipe* pipe) noexcept nogil
    # The peer is gone and all its messages have been read (or never will be): forget the pipe,
    # which is freed after this. Always after hangup.
    void (*detach)(Pattern* self, Pipe* pipe) noexcept nogil
    # The far side is gone, but some of its messages may still be unread. Do not write to it any
    # more. The socket takes back unsent messages of the pipe (PAT_REROUTE) or counts them.
    void (*hangup)(Pattern* self, Pipe* pipe) noexcept nogil
    # The pipe was empty (pipe_read returned MQ_AGAIN) and now has a message. A hint: the call may
    # be spurious.
    void (*readable)(Pattern* self, Pipe* pipe) noexcept nogil
    # The pipe was full (pipe_write returned MQ_FULL, pipe_has_room False) and now has space. A
    # hint.
    void (*writable)(Pattern* self, Pipe* pipe) noexcept nogil
    # -- messages --------------------------------------------------------------------------------
    # parts[0..n): a whole message, n >= 1. The pattern owns it on MQ_OK and MQ_DROPPED (which is
    # counted). On all other results it takes nothing: MQ_AGAIN (no peer) or MQ_FULL (all peers that
    # may get it are at their HWMs): the socket waits and tries again after `writable`
    # or `attach`; MQ_NO_PEER (NoSuchPeer), MQ_STATE (StateError), MQ_INVALID and MQ_UNSUPPORTED
    # (UsageError), MQ_NOMEM. If a message that waited in the socket (PAT_WAITS) is refused so, it
    # is counted as malformed.
    int (*send)(Pattern* self, Msg* parts, size_t n) noexcept nogil
    # Appends one whole message to out, which then owns it, and counts it (pipe_delivered). MQ_OK;
    # MQ_AGAIN: none now, try again after `readable`; MQ_STATE; MQ_GONE (REQ: the peer disconnected
    # before it replied); MQ_OVER (SURVEYOR: the deadline has passed); MQ_UNSUPPORTED; MQ_NOMEM. On
    # failure out is unchanged. Envelope parts come first, flagged MSG_ENVELOPE.
    int (*recv)(Pattern* self, MsgVec* out) noexcept nogil
    # send, to one peer (Pipe.id): replies of REP and RESPONDENT (parts start with the envelope that
    # recv returned), ROUTER by peer. MQ_NO_PEER if it is gone. NULL: Message.reply() is refused.
    int (*send_to)(Pattern* self, uint32_t peer, Msg* parts, size_t n) noexcept nogil
    # SUB and XSUB: on = 1 subscribe, 0 unsubscribe; XPUB manual: acts on the last notifier. The
    # topic is borrowed. MQ_OK, MQ_STATE, MQ_NOMEM. NULL: the pattern has no topics.
    int (*subscribe)(Pattern* self, const uint8_t* topic, size_t size, int on) noexcept nogil
    # REQ, SURVEYOR: abandon the outstanding exchange. NULL: there never is one.
    void (*abandon)(Pattern* self) noexcept nogil
    # PatternQuery, data borrowed; -1: unknown query. Q_CAN_SEND and Q_CAN_RECV must be supported:
    # poll(), fileno() and explain() depend on them.
    int64_t (*query)(Pattern* self, uint32_t what, const uint8_t* data, size_t size) noexcept nogil
    # on = 1: open the context `number`, never 0 and never used before: a separate line of requests
    # (surveys, subscriptions) over the same peers. 0: close it and abandon its outstanding
    # exchange. MQ_OK, MQ_NOMEM. NULL: the pattern has no contexts.
    int (*context)(Pattern* self, uint32_t number, bint on) noexcept nogil
    # The time of host.alarm has come (the socket has cleared it); `now` in monotonic ns. It may be
    # slightly late. For actions that must happen without a call. NULL: the pattern sets no alarm.
    void (*alarm)(Pattern* self, int64_t now) noexcept nogil

cdef class PatternPlugin:
    """The object that entry points of the group `mqcore.protocols` name. `plugin_new` creates it in
    Cython.

    The registry loads it by its entry point's name on first use and checks it once. Another ABI, a
    NULL for a required operation, properties that contradict each other or the table of ZMTP, a
    name or an option that another plug-in claims, or an exception at import: the registry then
    refuses the plug-in with a PluginError that names its distribution and the remedy. Other
    plug-ins are not affected."""
    cdef const PatternOps* ops
    cdef object _keeps                # keeps ops alive, if it is not static
    cdef readonly str name            # "push": lower case, the argument of Context.socket()
    # ZMTP 2.0 socket type number; -1: ZMTP 2.0 has no such pattern
    cdef readonly int number
    cdef readonly str zmtp            # "PUSH": Socket-Type in READY; "" if ZMTP cannot carry it
    cdef readonly int sp              # SP protocol number; -1: SP has no such pattern
    cdef readonly tuple peers         # names of the patterns that it talks to: ("pull",)
    cdef readonly tuple options       # rows (name, type, default, doc), see rows_of in options.py
    cdef readonly str doc

cdef PatternPlugin plugin_new(const PatternOps* ops, str name, int number, str zmtp, int sp,
                              tuple peers, tuple options, str doc)

# -- operations that run Python: python/operation.pyx. Any thread that holds the GIL. --------------
# While one runs, its thread may not call any socket: it holds a lock and might wait for the same
# one, or for a lock whose holder waits for ours.
cdef void* op_begin(void* pattern) noexcept nogil          # returns op_end's argument
cdef void op_end(void* before) noexcept nogil
cdef void* op_current() noexcept nogil                     # the pattern, NULL outside
# StateError if there is a current operation
cdef int op_refuse() except -1
# Errors for the caller once the lock is free: the exception that ended a send or recv of this
# thread (MQ_FAILED). `op_later`: the same after a call that had already done something.
cdef void op_raised(object error)
cdef int op_raise() except -1
cdef void op_later()
# An exception of a signal handler in an operation without a caller: the main thread raises it next.
cdef void op_owe(object error)
cdef int op_pay() except -1
