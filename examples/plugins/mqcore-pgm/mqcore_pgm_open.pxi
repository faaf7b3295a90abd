# Included by mqcore_pgm_engine.pyx: what the Python half calls, to open libpgm's sockets.

# -- the Python half's -----------------------------------------------------------------------------

class LibraryError(Exception):
    """libpgm cannot be used, or has refused something."""


def load(str name="libpgm-5.3.so.0") -> None:
    """Open the library. LibraryError."""
    cdef bytes raw = name.encode()
    cdef const char* reason = pgm_open(&LIBRARY, raw)
    if reason != NULL:
        raise LibraryError(reason.decode("utf-8", "replace"))


cdef object failed(const char* what, PgmError* error):
    text = what.decode()
    if error != NULL:
        if error.message != NULL:
            text += ": " + error.message.decode("utf-8", "replace")
        LIBRARY.error_free(error)
    return LibraryError(text)


cdef int create(Pgm* p, dict options) except -1:
    """libpgm's socket. When libpgm 5.3.128 finds no descriptor, it closes descriptor 0 (which it has
    not opened): that is put back."""
    cdef PgmError* error = NULL
    cdef int zero = fcntl(0, F_DUPFD_CLOEXEC, 3)
    cdef bint made
    if zero < 0 and errno != EBADF:
        raise OSError(errno, "Too many open files")
    made = LIBRARY.socket(&p.sock, options["family"], SOCK_SEQPACKET,
                          IPPROTO_UDP if options["udp"] else PGM_PROTOCOL, &error)
    if zero >= 0:
        if not made:
            dup2(zero, 0)
        close(zero)
    if not made:
        p.sock = NULL
        raise failed(b"cannot open", error)
    return 0


cdef int tune(Pgm* p, dict options) except -1:
    """What libpgm wants to know before it binds."""
    cdef int[8] beats
    cdef bint ok = True
    cdef int i
    settings = [(PGM_OPT_MTU, options["mtu"]), (PGM_OPT_NOBLOCK, 1)]
    if p.sends:
        settings += [(PGM_OPT_SEND_ONLY, 1), (PGM_OPT_TXW_MAX_RTE, options["rate"]),
                     (PGM_OPT_TXW_SQNS, options["packets"]),
                     (PGM_OPT_AMBIENT_SPM, 10_000_000)]
    else:
        settings += [(PGM_OPT_RECV_ONLY, 1), (PGM_OPT_RXW_SQNS, options["packets"]),
                     (PGM_OPT_PEER_EXPIRY, 300_000_000), (PGM_OPT_SPMR_EXPIRY, 25_000),
                     (PGM_OPT_NAK_BO_IVL, 10_000), (PGM_OPT_NAK_RPT_IVL, 50_000),
                     (PGM_OPT_NAK_RDATA_IVL, 50_000),
                     (PGM_OPT_NAK_DATA_RETRIES, options["retries"]),
                     (PGM_OPT_NAK_NCF_RETRIES, options["retries"])]
    for option, value in settings:
        ok = ok and pgm_set_int(&LIBRARY, p.sock, option, value)
    if p.sends:               # us, how long after a packet libpgm announces what it has sent
        for i, beat in enumerate((10, 20, 50, 100, 100, 1000, 5000, 9000)):
            beats[i] = beat * 1000
        ok = ok and LIBRARY.set(p.sock, PGM_PROTOCOL, PGM_OPT_HEARTBEAT_SPM, beats, sizeof(beats))
    if options["udp"]:
        ok = (ok and pgm_set_int(&LIBRARY, p.sock, PGM_OPT_UCAST_PORT, options["port"])
              and pgm_set_int(&LIBRARY, p.sock, PGM_OPT_MCAST_PORT, options["port"]))
    if not ok:
        raise LibraryError("libpgm refuses an option")
    return 0


cdef int join(Pgm* p, dict options) except -1:
    """Bind to the interface, join the group, begin."""
    cdef bytes group = options["group"]
    cdef bytes address = options["address"]
    cdef bytes tsi = options["id"]
    cdef PgmError* error = NULL
    cdef PgmAddress me
    cdef PgmInterface at
    memset(&me, 0, sizeof(me))
    me.port = options["port"]
    memcpy(&me.tsi, <const char*> tsi, 6)
    memset(&at, 0, sizeof(at))
    at.index = options["index"]
    at.scope = options["scope"]
    memcpy(&at.address, <const char*> address, min(<size_t> len(address), sizeof(at.address)))
    if not LIBRARY.bind3(p.sock, &me, sizeof(me), &at, sizeof(at), &at, sizeof(at), &error):
        raise failed(b"cannot bind", error)
    if not pgm_group(&LIBRARY, p.sock, PGM_OPT_JOIN_GROUP, at.index, <const char*> group,
                     len(group)):
        raise LibraryError("cannot join the group at this interface")
    if not (pgm_group(&LIBRARY, p.sock, PGM_OPT_SEND_GROUP, at.index, <const char*> group,
                      len(group))
            and pgm_set_int(&LIBRARY, p.sock, PGM_OPT_MULTICAST_LOOP, options["loop"])
            and pgm_set_int(&LIBRARY, p.sock, PGM_OPT_MULTICAST_HOPS, options["hops"])):
        raise LibraryError("cannot send to the group at this interface")
    if not LIBRARY.connect(p.sock, &error):
        raise failed(b"cannot announce itself", error)
    return 0


