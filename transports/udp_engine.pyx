"""Datagrams to messages and back, in the layout of libzmq's RADIO and DISH: `size group body`, size
one byte (RFC 48). One socket is one peer, however many programs are at the other end. DGRAM's are
*bare*: the datagram is the body, and the first part is the source or destination address. Those of
PUB and SUB are *numbered* (udp_numbered.pxd): a message of any number of parts, and what is missing
between two of a source is reported as lost.

Sending: up to 32 messages go out in one system call (sendmmsg). Messages that the kernel has no
space for stay in the engine and do not count as written yet. A datagram that the kernel refuses is
dropped (`refused`). An ICMP error concerns an earlier datagram: it is counted (`bounced`), and the
datagram that was not sent because of it is sent again. No error ends a RADIO.

Receiving: up to 32 at a time (recvmmsg), each into a buffer of 64 KiB. Bodies are copied from
there: a few bytes individually, many into shared slabs. At its HWM a socket does not
read. The kernel then drops datagrams when its buffer is full. It counts these (SO_MEMINFO), and the
engine reports them (`missed`). A datagram that is truncated, too large or not in that layout is
passed on as one empty part. Every pattern that needs a group or an address counts that as
malformed; of numbered ones this engine counts it.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from mqcore.base.arena cimport arena_cut, arena_end
from mqcore.base.cursor cimport load_be32, store_be32
from mqcore.base.message cimport (
    MSG_CONTROL, MSG_INLINE_MAX, MSG_MORE, Msg, msg_close, msg_data, msg_init, msg_init_copy,
    msg_init_inline, msg_init_ref, msg_size,
)
from mqcore.base.slab cimport Owner, heap_new, owner_data
from mqcore.base.status cimport (
    MQ_AGAIN, MQ_GONE, MQ_NOMEM, MQ_OK, MQ_UNSUPPORTED,
)
from mqcore.spi.message_engine cimport (
    ENGINE_UNRELIABLE, MESSAGE_ENGINE_ABI, MessageEngine, MessageEngineOps, NativeEngine,
    native_engine,
)
from mqcore.spi.sockaddr cimport (
    AnySockaddr, SOCKADDR_TEXT, Sockaddr, sockaddr_parse, sockaddr_text, socklen_t,
)
from mqcore.transports.udp_numbered cimport (
    NUMBERED_HEAD, PART_HEAD, Numbered, numbered_begin, numbered_gap, numbered_size,
)
from mqcore.transports.udp_includes cimport (
    AF_INET6, EAGAIN, ECONNREFUSED, EINTR, EMSGSIZE, ENOPROTOOPT, MSG_DONTWAIT, MSG_NOSIGNAL,
    MSG_TRUNC, SK_MEMINFO_DROPS, SO_DOMAIN, SO_MEMINFO, SOL_SOCKET, errno,
    getsockopt, iovec, mmsghdr, recvmmsg, sendmmsg, strerror,
)

cdef enum:
    BATCH = 32                # datagrams in one system call
    ROOM = 65536              # buffer of one datagram: none is larger
    LARGEST_4 = 65507         # what UDP carries over IPv4
    LARGEST_6 = 65527
    # maximum to send; libzmq's DISH aborts its process at a size of 128 or more
    GROUP_MOST = 127
    COPY_BELOW = 8192         # bytes in a batch: fewer are copied one by one, so that a small
                              # message that is kept does not keep a slab
    ARENA_MAX = 8192          # larger bodies get memory of their own
    MEMINFO = 16              # numbers that SO_MEMINFO returns, and some spare
    BOUNCES = 8               # ICMP errors in a row for one datagram, then it is dropped

cdef struct Slot:             # one datagram to send
    uint8_t[1 + GROUP_MOST] head
    Sockaddr to               # for a bare one
    Msg body
    iovec[2] iov

cdef struct Udp:
    MessageEngine head
    size_t largest
    bint bare
    Numbered* numbered        # NULL: they are not
    # sending
    Slot[BATCH] slots
    mmsghdr[BATCH] out
    uint32_t first            # slots first..n are to be sent
    uint32_t n
    uint32_t bounces
    bint too_large            # EMSGSIZE, for the datagram at `first` or an earlier one
    # receiving
    uint8_t* area             # BATCH * ROOM bytes, made when first needed
    iovec[BATCH] in_iov
    mmsghdr[BATCH] inn
    AnySockaddr[BATCH] came_from  # for bare ones
    uint32_t at               # datagrams at..got of the area are to be read
    uint32_t got
    # the first part of the datagram at `at` was delivered, its body was not
    bint half
    size_t part               # of a numbered one, where its next part begins; 0: it is new
    bint copy
    Owner* arena
    uint32_t drops            # of the kernel, as last seen


cdef int udp_start(MessageEngine* self) noexcept nogil:
    cdef Udp* u = <Udp*> self
    cdef int family = 0
    cdef socklen_t size = sizeof(int)
    cdef int i
    getsockopt(self.fd, SOL_SOCKET, SO_DOMAIN, &family, &size)
    u.largest = LARGEST_6 if family == AF_INET6 else LARGEST_4
    for i in range(BATCH):
        u.slots[i].iov[0].iov_base = u.slots[i].head
        u.out[i].msg_hdr.msg_iov = u.slots[i].iov
        u.out[i].msg_hdr.msg_iovlen = 2
        u.inn[i].msg_hdr.msg_iov = &u.in_iov[i]
        u.inn[i].msg_hdr.msg_iovlen = 1
        u.in_iov[i].iov_len = ROOM
        if u.bare:
            u.out[i].msg_hdr.msg_name = &u.slots[i].to.at
        if u.bare or u.numbered != NULL:
            u.inn[i].msg_hdr.msg_name = &u.came_from[i]
    return MQ_OK


cdef void udp_fini(MessageEngine* self) noexcept nogil:
    cdef Udp* u = <Udp*> self
    while u.first < u.n:
        msg_close(&u.slots[u.first].body)
        u.first += 1
    arena_end(&u.arena)
    free(u.area)
    free(u.numbered)
    free(u)


cdef int udp_gone(Udp* u, const char* doing) noexcept nogil:
    cdef int number = errno
    snprintf(u.head.reason_text, sizeof(u.head.reason_text), b"%s: %s", doing, strerror(number))
    u.head.reason = u.head.reason_text
    return MQ_GONE


cdef inline bint udp_bounced(Udp* u) noexcept nogil:
    """Whether errno is the network's response to an earlier datagram. Counts it."""
    if errno != ECONNREFUSED and errno != ENOPROTOOPT and errno != EMSGSIZE:
        return False
    u.head.bounced += 1
    return True


