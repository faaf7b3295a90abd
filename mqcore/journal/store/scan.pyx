"""The reading end: windows on a file, block headers, walks from block to block.

A window may reach past the end of its file: its pages come to life as the file grows. So nothing
is read beyond the size that fstat has told, which every function here takes as `size`. Positions
are bytes from the start of the file.

Block headers are read with pread(), not through the map: a writer that cannot finish a block, and
one that opens a journal with a torn tail, may cut the file behind its last whole block, and what
touches a mapped page that was cut off dies of SIGBUS. Only whole blocks are read where they are
mapped, and those are never cut. A page that the disk cannot give would end the process, too: so the
pages of a block are read before they are touched, and a fault says which block it is.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_CLEAR, Py_INCREF
from libc.errno cimport EFAULT, EIO, errno
from libc.limits cimport LLONG_MAX, LLONG_MIN
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from mqcore.journal.store.block cimport (
    ALIGN, BLOCK_BODY_CRC, BLOCK_HEADER, BLOCK_HEADER_CRC, BLOCK_MAGIC, BLOCK_NEWER, BLOCK_NONSENSE,
    BLOCK_OFFSETS, BLOCK_OK, BLOCK_ORDER, BLOCK_PACKED, BLOCK_SHORT, BLOCK_UNREADABLE, COLUMNS,
    COMPACTED, HAS_STAMPS, MODERN, PACKED, PACKED_VERSION, SEGMENT_HEADER, TOPIC_MAX, VERSION,
    BlockHeader, SegmentHeader, aligned, block_end, body_size, check_columns, check_crc,
    check_header, check_places, column_sizes, places_size, segment_header_crc,
)
from mqcore.journal.store.includes cimport (
    MAP_FAILED, MAP_SHARED, PROT_READ, madvise, mmap, munmap, pread,
)
from mqcore.journal.store.joining cimport (
    JOINED, JOINED_BYTES, Joint, bytes_of, fits, join_block, join_from, join_into, takes,
)
from mqcore.journal.store.packing cimport address_of, unpack
from mqcore.journal.store.producers cimport ProducerTable

import os
from collections import namedtuple

cdef enum:
    SOUGHT = -1
    LIMIT_REACHED = -2
    WINDOW_END = -3
    BEHIND = -4

FAULTS = {
    BLOCK_SHORT: "the file ends inside a block",
    BLOCK_MAGIC: "no block begins here",
    BLOCK_HEADER_CRC: "the block's header does not match its CRC",
    BLOCK_NONSENSE: "the block's header contradicts itself",
    BLOCK_ORDER: "the block does not continue the offsets before it",
    BLOCK_BODY_CRC: "the block's columns do not match their CRC",
    BLOCK_OFFSETS: "the block's columns point outside it",
    BLOCK_UNREADABLE: "the disk cannot read it (an input/output error)",
    BLOCK_PACKED: "the block's compressed columns do not have the size that its header tells",
    BLOCK_NEWER: "a newer version has written the block, with a flag that this one does not know",
}
UNREADABLE = BLOCK_UNREADABLE
NEWER = BLOCK_NEWER
HEADER_SIZE = SEGMENT_HEADER
BLOCK_HEADER_SIZE = BLOCK_HEADER
ALIGNMENT = ALIGN

Header = namedtuple("Header", "first created journal salt partition topic begin version",
                    defaults=(VERSION,))
Header.__doc__ = "What stands in front of a segment; created in us, journal 16 bytes, topic bytes."
PLAIN_VERSION, COMPRESSED_VERSION = VERSION, PACKED_VERSION
Walk = namedtuple("Walk", "pos next why blocks low high marked durable")
Walk.__doc__ = """Where a walk stopped: at `pos`, before the message `next`; why: FOUND, LIMIT,
WINDOW, LOST (the offset is one that a repair gave up), or a fault (a key of FAULTS). The rest is
about the blocks passed."""
FOUND, LIMIT, WINDOW, LOST = SOUGHT, LIMIT_REACHED, WINDOW_END, BEHIND


def parse_segment(const uint8_t[::1] raw):
    """The Header, or what is wrong as text."""
    cdef SegmentHeader h
    if raw.shape[0] < SEGMENT_HEADER:
        return "the file is shorter than a segment's header"
    memcpy(&h, &raw[0], SEGMENT_HEADER)
    if memcmp(&h.magic[0], b"MQJSEG\r\n", 8) != 0:
        return "this is no segment of a journal"
    if h.crc != segment_header_crc(&h):
        return "the segment's header does not match its CRC"
    if h.version != VERSION and h.version != PACKED_VERSION:
        return f"format version {h.version}; this build reads {VERSION} and {PACKED_VERSION}"
    if h.topic_size > TOPIC_MAX or not 0 <= h.begin <= h.first:
        return "the segment's header contradicts itself"
    return Header(h.first, h.created, (<char*> h.journal)[:16], h.salt, h.partition,
                  (<char*> h.topic)[:h.topic_size], h.begin, h.version)


cdef enum:
    PAGE = 4096
    AHEAD = 64 << 10          # bytes of small blocks whose pages are read at a time
    POPULATE_READ = 22        # MADV_POPULATE_READ
    HWPOISON = 133            # EHWPOISON
    PEEK = 4096               # bytes read at a time to look at headers, at most

cdef struct Peek:
    int fd
    size_t want               # bytes to read the next time: more, the more headers are looked at
    int64_t start
    int64_t n
    uint8_t raw[4096]


cdef inline void peek_at(Peek* p, int fd) noexcept nogil:
    p.fd = fd
    p.want = BLOCK_HEADER
    p.start = p.n = 0


cdef const uint8_t* peek(Peek* p, int64_t pos) noexcept nogil:
    """The header at pos; NULL: the file ends before it does, or (p.n < 0) the disk gives an
    error."""
    if pos < p.start or pos + BLOCK_HEADER > p.start + p.n:
        p.start = pos
        p.n = pread(p.fd, p.raw, p.want, pos)
        p.want = min(4 * p.want, <size_t> PEEK)
    if p.n < BLOCK_HEADER:
        return NULL
    return &p.raw[pos - p.start]


cdef int look(Peek* p, int64_t pos, int64_t room, uint64_t salt, BlockHeader* h) noexcept nogil:
    """A BlockFault; see check_header()."""
    cdef const uint8_t* at
    if room < BLOCK_HEADER:
        return BLOCK_SHORT
    at = peek(p, pos)
    if at == NULL:
        return BLOCK_UNREADABLE if p.n < 0 else BLOCK_SHORT
    return check_header(at, room, salt, h)


cdef int fetch_pages(uint8_t* at, int fd, int64_t pos, int64_t end) noexcept nogil:
    """Read [pos, end) of the file, mapped at `at`, so that touching it ends no process. Errno."""
    cdef uint8_t[8192] raw
    cdef ssize_t n
    if madvise(at, end - pos, POPULATE_READ) == 0:
        return 0
    if errno == EFAULT or errno == EIO or errno == HWPOISON:
        return errno
    while pos < end:            # a kernel before 5.14
        n = pread(fd, raw, min(<int64_t> sizeof(raw), end - pos), pos)
        if n <= 0:
            return errno if n < 0 else EFAULT
        pos += n
    return 0


cdef class Block:
    """One block, or several as one: its header's facts and where its columns lie (bytes): in the
    window, or in `columns`, if they were compressed or put together. unpacked: the bytes that it
    would have if it were plain."""
    cdef readonly object window
    cdef readonly object columns        # a memoryview; None: not decompressed yet, or in the window
    cdef readonly int64_t pos, first, size, unpacked, low, high, durable
    cdef readonly uint32_t count, flags, n_headers
    cdef BlockHeader header
    cdef uint64_t where[17]
    cdef uint64_t sizes[17]

    def column(self, int i) -> tuple:
        """(position in `place`, bytes). 16: the places of a sparse block."""
        return self.where[i], self.sizes[i]

    @property
    def packed(self) -> bool:
        return self.flags & PACKED != 0

    @property
    def modern(self) -> bool:
        """It belongs into a segment of version 2."""
        return self.flags & (PACKED | MODERN) != 0

    @property
    def compacted(self) -> bool:
        """A checkpoint: compaction has removed what is missing before it. A block: it is sparse."""
        return self.flags & COMPACTED != 0

    @property
    def end(self) -> int:
        """The offset that follows."""
        return block_end(&self.header)

    @property
    def place(self) -> memoryview:
        """Where the columns are. A compressed block has been decompressed."""
        return memoryview(self.window) if self.columns is None else self.columns

    cdef void lay_out(self, uint64_t where) noexcept:
        """The columns are there from here on."""
        cdef int i
        column_sizes(&self.header, &self.sizes[0])
        for i in range(COLUMNS):
            self.where[i] = where
            where += aligned(self.sizes[i])
        self.where[<int> COLUMNS] = where
        self.sizes[<int> COLUMNS] = places_size(&self.header)


cdef class Window:
    """A stretch of a file, mapped for reading; a buffer."""
    cdef uint8_t* base
    cdef int fd               # the segment's, which outlives all calls but the buffer's
    cdef readonly int64_t start
    cdef readonly int64_t length
    cdef int64_t fetched, fetched_to        # these bytes of the file have been read once

    def __cinit__(self, int fd, int64_t start, int64_t length):
        cdef void* at = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, start)
        if at == MAP_FAILED:
            raise OSError(errno, os.strerror(errno))
        self.base = <uint8_t*> at
        self.fd = fd
        self.start = start
        self.length = length

    def __dealloc__(self):
        if self.base != NULL:
            munmap(self.base, self.length)

    cdef int check(self, int64_t pos, const BlockHeader* h, int64_t size,
                   const uint8_t** columns, PyObject** held) except -1 nogil:
        """The block's body, which lies in the window: a BlockFault. columns: where they are. held:
        NULL, or a reference to what they lie in, which this replaces and the caller drops. Raises
        what unpack() raises."""
        cdef int fault = self.fetch(pos, pos + <int64_t> h.size, size)
        columns[0] = self.base + (pos - self.start) + BLOCK_HEADER
        if fault == BLOCK_OK:
            fault = check_crc(columns[0], h)
        if fault == BLOCK_OK and h.flags & PACKED:
            with gil:
                Py_CLEAR(held[0])
                found = unpack(h, columns[0])
                fault = BLOCK_PACKED if found is None else BLOCK_OK
                if fault == BLOCK_OK:
                    columns[0] = address_of(found)
                    Py_INCREF(found)
                    held[0] = <PyObject*> found
        return fault if fault else check_columns(columns[0], h)

    cdef int fetch(self, int64_t pos, int64_t end, int64_t size) noexcept nogil:
        """Read the pages of [pos, end) where they are mapped, and some behind them: small blocks
        share them."""
        cdef int64_t more
        if self.fetched <= pos and end <= self.fetched_to:
            return BLOCK_OK
        pos -= (pos - self.start) % PAGE
        more = min(pos + AHEAD, size, self.start + self.length)
        if more <= end or fetch_pages(self.base + (pos - self.start), self.fd, pos, more):
            more = end
            if fetch_pages(self.base + (pos - self.start), self.fd, pos, end):
                return BLOCK_UNREADABLE
        if not self.fetched <= pos <= self.fetched_to:
            self.fetched = pos
            self.fetched_to = more
        self.fetched_to = max(self.fetched_to, more)
        return BLOCK_OK

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.base, self.length, 1, flags)

    @property
    def address(self) -> int:
        return <size_t> self.base

    def block(self, int64_t pos, int64_t size, uint64_t salt, bint verify):
        """The Block at pos, or a fault (int). It must lie within the window if it is whole."""
        cdef BlockHeader h
        cdef Block b
        cdef int64_t end = min(size, self.start + self.length)
        cdef Peek p
        cdef int fault
        cdef const uint8_t* columns
        cdef PyObject* held = NULL
        cdef object unpacked = None
        if pos < self.start or pos >= end:
            return BLOCK_SHORT
        peek_at(&p, self.fd)
        fault = look(&p, pos, end - pos, salt, &h)
        if fault == BLOCK_OK and verify:
            with nogil:
                fault = self.check(pos, &h, size, &columns, &held)
        if held != NULL:
            unpacked = <object> held
            Py_CLEAR(held)
        if fault:
            return fault
        b = self.made(pos, &h, unpacked)
        if h.count:
            if h.flags & PACKED:
                b.unpacked = BLOCK_HEADER + <int64_t> body_size(&h)
            b.lay_out(0 if h.flags & PACKED else pos - self.start + BLOCK_HEADER)
        return b

    cdef Block made(self, int64_t pos, const BlockHeader* h, object columns):
        cdef Block b = Block.__new__(Block)
        b.window = self
        b.pos, b.first, b.size = pos, h.first, <int64_t> h.size
        b.low, b.high, b.durable = h.min_time, h.max_time, h.durable
        b.count, b.flags, b.n_headers = h.count, h.flags, h.n_headers
        b.header, b.columns, b.unpacked = h[0], columns, b.size
        return b

    def joined(self, int64_t pos, int64_t size, uint64_t salt, int64_t room):
        """Small plain blocks from pos on, checked and copied into one Block, of about `room` bytes
        at most. They end in front of damage. None: there are no two, and block() says what is
        there."""
        cdef Joint joint
        cdef BlockHeader h
        cdef int64_t at = pos, end = min(size, self.start + self.length)
        cdef int i, n = 0
        cdef bytes columns
        if not self.start <= pos < end:
            return None
        with nogil:
            n = self.find_joined(pos, end, size, salt, min(room, <int64_t> JOINED_BYTES),
                                 &joint.header)
        if n < 2:
            return None
        columns = PyBytes_FromStringAndSize(NULL, body_size(&joint.header))
        join_into(&joint, <uint8_t*> PyBytes_AS_STRING(columns))
        with nogil:
            for i in range(n):
                memcpy(&h, self.base + (at - self.start), BLOCK_HEADER)
                if not fits(&joint, &h):
                    break
                join_block(&joint, self.base + (at - self.start) + BLOCK_HEADER, &h)
                at += h.size
        if joint.done.count != joint.header.count:
            return None
        b = self.made(pos, &joint.header, memoryview(columns))
        b.lay_out(0)
        return b

    cdef int find_joined(self, int64_t pos, int64_t end, int64_t size, uint64_t salt, int64_t room,
                         BlockHeader* all) except -1 nogil:
        """How many there are. all: what they have together."""
        cdef BlockHeader h, before
        cdef Peek p
        cdef const uint8_t* columns
        cdef PyObject* held = NULL
        cdef int n = 0
        peek_at(&p, self.fd)
        while n < JOINED and look(&p, pos, end - pos, salt, &h) == BLOCK_OK:
            if n == 0:
                if h.flags & (PACKED | COMPACTED):
                    break
                join_from(all, &h)
            before = all[0]
            if not takes(all, &h):
                break
            if bytes_of(all) > room or self.check(pos, &h, size, &columns, &held) != BLOCK_OK:
                all[0] = before
                break
            n += 1
            pos += h.size
        return n

    def reach(self, int64_t pos, int64_t size, uint64_t salt) -> int:
        """The bytes that the block at pos needs; a header's if there is none."""
        cdef BlockHeader h
        cdef Peek p
        cdef int fault
        peek_at(&p, self.fd)
        fault = look(&p, pos, min(size, self.start + self.length) - pos, salt, &h)
        return <int64_t> h.size if fault == BLOCK_OK or fault == BLOCK_SHORT else BLOCK_HEADER

    def walk(self, int64_t pos, int64_t next, int64_t size, uint64_t salt, *, int64_t offset=-1,
             int64_t time=LLONG_MAX, int64_t limit=LLONG_MAX, bint verify=False,
             ProducerTable into=None):
        """From block to block: to the one that holds `offset`, or the first with a message not
        before `time` (us), or the first at or behind `limit`, or a fault, or the window's end.

        `next` is the offset that the block at pos must begin with (-1: any). into: learns the
        stamps of the blocks passed, and those with stamps are checked. If compaction has removed
        the message `offset`, the next one that is there is looked for instead.
        """
        cdef BlockHeader h
        cdef int64_t end = min(size, self.start + self.length)
        cdef int64_t low = LLONG_MAX, high = LLONG_MIN, blocks = 0, durable = 0
        cdef Peek p
        cdef const uint8_t* columns
        cdef PyObject* held = NULL
        cdef int why = LIMIT_REACHED
        cdef bint marked = False, learns = into is not None
        peek_at(&p, self.fd)
        with nogil:
            while pos < limit:
                if pos == size:
                    why = BLOCK_SHORT
                    break
                if pos + BLOCK_HEADER > end and end < size:
                    why = WINDOW_END
                    break
                why = look(&p, pos, size - pos, salt, &h)
                if why:
                    break
                if next >= 0 and h.first != next and (h.count or h.first < next):
                    why = BLOCK_ORDER
                    break
                next = h.first
                if h.count == 0 and offset >= 0 and offset < next:
                    if not h.flags & COMPACTED:
                        why = BEHIND        # a repair has declared it lost
                        break
                    offset = next
                if h.count and (h.first <= offset < block_end(&h)
                                or time < LLONG_MAX and h.max_time >= time):
                    why = SOUGHT
                    break
                if verify or learns and h.flags & HAS_STAMPS:
                    if pos + <int64_t> h.size > end:
                        why = WINDOW_END
                        break
                    why = self.check(pos, &h, size, &columns, &held)
                    if why:
                        break
                    if learns:
                        into.learn(columns, &h)
                blocks += 1
                if h.count:
                    low = min(low, h.min_time)
                    high = max(high, h.max_time)
                durable = h.durable
                marked = h.count == 0
                next = block_end(&h)
                pos += h.size
                why = LIMIT_REACHED
        Py_CLEAR(held)
        return Walk(pos, next, why, blocks, low, high, marked, durable)

    def fetch_block(self, Block block, int64_t size) -> int:
        """Before an unchecked block is touched: a fault, or 0. Decompresses it. Where its messages
        are is checked all the same: who reads goes on from there."""
        cdef const uint8_t* columns = self.base + (block.pos - self.start) + BLOCK_HEADER
        with nogil:
            fault = self.fetch(block.pos, block.pos + block.size, size)
        if fault == BLOCK_OK and block.flags & PACKED:
            block.columns = unpack(&block.header, columns)
            if block.columns is None:
                return BLOCK_PACKED
            columns = address_of(block.columns)
        return fault if fault else check_places(columns, &block.header)

    def seek_block(self, int64_t pos, int64_t size, uint64_t salt) -> int:
        """Where the next block with an intact header begins, at or behind pos; -1: not here."""
        cdef BlockHeader h
        cdef int64_t end = min(size, self.start + self.length)
        cdef int64_t found = -1
        cdef const uint8_t* at
        cdef Peek p
        cdef int fault
        peek_at(&p, self.fd)
        pos = (pos + ALIGN - 1) // ALIGN * ALIGN
        with nogil:
            while pos + BLOCK_HEADER <= end:
                at = peek(&p, pos)
                if at == NULL and p.n < 0:      # go on behind what the disk does not give
                    pos = (pos // PAGE + 1) * PAGE
                    continue
                if at == NULL:
                    break
                if memcmp(at, b"MQB1", 4) == 0:
                    fault = check_header(at, size - pos, salt, &h)
                    if fault == BLOCK_OK or fault == BLOCK_SHORT:
                        found = pos
                        break
                pos += ALIGN
        return found
