"""Datagrams to messages and back, in the layout of libzmq's RADIO and DISH: `size group body`, size
one byte (RFC 48). One socket is one peer, whoever is at the other ends of it. For DGRAM they are
*bare*: the datagram is the body, and the part in front is the address it came from, or goes to.

Out: messages are collected and sent up to 32 in a system call (sendmmsg). What the kernel has no
room for stays here until it has, and is not counted as written before. A datagram that the kernel
refuses is dropped (`refused`). An ICMP error is about an earlier one: it is counted (`bounced`) and
the datagram that it kept from going out is sent again; no error ends a RADIO.

In: up to 32 at a time (recvmmsg), each into 64 KiB of its own, from where bodies are copied: a few
bytes by themselves, many into shared slabs. Who is at its mark does not read, then the kernel drops
when its buffer is full; it counts these (SO_MEMINFO), and so do we (`missed`). A datagram that is
cut off, too large or not in that layout is passed on as one empty part, which every pattern that
wants a group or an address counts as malformed.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from mqcore.base.message cimport (
    MSG_CONTROL, MSG_INLINE_MAX, MSG_MORE, Msg, msg_close, msg_data, msg_init, msg_init_copy,
    msg_init_inline, msg_init_ref, msg_size,
)
from mqcore.base.slab cimport Owner, owner_data, owner_release, owner_retain, slab_new
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
from mqcore.transports.udp_includes cimport (
    AF_INET6, EAGAIN, ECONNREFUSED, EINTR, EMSGSIZE, ENOPROTOOPT, MSG_DONTWAIT, MSG_NOSIGNAL,
    MSG_TRUNC, SK_MEMINFO_DROPS, SO_DOMAIN, SO_MEMINFO, SOL_SOCKET, errno,
    getsockopt, iovec, mmsghdr, recvmmsg, sendmmsg, strerror,
)

cdef enum:
    BATCH = 32                # datagrams in one system call
    ROOM = 65536              # for one: none is larger
    LARGEST_4 = 65507         # what UDP carries over IPv4
    LARGEST_6 = 65527
    GROUP_MOST = 127          # sent; libzmq's DISH aborts its process at a size of 128 or more
    COPY_BELOW = 8192         # bytes in a batch: fewer are copied one by one, so that a small
                              # message that is kept does not keep a slab
    ARENA_MAX = 8192          # larger bodies get memory of their own
    MEMINFO = 16              # numbers that SO_MEMINFO gives, and some more
    BOUNCES = 8               # ICMP errors in a row for one datagram, then it is given up

cdef struct Slot:             # one datagram to send
    uint8_t[1 + GROUP_MOST] head
    Sockaddr to               # a bare one
    Msg body
    iovec[2] iov

cdef struct Udp:
    MessageEngine head
    size_t largest
    bint bare
    # out
    Slot[BATCH] slots
    mmsghdr[BATCH] out
    uint32_t first            # slots first..n are to be sent
    uint32_t n
    uint32_t bounces
    bint too_large            # EMSGSIZE, for the datagram at `first` or an earlier one
    # in
    uint8_t* area             # BATCH * ROOM bytes, made when first needed
    iovec[BATCH] in_iov
    mmsghdr[BATCH] inn
    AnySockaddr[BATCH] came_from  # of bare ones
    uint32_t at               # datagrams at..got of the area are to be read
    uint32_t got
    bint half                 # the first part of the one at `at` has been given, its body not
    bint copy
    Owner* arena
    size_t used
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
            u.inn[i].msg_hdr.msg_name = &u.came_from[i]
    return MQ_OK


cdef void udp_fini(MessageEngine* self) noexcept nogil:
    cdef Udp* u = <Udp*> self
    while u.first < u.n:
        msg_close(&u.slots[u.first].body)
        u.first += 1
    if u.arena != NULL:
        owner_release(u.arena)
    free(u.area)
    free(u)


cdef int udp_gone(Udp* u, const char* doing) noexcept nogil:
    cdef int number = errno
    snprintf(u.head.reason_text, sizeof(u.head.reason_text), b"%s: %s", doing, strerror(number))
    u.head.reason = u.head.reason_text
    return MQ_GONE


cdef inline bint udp_bounced(Udp* u) noexcept nogil:
    """Is errno the network's answer to an earlier datagram? Counts it."""
    if errno != ECONNREFUSED and errno != ENOPROTOOPT and errno != EMSGSIZE:
        return False
    u.head.bounced += 1
    return True