cdef inline bint udp_refused(Udp* u) noexcept nogil:
    """Sending failed with errno. True: permanently, so the next datagram is dropped. EMSGSIZE
    concerns this datagram if it occurs twice, else it is a response to an earlier one."""
    if errno == EMSGSIZE and not u.too_large:
        u.too_large = True
        return False
    u.bounces += 1
    return errno == EMSGSIZE or u.bounces > BOUNCES or not udp_bounced(u)


# -- out -------------------------------------------------------------------------------------------

cdef void udp_sent(Udp* u, uint32_t n) noexcept nogil:
    """The next n datagrams were sent, or dropped."""
    while n:
        msg_close(&u.slots[u.first].body)
        u.first += 1
        n -= 1
    u.bounces = 0
    u.too_large = False
    if u.first == u.n:
        u.first = 0
        u.n = 0
    u.head.held = u.n - u.first


cdef int udp_flush(MessageEngine* self) noexcept nogil:
    cdef Udp* u = <Udp*> self
    cdef int rc
    while u.first < u.n:
        rc = sendmmsg(self.fd, &u.out[u.first], u.n - u.first, MSG_DONTWAIT | MSG_NOSIGNAL)
        if rc > 0:
            self.bounced += u.too_large
            udp_sent(u, rc)
        elif errno == EAGAIN:
            return MQ_AGAIN
        elif errno != EINTR and udp_refused(u):
            self.refused += 1
            udp_sent(u, 1)
    return MQ_OK