cdef int guard(Pgm* p, int fd, bytes program) except -1:
    """Let only packets through that libpgm can read (mqcore_pgm_filter.py), and throw away what
    came before."""
    cdef sock_fprog filter
    cdef uint8_t[16] scrap
    filter.len = <unsigned short> (len(program) // 8)
    filter.filter = <sock_filter*> <char*> program
    if setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)):
        raise LibraryError("the kernel refuses the socket filter")
    while recv(fd, scrap, sizeof(scrap), MSG_DONTWAIT) >= 0:
        pass
    return 0


cdef int watch(Pgm* p, dict options) except -1:
    """The descriptors: one is the host's, the others are in the set."""
    cdef epoll_event event
    cdef int buffer = options["recv_buffer"]
    cdef int off = 0
    cdef int fd, option
    cdef int n = 0
    memset(&event, 0, sizeof(event))
    event.events = EPOLLIN
    p.head.wake = epoll_create1(EPOLL_CLOEXEC)
    if p.head.wake < 0:
        raise OSError(errno, "Too many open files")
    for option in (PGM_OPT_RECV_SOCK, PGM_OPT_SEND_SOCK, PGM_OPT_PENDING_SOCK,
                   PGM_OPT_REPAIR_SOCK):
        if option == PGM_OPT_REPAIR_SOCK and not p.sends:
            continue
        fd = pgm_get_int(&LIBRARY, p.sock, option)
        if fd < 0:
            raise LibraryError("libpgm does not give its descriptors")
        fcntl(fd, F_SETFD, FD_CLOEXEC)
        p.head.more[n] = fd
        n += 1
        if option == PGM_OPT_PENDING_SOCK or option == PGM_OPT_REPAIR_SOCK:
            epoll_ctl(p.head.wake, EPOLL_CTL_ADD, fd, &event)
    p.send_fd = p.head.more[1]
    fd = p.head.more[0]
    if options["udp"]:        # else it hears every group that any program of the host has joined
        setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &off, sizeof(off))
    if setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer)):
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer))
    guard(p, fd, options["filter"])
    buffer = options["send_buffer"]
    if buffer:
        setsockopt(p.send_fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer))
    return 0


def open_engine(dict options) -> tuple:
    """(engine, a copy of its receiving descriptor). LibraryError, OSError, MemoryError."""
    cdef Pgm* p = <Pgm*> calloc(1, sizeof(Pgm))
    cdef int most
    if p == NULL:
        raise MemoryError
    if LIBRARY.handle == NULL:
        free(p)
        raise LibraryError("libpgm is not loaded")
    p.head.ops = &OPS
    p.head.wake = -1
    p.sends = options["sends"]
    p.settle = <int64_t> (<double> options["settle"] * 1e9)
    try:
        p.sources = <Source**> calloc(SOURCES, sizeof(Source*))
        if p.sources == NULL:
            raise MemoryError
        create(p, options)
        tune(p, options)
        join(p, options)
        watch(p, options)
        most = pgm_get_int(&LIBRARY, p.sock, PGM_OPT_MSSS)
        p.writer.cap = max(most, 64)
        p.writer.packet = <uint8_t*> calloc(1, p.writer.cap)
        if p.writer.packet == NULL:
            raise MemoryError
        writer_begin(&p.writer)
        copy = fcntl(p.head.more[0], F_DUPFD_CLOEXEC, 3)
        if copy < 0:
            raise OSError(errno, "Too many open files")
        return native_engine(&p.head), copy
    except BaseException:
        pgm_fini(&p.head)
        raise


# -- the layout alone, for tests -------------------------------------------------------------------

def to_packets(list messages, size_t size) -> list:
    """Messages (lists of parts) as packets of at most `size` bytes, as many in each as fit."""
    cdef Pool* pool = pool_new()
    cdef Writer w
    cdef Msg part
    buffer = bytearray(size)
    made = []
    memset(&w, 0, sizeof(w))
    w.packet = buffer
    w.cap = size
    writer_begin(&w)
    for message in messages:
        for body in message:
            msg_init_copy(&part, pool, <const uint8_t*> <char*> <bytes> body, len(body))
            vec_push(&w.message, &part)
        while writer_busy(&w):
            if w.n == w.cap:
                writer_close(&w)
                made.append(bytes(buffer))
                writer_begin(&w)
            writer_fill(&w)
    if w.n > OFFSET:
        writer_close(&w)
        made.append(bytes(buffer[:w.n]))
    vec_fini(&w.message)
    pool_free(pool)
    return made


def to_messages(list packets, int64_t most=-1) -> tuple:
    """(messages, packets refused) of one source's packets; None in the list: one was lost. `most`:
    bytes of a message."""
    cdef Pgm* p = <Pgm*> calloc(1, sizeof(Pgm))
    cdef Pool* pool = pool_new()
    cdef Source s
    cdef PgmPacket packet
    cdef PgmMessage* m
    cdef Msg* part
    refused = 0
    messages = []
    parts = []
    memset(&s, 0, sizeof(s))
    p.reader.pool = pool
    p.reader.most = most
    m = &p.batch[0]
    m.n = 1
    m.packets[0] = &packet
    for raw in packets:
        if raw is None:
            source_leave(&s)
            continue
        packet.data = <char*> <bytes> raw
        packet.size = len(raw)
        refused += pgm_message(p, &s, m) != MQ_OK
        while p.reader.at < p.reader.ready.n:
            part = &p.reader.ready.at[p.reader.at]
            p.reader.at += 1
            parts.append((<char*> msg_data(part))[:msg_size(part)])
            if not part.flags & MSG_MORE:
                messages.append(parts)
                parts = []
        vec_clear(&p.reader.ready)
        p.reader.at = 0
    source_fini(&s)
    arena_end(&p.reader.arena)
    vec_fini(&p.reader.ready)
    free(p)
    pool_free(pool)
    return messages, refused
