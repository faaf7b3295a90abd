"""The pattern's door: one ops table, and the Python object that carries it to the registry.

A pattern decides which pipe a message goes to and comes from. All operations are called by the
socket with its lock held, on whatever thread that is (the application's, an I/O thread, the control
thread): nogil, no Python, no system call, no blocking, no lock of their own. They are short.
An operation that takes a message owns it when it returns MQ_OK or MQ_DROPPED, and has not touched
it otherwise. State is one struct that starts with `Pattern`.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from mqcore.base.message cimport Msg, MsgVec
from mqcore.spi.pipe cimport Host, Pipe

cdef enum:
    PATTERN_ABI = 1

cdef enum PatternFlag:
    PAT_SEND = 1              # send() means something
    PAT_RECV = 2              # recv() means something
    PAT_WAITS = 4             # with no peer at all, messages wait in the socket for the first one
    PAT_REROUTE = 8           # what a dead peer had not been sent may go to another
    PAT_IDENTITY = 16         # announces its routing id in the handshake (REQ, DEALER, ROUTER)
    PAT_FANOUT = 32           # one send reaches many peers; `unmatched` counts
    PAT_EXCHANGE = 64         # strict order of send and recv (REQ, REP)
    PAT_CONFLATE = 128        # the conflate option means something
    PAT_SERVICE = 256         # its inbound pipes want looking at even if the application calls not
                              # (subscriptions arriving at a publisher)
    PAT_EXCLUSIVE = 512       # one peer at most: attach() refuses a second one (PAIR)
    PAT_ADDRESSES = 1024      # a message goes to the peer that it names (ROUTER)

cdef enum PatternEvent:       # for Host.emit
    EV_SUBSCRIBED = 1         # data: topic
    EV_UNSUBSCRIBED = 2
                              # 3 is EV_DROPPED of pipe.pxd
    EV_FAILED_OVER = 4
    EV_FAILED_BACK = 5
    EV_TOO_SLOW = 6
    EV_REFUSED = 7            # a second peer for PAIR, a doubled routing id: data is the reason

cdef enum PatternQuery:
    Q_SUBSCRIBERS = 1         # data: topic; how many peers would get a message starting so
    Q_CAN_SEND = 2            # 1 if send() would not return MQ_AGAIN now
    Q_CAN_RECV = 3            # 1 if recv() would not return MQ_AGAIN now (exact; may read and drop)
    Q_TOPICS = 4              # SUB: how many distinct topics it holds

cdef struct Pattern:          # the head of every pattern's state
    const PatternOps* ops
    Host* host

cdef struct PatternOps:
    uint32_t abi              # PATTERN_ABI
    uint32_t flags            # PatternFlag
    size_t size               # bytes of state; allocated and zeroed by the socket, head filled in
    # -- life ------------------------------------------------------------------------------------
    int (*init)(Pattern* self) noexcept nogil                   # Status; leaves what fini can clean
    void (*fini)(Pattern* self) noexcept nogil                  # frees; all pipes are detached
    # One of the pattern's own option rows (see PatternPlugin.options). Numbers and booleans in
    # `number`, bytes in data/size. MQ_OK, MQ_INVALID, MQ_UNSUPPORTED (no such option).
    int (*set_option)(Pattern* self, const char* name, int64_t number, const uint8_t* data,
                      size_t size) noexcept nogil
    # -- peers -----------------------------------------------------------------------------------
    # A peer is there: its pipe may be written now, and read after `readable`. MQ_OK; anything else
    # refuses the peer (PAIR's second): its link is closed.
    int (*attach)(Pattern* self, Pipe* pipe) noexcept nogil
    # The peer is gone and every message of it has been read (or will not be): forget the pipe.
    void (*detach)(Pattern* self, Pipe* pipe) noexcept nogil
    # The far side is gone but messages may be left to read: write to it no more.
    void (*hangup)(Pattern* self, Pipe* pipe) noexcept nogil
    void (*readable)(Pattern* self, Pipe* pipe) noexcept nogil  # was empty, has something
    void (*writable)(Pattern* self, Pipe* pipe) noexcept nogil  # was full, has room
    # -- messages --------------------------------------------------------------------------------
    # parts[0..n): a whole message, MSG_MORE set on all but the last. MQ_OK; MQ_AGAIN (no peer) or
    # MQ_FULL (peers, all at their mark): nothing taken, try after `writable` or `attach`;
    # MQ_DROPPED: taken and counted; MQ_NO_PEER, MQ_STATE, MQ_INVALID, MQ_UNSUPPORTED: nothing
    # taken.
    int (*send)(Pattern* self, Msg* parts, size_t n) noexcept nogil
    # Appends one whole message to out. MQ_OK, MQ_AGAIN, MQ_STATE, MQ_GONE (REQ: the peer that owed
    # the answer left), MQ_UNSUPPORTED. Envelope parts come first, flagged MSG_ENVELOPE.
    int (*recv)(Pattern* self, MsgVec* out) noexcept nogil
    # The same to one peer (Pipe.id): REP and RESPONDENT answers (parts start with the envelope that
    # recv gave), ROUTER by peer. NULL: not supported.
    int (*send_to)(Pattern* self, uint32_t peer, Msg* parts, size_t n) noexcept nogil
    # SUB and XSUB: on = 1 subscribe, 0 unsubscribe; XPUB manual: acts on the last notifier. May
    # be NULL.
    int (*subscribe)(Pattern* self, const uint8_t* topic, size_t size, int on) noexcept nogil
    # REQ, SURVEYOR: give up what is outstanding. May be NULL.
    void (*abandon)(Pattern* self) noexcept nogil
    # PatternQuery; -1: unknown question.
    int64_t (*query)(Pattern* self, uint32_t what, const uint8_t* data, size_t size) noexcept nogil

cdef class PatternPlugin:
    """What the entry-point group `mqcore.protocols` yields. Made by `plugin_new` in Cython."""
    cdef const PatternOps* ops
    cdef readonly str name            # "push": lower case, what Context.socket() takes
    cdef readonly int number          # ZMTP 2.0 socket type number; -1: ZeroMQ has no such pattern
    cdef readonly str zmtp            # "PUSH": Socket-Type in READY; "" if ZMTP cannot carry it
    cdef readonly int sp              # SP protocol number; -1: SP has no such pattern
    cdef readonly tuple peers         # names of patterns it talks to: ("pull",)
    cdef readonly tuple options       # rows as in mqcore/options.py
    cdef readonly str doc

cdef PatternPlugin plugin_new(const PatternOps* ops, str name, int number, str zmtp, int sp,
                              tuple peers, tuple options, str doc)