cdef bint udp_group(Slot* slot, Msg* group) noexcept nogil:
    """Put the group in front of the datagram. False: it is too long."""
    cdef size_t size = msg_size(group)
    if size > GROUP_MOST:
        return False
    slot.head[0] = <uint8_t> size
    memcpy(&slot.head[1], msg_data(group), size)
    slot.iov[0].iov_len = 1 + size
    return True


cdef bint udp_address(Slot* slot, Msg* address) noexcept nogil:
    """Set the destination of the datagram. False: it is not an address."""
    slot.iov[0].iov_len = 0
    return sockaddr_parse(&slot.to, msg_data(address), msg_size(address))


cdef int udp_join(Udp* u, Slot* slot, Msg* parts, size_t n, size_t size) noexcept nogil:
    """Several parts with their lengths into one body. MQ_OK, MQ_NOMEM."""
    cdef Owner* owner = heap_new(u.head.pool, size)
    cdef uint8_t* at
    cdef size_t i
    if owner == NULL:
        return MQ_NOMEM
    at = owner_data(owner)
    msg_init_ref(&slot.body, owner, at, size)
    for i in range(n):
        store_be32(at, <uint32_t> msg_size(&parts[i]))
        memcpy(at + PART_HEAD, msg_data(&parts[i]), msg_size(&parts[i]))
        at += PART_HEAD + msg_size(&parts[i])
        msg_close(&parts[i])
    return MQ_OK


cdef int udp_number(Udp* u, Slot* slot, Msg* parts, size_t n) noexcept nogil:
    """Make a numbered datagram. MQ_OK, MQ_NOMEM, or MQ_UNSUPPORTED: it is too large."""
    cdef size_t size = 0
    cdef size_t i
    for i in range(n):
        size += PART_HEAD + msg_size(&parts[i])
    if NUMBERED_HEAD + size > u.largest:
        return MQ_UNSUPPORTED
    slot.iov[0].iov_len = NUMBERED_HEAD
    if n > 1:
        if udp_join(u, slot, parts, n, size):
            return MQ_NOMEM
    else:
        store_be32(slot.head + NUMBERED_HEAD, <uint32_t> msg_size(&parts[0]))
        slot.iov[0].iov_len += PART_HEAD
        slot.body = parts[0]
    numbered_begin(u.numbered, slot.head)
    slot.iov[1].iov_base = msg_data(&slot.body)
    slot.iov[1].iov_len = msg_size(&slot.body)
    return MQ_OK


cdef int udp_write(MessageEngine* self, Msg* parts, size_t n) noexcept nogil:
    cdef Udp* u = <Udp*> self
    cdef Slot* slot
    cdef int rc
    if parts[0].flags & MSG_CONTROL:      # no peer to send it to: the receiver filters by itself
        msg_close(&parts[0])
        return MQ_OK
    if n != 2 and u.numbered == NULL:
        return MQ_UNSUPPORTED
    if u.n == BATCH and udp_flush(self) == MQ_AGAIN:
        return MQ_AGAIN
    slot = &u.slots[u.n]
    if u.numbered != NULL:
        rc = udp_number(u, slot, parts, n)
        if rc == MQ_OK:
            u.n += 1
            self.held = u.n - u.first
        return rc
    if not (udp_address(slot, &parts[0]) if u.bare else udp_group(slot, &parts[0])):
        return MQ_UNSUPPORTED
    if slot.iov[0].iov_len + msg_size(&parts[1]) > u.largest:
        return MQ_UNSUPPORTED
    u.out[u.n].msg_hdr.msg_namelen = slot.to.size
    slot.body = parts[1]
    slot.iov[1].iov_base = msg_data(&slot.body)
    slot.iov[1].iov_len = msg_size(&slot.body)
    msg_close(&parts[0])
    u.n += 1
    self.held = u.n - u.first
    return MQ_OK


