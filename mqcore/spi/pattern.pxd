"""The pattern's door: one ops table, and the Python object that carries it to the registry.

A pattern decides which pipe a message goes to and which one the next comes from; that is all. It
knows no connection, no wire, no thread. `protocols/push.pyx` and `pull.pyx` are the shortest
models, `protocols/README.md` walks through one of your own, `mqcore/protocols/routing/` has the
parts that most need. The same door for a class in plain Python: `mqcore/spi/python_pattern.py`.

**Who calls, on which thread.** Every operation is called by one socket, with that socket's lock
held, on whatever thread has it: the application's that called send(), an I/O thread that brings
a peer, the control thread at the end. So operations of one socket never overlap, and two sockets
share nothing unless you make them. `init` and `fini` are called once, before and after all others.

**May it block.** Never: nogil, no Python, no system call, no lock, no waiting; it is short, since
all others that use the socket wait meanwhile. It may allocate.

**Messages.** A message is a run of handles, MSG_MORE on all but the last. An operation that is
given one owns it if it returns MQ_OK or MQ_DROPPED, and has not touched it otherwise. What it does
with one it owns: moves it to a pipe (`pipe_write`), or closes every part (`msg_close`) and counts
the drop. What it takes out of a pipe it appends to `out`, or closes and counts. Never both, never
neither: `mqcore.testing` holds the accounts against each other.

**Errors** are the return values named at each operation (`mqcore/base/status.pxd`), nothing else.

**Wires.** On ZMTP a pattern is known by what it announces, the Socket-Type (`zmtp`) and the number
of ZMTP 2.0, and checks the peer's announcement against the `zmtp` of the patterns in its `peers`.
Each side checks for itself, here as in every implementation of ZMTP:

- To talk to a standard pattern, announce a type that it accepts: a pattern of yours that feeds
  `pull` announces "PUSH", number 8, and peers ("pull",). Any ZeroMQ program takes it for a PUSH,
  so its messages must be a PUSH's. Naming a standard peer that would refuse you is a mistake that
  the registry refuses (`mqcore/spi/zmtp.py` has the table).
- Two patterns of your own announce names of their own ("LANES"), number -1, and name each other.
  Standard peers are refused, and refuse; so are peers older than ZMTP 3.0, which has the names.
- A name in `peers` that is not installed stands for the type of that name in upper case.
- `zmtp` "" : no ZMTP. The pattern talks within the process (`inproc`), known by its name.

Within a process the same types are compared, so what fits by tcp fits by inproc and no more.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from mqcore.base.message cimport Msg, MsgVec
from mqcore.spi.pipe cimport Host, Pipe

cdef enum:
    PATTERN_ABI = 3           # of this file, pipe.pxd and base/message.pxd: a change of any layout
                              # in them is a new number, and plug-ins are compiled again

cdef enum PatternFlag:
    PAT_SEND = 1              # send() means something; without it no `send` is called
    PAT_RECV = 2              # recv() means something; without it what peers send must be read and
                              # dropped in `readable` (with PAT_SERVICE), or it piles up
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
    PAT_GROUPS = 2048         # a message is a group and a body (RADIO, DISH): the first of its two
                              # parts is flagged MSG_GROUP; peers want groups, not prefixes
    PAT_WORDS = 4096          # a message is an envelope, an empty part, and the body (REQ, REP,
                              # SURVEYOR ..). On SP each part of the envelope is a word: 00 and four
                              # bytes with a clear top bit a hop, four with a set one the id
    PAT_HOPS = 8192           # links passed are counted in Msg.hops (PAIR1)
    PAT_SINGLE = 16384        # a message has one part (CLIENT, SERVER, SCATTER ..): the socket
                              # refuses to send another, and a fair queue (FairQueue.parts) drops it
    PAT_RAW = 32768           # its peers are streams of bytes, of anybody's: no wire is spoken. A
                              # message is any piece of such a stream; an empty one ends it (STREAM)
    PAT_ALL = 65535           # others are refused: this mqcore would not do what they promise

cdef enum PatternEvent:       # for Host.emit
    EV_SUBSCRIBED = 1         # data: topic
    EV_UNSUBSCRIBED = 2
                              # 3 is EV_DROPPED of pipe.pxd
    EV_FAILED_OVER = 4
    EV_FAILED_BACK = 5
    EV_TOO_SLOW = 6
    EV_REFUSED = 7            # a second peer for PAIR, a doubled routing id: data is the reason
    EV_FAILED = 8             # the pattern's own code failed where nobody could be told: data says
                              # how. Told and logged even if nobody reads events().

cdef enum PatternQuery:
    Q_SUBSCRIBERS = 1         # data: topic; how many peers would get a message starting so
    Q_CAN_SEND = 2            # 1 if send() would not return MQ_AGAIN now
    Q_CAN_RECV = 3            # 1 if recv() would not return MQ_AGAIN now (exact; may read and drop)
    Q_TOPICS = 4              # SUB: how many distinct topics it holds
    Q_RESENT = 5              # REQ: how many times a request was sent again

cdef struct Pattern:          # the head of every pattern's state
    const PatternOps* ops
    Host* host                # where drops without a peer and unmatched messages are counted
    uint32_t context          # on whose behalf recv, subscribe, abandon, query and set_option are
                              # called: 0 the socket's own, else one that `context` has opened (of
                              # set_option only what has no row is a context's). A message to
                              # send carries it in parts[0].peer

cdef struct PatternOps:       # static, read-only, outlives every socket
    # send_to, subscribe, abandon, context and alarm may be NULL; any other NULL is refused when it
    # is found
    uint32_t abi              # PATTERN_ABI
    uint32_t flags            # PatternFlag
    size_t size               # bytes of state; allocated and zeroed by the socket, head filled in
    # -- life ------------------------------------------------------------------------------------
    # Before any other operation; no lock is held yet, nobody else knows the socket. MQ_OK; anything
    # else (MQ_NOMEM): no socket is made, and `fini` is not called.
    int (*init)(Pattern* self) noexcept nogil
    # After every other: all pipes are detached. Frees what init and the others allocated, not self.
    void (*fini)(Pattern* self) noexcept nogil
    # One of the pattern's own option rows, when the socket is made (if it is not the default) and
    # whenever the application assigns it. Numbers and booleans in `number`, bytes and text in
    # data/size, borrowed. MQ_OK; MQ_INVALID (the caller gets OptionError), MQ_UNSUPPORTED (no such
    # option, or not any more).
    int (*set_option)(Pattern* self, const char* name, int64_t number, const uint8_t* data,
                      size_t size) noexcept nogil
    # -- peers: attach, then any number of readable and writable, then hangup, then detach ---------
    # A peer is there, handshaken and fitting: its pipe may be written now, and read after
    # `readable` (which follows at once). MQ_OK; anything else refuses the peer (PAIR's second): its
    # link is closed, and neither hangup nor detach is called for it.
    int (*attach)(Pattern* self, Pipe* pipe) noexcept nogil
    # The peer is gone and every message of it has been read (or will not be): forget the pipe,
    # which is freed after this. Always after hangup.
    void (*detach)(Pattern* self, Pipe* pipe) noexcept nogil
    # The far side is gone, but messages of it may be left to read: write to it no more. What lay
    # in the pipe unsent goes back to the socket (PAT_REROUTE) or is counted; not your business.
    void (*hangup)(Pattern* self, Pipe* pipe) noexcept nogil
    # The pipe was found empty (pipe_read said MQ_AGAIN) and has something now. A hint: it may be
    # called without need.
    void (*readable)(Pattern* self, Pipe* pipe) noexcept nogil
    # The pipe was found full (pipe_write said MQ_FULL, pipe_has_room no) and has room now. A hint.
    void (*writable)(Pattern* self, Pipe* pipe) noexcept nogil
    # -- messages --------------------------------------------------------------------------------
    # parts[0..n): a whole message, n >= 1, yours on MQ_OK and MQ_DROPPED (which is counted). MQ_OK;
    # MQ_AGAIN (no peer) or MQ_FULL (peers, all that may have it at their mark): nothing taken, the
    # socket waits and tries again after `writable` or `attach`; MQ_NO_PEER (NoSuchPeer), MQ_STATE
    # (StateError), MQ_INVALID and MQ_UNSUPPORTED (UsageError), MQ_NOMEM: nothing taken. A message
    # that waited in the socket (PAT_WAITS) and is then refused so is counted as malformed.
    int (*send)(Pattern* self, Msg* parts, size_t n) noexcept nogil
    # Appends one whole message to out, which owns it then, and counts it (pipe_delivered). MQ_OK;
    # MQ_AGAIN: none now, look again after `readable`; MQ_STATE; MQ_GONE (REQ: the peer that owed
    # the answer left); MQ_OVER (SURVEYOR: the deadline has passed); MQ_UNSUPPORTED; MQ_NOMEM.
    # Otherwise out is as it was. Envelope parts come first, flagged MSG_ENVELOPE.
    int (*recv)(Pattern* self, MsgVec* out) noexcept nogil
    # send, to one peer (Pipe.id): REP and RESPONDENT answers (parts start with the envelope that
    # recv gave), ROUTER by peer. MQ_NO_PEER if it is not there. NULL: Message.reply() is refused.
    int (*send_to)(Pattern* self, uint32_t peer, Msg* parts, size_t n) noexcept nogil
    # SUB and XSUB: on = 1 subscribe, 0 unsubscribe; XPUB manual: acts on the last notifier. The
    # topic is borrowed. MQ_OK, MQ_STATE, MQ_NOMEM. NULL: there are no topics.
    int (*subscribe)(Pattern* self, const uint8_t* topic, size_t size, int on) noexcept nogil
    # REQ, SURVEYOR: give up what is outstanding. NULL: nothing ever is.
    void (*abandon)(Pattern* self) noexcept nogil
    # PatternQuery, data borrowed; -1: unknown question. Q_CAN_SEND and Q_CAN_RECV must be answered:
    # poll(), fileno() and explain() rest on them.
    int64_t (*query)(Pattern* self, uint32_t what, const uint8_t* data, size_t size) noexcept nogil
    # on = 1: `number`, never 0 and never used before, is a context from now on: a line of requests
    # (surveys, subscriptions) of its own over the same peers. 0: it is one no more, what it had
    # outstanding is given up. MQ_OK, MQ_NOMEM. NULL: the pattern has no contexts.
    int (*context)(Pattern* self, uint32_t number, bint on) noexcept nogil
    # The time of host.alarm has come (the socket has cleared it); `now` in monotonic ns. NULL: the
    # pattern sets none. For what must happen though nobody calls; a little late is possible.
    void (*alarm)(Pattern* self, int64_t now) noexcept nogil

cdef class PatternPlugin:
    """What the entry-point group `mqcore.protocols` yields. Made by `plugin_new` in Cython.

    Found by the name of its entry point when somebody first asks for it, judged once: another ABI,
    a NULL where an operation is needed, facts that contradict each other or the table of ZMTP, a
    name or an option that somebody else claims, an exception at import: it is refused with a
    PluginError that names its distribution and the remedy, and no other is touched by that."""
    cdef const PatternOps* ops
    cdef object _keeps                # what ops lives in, if it is not static
    cdef readonly str name            # "push": lower case, what Context.socket() takes
    cdef readonly int number          # ZMTP 2.0 socket type number; -1: ZeroMQ has no such pattern
    cdef readonly str zmtp            # "PUSH": Socket-Type in READY; "" if ZMTP cannot carry it
    cdef readonly int sp              # SP protocol number; -1: SP has no such pattern
    cdef readonly tuple peers         # names of patterns it talks to: ("pull",)
    cdef readonly tuple options       # rows (name, type, default, doc), see rows_of in options.py
    cdef readonly str doc

cdef PatternPlugin plugin_new(const PatternOps* ops, str name, int number, str zmtp, int sp,
                              tuple peers, tuple options, str doc)

# -- operations that run Python: python_ops.pyx. Any thread that holds the GIL. --------------------
# While one is on, this thread may call no socket: it holds a lock and would wait for it, or for
# one whose holder waits for ours.
cdef void* op_begin(void* pattern) noexcept nogil          # gives what op_end takes
cdef void op_end(void* before) noexcept nogil
cdef void* op_current() noexcept nogil                     # the pattern, NULL outside
cdef int op_refuse() except -1                             # StateError if there is one
# What a caller is told once the lock is free: the exception that a send or recv of this thread
# ended with (MQ_FAILED); after a call that did something before it came to that, `op_later`.
cdef void op_raised(object error)
cdef int op_raise() except -1
cdef void op_later()
# What a signal's handler raised where nobody called: the main thread raises it when it next can.
cdef void op_owe(object error)
cdef int op_pay() except -1
