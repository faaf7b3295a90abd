"""Links: see pipe.pxd."""

from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from mqcore.base.histogram cimport Stamps
from mqcore.base.includes cimport aligned_alloc
from mqcore.base.message cimport Msg, msg_close, vec_fini
from mqcore.base.status cimport MQ_NOMEM, MQ_OK
from mqcore.base.ypipe cimport ypipe_fini, ypipe_init
from mqcore.link.plane cimport note_new
from mqcore.spi.lane cimport lane_read

cdef enum:
    # A reader publishes its count this often, after a quarter of the HWM in bytes, and
    # when it finds nothing.
    SHOW_EVERY = 128


cdef int _lane_init(Lane* lane, const Marks* marks) noexcept nogil:
    cdef int rc = ypipe_init(&lane.q)
    if rc:
        return rc
    lane.hwm_msgs = marks.msgs
    lane.hwm_bytes = marks.bytes
    lane.conflate = marks.conflate
    lane.step = SHOW_EVERY
    lane.step_bytes = marks.bytes // 4
    if marks.msgs // 2 < SHOW_EVERY:
        lane.step = marks.msgs // 2 + 1
    return 0


cdef void _lane_fini(Lane* lane) noexcept nogil:
    cdef Msg m
    if lane.conflate:
        while lane_read(lane, &m):
            msg_close(&m)
    ypipe_fini(&lane.q)
    free(lane.w_stamps)


cdef Link* link_new(Pool* pool, atomic[int64_t]* live, const Marks* forth,
                    const Marks* back) noexcept nogil:
    cdef Link* link = <Link*> aligned_alloc(64, (sizeof(Link) + 63) // 64 * 64)
    cdef int i
    if link == NULL:
        return NULL
    memset(<void*> link, 0, sizeof(Link))
    if _lane_init(&link.lanes[0], forth):
        free(link)
        return NULL
    if _lane_init(&link.lanes[1], back):
        _lane_fini(&link.lanes[0])
        free(link)
        return NULL
    link.refs.store(2)
    link.live = live
    link.pool = pool
    live.fetch_add(1)
    for i in range(2):
        link.ends[i].out = &link.lanes[i]
        link.ends[i].inn = &link.lanes[1 - i]
        link.ends[i].link = link
        link.ends[i].in_at = -1
        link.ends[i].out_at = -1
        link.ends[i].prio = 8
    return link


cdef void link_unref(Link* link) noexcept nogil:
    if link.refs.fetch_sub(1) != 1:
        return
    _lane_fini(&link.lanes[0])
    _lane_fini(&link.lanes[1])
    vec_fini(&link.returned)
    link.live.fetch_sub(1)
    free(link.ids[0])
    free(link.ids[1])
    free(link.gone[0])
    free(link.gone[1])
    free(link)


cdef void link_measure(Link* link, int i, Histogram* to) noexcept nogil:
    cdef Stamps* stamps
    if link.lanes[i].conflate:
        return
    stamps = <Stamps*> calloc(1, sizeof(Stamps))
    if stamps != NULL:
        stamps.to = to
        link.lanes[i].w_stamps = link.lanes[i].r_stamps = stamps


cdef int link_announced(Link* link) noexcept nogil:
    link.gone[0] = note_new()
    link.gone[1] = note_new()
    return MQ_OK if link.gone[0] != NULL and link.gone[1] != NULL else MQ_NOMEM


cdef ControlNote* link_gone(Link* link, Pipe* end) noexcept nogil:
    cdef int i = 1 if end == &link.ends[1] else 0
    cdef ControlNote* note = link.gone[i]
    link.gone[i] = NULL
    return note


cdef int link_name(Link* link, int end, const uint8_t* id, uint32_t size) noexcept nogil:
    if size == 0:
        return MQ_OK
    link.ids[end] = <uint8_t*> malloc(size)
    if link.ids[end] == NULL:
        return MQ_NOMEM
    memcpy(link.ids[end], id, size)
    link.ends[end].routing_id = link.ids[end]
    link.ends[end].routing_id_size = size
    return MQ_OK