cdef int64_t udp_pending(MessageEngine* self) noexcept nogil:
    """close() waits for messages that the kernel does not have yet. It sends the others by
    itself."""
    cdef Udp* u = <Udp*> self
    cdef int64_t size = 0
    cdef uint32_t i
    for i in range(u.first, u.n):
        size += <int64_t> (u.slots[i].iov[0].iov_len + u.slots[i].iov[1].iov_len)
    return size


# -- in --------------------------------------------------------------------------------------------

cdef void udp_look_for_drops(Udp* u) noexcept nogil:
    cdef uint32_t[MEMINFO] info
    cdef socklen_t size = sizeof(info)
    if getsockopt(u.head.fd, SOL_SOCKET, SO_MEMINFO, info, &size) < 0:
        return
    if size > SK_MEMINFO_DROPS * sizeof(uint32_t):
        u.head.missed += <uint32_t> (info[SK_MEMINFO_DROPS] - u.drops)
        u.drops = info[SK_MEMINFO_DROPS]


cdef int udp_fetch(Udp* u) noexcept nogil:
    """Receive the next datagrams. MQ_OK, MQ_AGAIN, MQ_GONE, MQ_NOMEM."""
    cdef size_t total = 0
    cdef int i, rc
    if u.area == NULL:
        u.area = <uint8_t*> malloc(BATCH * ROOM)    # the kernel commits pages as they are used
        if u.area == NULL:
            return MQ_NOMEM
        for i in range(BATCH):
            u.in_iov[i].iov_base = u.area + i * ROOM
    while True:
        for i in range(BATCH if u.bare or u.numbered != NULL else 0):
            u.inn[i].msg_hdr.msg_namelen = sizeof(AnySockaddr)
        rc = recvmmsg(u.head.fd, u.inn, BATCH, MSG_DONTWAIT, NULL)
        if rc >= 0:
            break
        if errno == EAGAIN:
            udp_look_for_drops(u)
            return MQ_AGAIN
        if errno != EINTR and not udp_bounced(u):
            return udp_gone(u, b"the socket failed")
    udp_look_for_drops(u)
    u.at = 0
    u.got = <uint32_t> rc
    for i in range(rc):
        total += u.inn[i].msg_len
    u.copy = total < COPY_BELOW
    return MQ_OK


cdef int udp_body(Udp* u, Msg* out, const uint8_t* data, size_t size) noexcept nogil:
    if size <= MSG_INLINE_MAX:
        msg_init_inline(out, data, size)
        return MQ_OK
    if u.copy or size > ARENA_MAX:
        return msg_init_copy(out, u.head.pool, data, size)
    if arena_cut(&u.arena, u.head.pool, 1, size, out):
        return MQ_NOMEM
    memcpy(out.u.ref.data, data, size)
    return MQ_OK


cdef size_t udp_sender(Udp* u, char* text) noexcept nogil:
    """The source of the datagram at `at`, up to SOCKADDR_TEXT characters."""
    cdef Sockaddr sender
    sender.at = u.came_from[u.at]
    return sockaddr_text(&sender, text)


cdef inline bint udp_fits(Udp* u, const uint8_t* data, size_t size, int flags) noexcept nogil:
    cdef char[SOCKADDR_TEXT] text
    cdef int64_t limit = u.head.max_message_size
    if flags & MSG_TRUNC or not (u.bare or size and <size_t> data[0] + 1 <= size):
        return False
    if limit < 0 or <int64_t> (size + SOCKADDR_TEXT) <= limit:
        return True
    return <int64_t> (size + udp_sender(u, text) if u.bare else size - 1) <= limit