cdef inline bint udp_refused(Udp* u) noexcept nogil:
    """Sending failed with errno. True: for good, so the next datagram is given up. EMSGSIZE is of
    this datagram if it comes twice, else the network's answer to an earlier one."""
    if errno == EMSGSIZE and not u.too_large:
        u.too_large = True
        return False
    u.bounces += 1
    return errno == EMSGSIZE or u.bounces > BOUNCES or not udp_bounced(u)


# -- out -------------------------------------------------------------------------------------------

cdef void udp_sent(Udp* u, uint32_t n) noexcept nogil:
    """The next n datagrams have left, or are given up."""
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
    """The datagram begins with it; False: it is too long."""
    cdef size_t size = msg_size(group)
    if size > GROUP_MOST:
        return False
    slot.head[0] = <uint8_t> size
    memcpy(&slot.head[1], msg_data(group), size)
    slot.iov[0].iov_len = 1 + size
    return True


cdef bint udp_address(Slot* slot, Msg* address) noexcept nogil:
    """The datagram goes there; False: it is none."""
    slot.iov[0].iov_len = 0
    return sockaddr_parse(&slot.to, msg_data(address), msg_size(address))


cdef int udp_write(MessageEngine* self, Msg* parts, size_t n) noexcept nogil:
    cdef Udp* u = <Udp*> self
    cdef Slot* slot
    if parts[0].flags & MSG_CONTROL:      # nobody to tell: a DISH filters by itself
        msg_close(&parts[0])
        return MQ_OK
    if n != 2:
        return MQ_UNSUPPORTED
    if u.n == BATCH and udp_flush(self) == MQ_AGAIN:
        return MQ_AGAIN
    slot = &u.slots[u.n]
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
    """close() waits for what the kernel has not got; what it has it sends without us."""
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
    """The next datagrams into the area. MQ_OK, MQ_AGAIN, MQ_GONE, MQ_NOMEM."""
    cdef size_t total = 0
    cdef int i, rc
    if u.area == NULL:
        u.area = <uint8_t*> malloc(BATCH * ROOM)    # pages come with the bytes
        if u.area == NULL:
            return MQ_NOMEM
        for i in range(BATCH):
            u.in_iov[i].iov_base = u.area + i * ROOM
    while True:
        for i in range(BATCH if u.bare else 0):
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
    cdef uint8_t* at
    if size <= MSG_INLINE_MAX:
        msg_init_inline(out, data, size)
        return MQ_OK
    if u.copy or size > ARENA_MAX:
        return msg_init_copy(out, u.head.pool, data, size)
    if u.arena == NULL or u.used + size > u.arena.capacity:
        if u.arena != NULL:
            owner_release(u.arena)
        u.arena = slab_new(u.head.pool, 1)
        if u.arena == NULL:
            return MQ_NOMEM
        u.used = 0
    at = owner_data(u.arena) + u.used
    memcpy(at, data, size)
    u.used += (size + 7) & ~(<size_t> 7)
    owner_retain(u.arena)
    msg_init_ref(out, u.arena, at, size)
    return MQ_OK


cdef size_t udp_sender(Udp* u, char* text) noexcept nogil:
    """Where the one at `at` came from, SOCKADDR_TEXT at most."""
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
    """The first part of the message at `at`: its group, or where it came from."""
    cdef char[SOCKADDR_TEXT] text
    if not u.bare:
        return udp_body(u, out, data + 1, data[0])
    return udp_body(u, out, <uint8_t*> text, udp_sender(u, text))


cdef int udp_read(MessageEngine* self, Msg* out, size_t cap, size_t* n) noexcept nogil:
    cdef Udp* u = <Udp*> self
    cdef const uint8_t* data
    cdef size_t size, head
    cdef int rc
    n[0] = 0
    while n[0] < cap:
        if u.at == u.got:
            rc = udp_fetch(u)
            if rc == MQ_AGAIN and u.arena != NULL:  # an idle connection keeps no slab
                owner_release(u.arena)
                u.arena = NULL
            if rc:
                return rc
            continue
        data = u.area + u.at * <size_t> ROOM
        size = u.inn[u.at].msg_len
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


def udp_engine(bare: bool = False) -> NativeEngine:
    """An engine for one datagram socket, not started. bare: DGRAM's."""
    cdef Udp* u = <Udp*> calloc(1, sizeof(Udp))
    if u == NULL:
        raise MemoryError
    u.head.ops = &OPS
    u.head.wake = -1
    u.bare = bare
    return native_engine(&u.head)