cdef int udp_front(Udp* u, Msg* out, const uint8_t* data) noexcept nogil:
    """The first part of the message at `at`: its group, or its source."""
    cdef char[SOCKADDR_TEXT] text
    if not u.bare:
        return udp_body(u, out, data + 1, data[0])
    return udp_body(u, out, <uint8_t*> text, udp_sender(u, text))


cdef int udp_numbered(Udp* u, const uint8_t* data, size_t size, Msg* out,
                      size_t* n) noexcept nogil:
    """The next part of the numbered datagram at `at`, if it has one for us. MQ_OK, MQ_NOMEM."""
    cdef int64_t all_ = 0
    cdef int64_t gap
    cdef size_t length
    if u.part == 0:
        all_ = numbered_size(data, size)
        if (all_ < 0 or u.inn[u.at].msg_hdr.msg_flags & MSG_TRUNC
                or 0 <= u.head.max_message_size < all_):
            u.head.malformed += 1
            u.at += 1
            return MQ_OK
        gap = numbered_gap(u.numbered, data, &u.head.malformed)
        if gap > 0:           # and then the same datagram again
            u.head.lost = gap
            u.head.lost_from[udp_sender(u, u.head.lost_from)] = 0
            return MQ_OK
        if gap < 0:
            u.at += 1
            return MQ_OK
        u.part = NUMBERED_HEAD
    length = load_be32(data + u.part)
    if udp_body(u, out, data + u.part + PART_HEAD, length):
        return MQ_NOMEM
    n[0] += 1
    u.part += PART_HEAD + length
    if u.part < size:
        out.flags = MSG_MORE
    else:
        u.part = 0
        u.at += 1
    return MQ_OK


cdef int udp_read(MessageEngine* self, Msg* out, size_t cap, size_t* n) noexcept nogil:
    cdef Udp* u = <Udp*> self
    cdef const uint8_t* data
    cdef size_t size, head
    cdef int rc
    n[0] = 0
    while n[0] < cap:
        if u.at == u.got:
            rc = udp_fetch(u)
            if rc == MQ_AGAIN:
                arena_end(&u.arena)   # an idle connection keeps no slab
            if rc:
                return rc
            continue
        data = u.area + u.at * <size_t> ROOM
        size = u.inn[u.at].msg_len
        if u.numbered != NULL:
            rc = udp_numbered(u, data, size, &out[n[0]], n)
            if rc or self.lost:
                return rc
            continue
        if not udp_fits(u, data, size, u.inn[u.at].msg_hdr.msg_flags):
            msg_init(&out[n[0]])
            u.at += 1
        elif not u.half:
            rc = udp_front(u, &out[n[0]], data)
            if rc:
                return rc
            out[n[0]].flags = MSG_MORE
            u.half = True
        else:
            head = 0 if u.bare else 1 + data[0]
            rc = udp_body(u, &out[n[0]], data + head, size - head)
            if rc:
                return rc
            u.half = False
            u.at += 1
        n[0] += 1
    return MQ_OK


cdef MessageEngineOps OPS = MessageEngineOps(
    abi=MESSAGE_ENGINE_ABI,
    flags=ENGINE_UNRELIABLE,
    start=udp_start,
    fini=udp_fini,
    read=udp_read,
    write=udp_write,
    flush=udp_flush,
    pending=udp_pending,
    peek=NULL,
    finish=NULL,
)


def udp_engine(bare: bool = False, source: int = 0) -> NativeEngine:
    """Create an engine for one datagram socket, not started. bare: for DGRAM. source: for PUB and
    SUB, a number that no other source has; 0: for the others."""
    cdef Udp* u = <Udp*> calloc(1, sizeof(Udp))
    if u == NULL:
        raise MemoryError
    if source:
        u.numbered = <Numbered*> calloc(1, sizeof(Numbered))
        if u.numbered == NULL:
            free(u)
            raise MemoryError
        u.numbered.id = source
    u.head.ops = &OPS
    u.head.wake = -1
    u.bare = bare
    return native_engine(&u.head)
