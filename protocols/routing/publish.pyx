"""The publisher's side: see publish.pxd."""

from libc.stdint cimport INT64_MAX, UINT32_MAX
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, strcmp, strlen

from mqcore.base.message cimport msg_copy, msg_data, msg_size, vec_clear, vec_fini, vec_push
from mqcore.base.status cimport MQ_FULL, MQ_INVALID, MQ_NOMEM, MQ_OK, MQ_UNSUPPORTED
from mqcore.protocols.routing.distribute cimport (
    copy_write, targets_cut, targets_fini, targets_hit, targets_hit_all, targets_room,
    targets_send,
)
from mqcore.protocols.routing.stub cimport close_all, tell_refused
from mqcore.protocols.routing.topics cimport (
    Walk, topics_find, topics_fini, topics_first, topics_next, topics_pop, topics_put,
    topics_remove, walk_next, walk_start,
)
from mqcore.spi.pattern cimport EV_SUBSCRIBED, EV_UNSUBSCRIBED
from mqcore.spi.pipe cimport (
    DIRTY_RESET, DROP_FULL, Pipe, parts_size, pipe_drop_out, pipe_touch,
)

cdef enum:
    SUBSCRIBED_MOST = 16 << 20    # max_subscription_bytes, unless the option says otherwise

cdef const char* TOO_MANY = "its subscriptions exceed max_subscription_bytes"

cdef struct PipeSet:          # ordered by Pipe.id: newer peers, mostly, go to the end
    uint32_t n
    uint32_t cap
    Pipe* at[1]

cdef struct Retained:         # the last messages with one first part, oldest at `head` once full
    uint32_t n
    uint32_t head
    MsgVec at[1]


# -- sets of pipes as values of the index: a pipe, or a PipeSet with the low bit set ---------------

cdef inline bint is_set(uint64_t value) noexcept nogil:
    return value & 1


cdef inline PipeSet* as_set(uint64_t value) noexcept nogil:
    return <PipeSet*> <size_t> (value & ~<uint64_t> 1)


cdef inline Pipe* as_pipe(uint64_t value) noexcept nogil:
    return <Pipe*> <size_t> value


cdef uint32_t set_place(PipeSet* s, uint32_t id) noexcept nogil:
    """Where the first pipe with at least this number is."""
    cdef uint32_t low = 0
    cdef uint32_t high = s.n
    cdef uint32_t middle
    if s.n and s.at[s.n - 1].id < id:
        return s.n
    while low < high:
        middle = (low + high) // 2
        if s.at[middle].id < id:
            low = middle + 1
        else:
            high = middle
    return low


cdef int set_add(uint64_t* value, Pipe* p) noexcept nogil:
    """Adds a pipe that is not in. Status."""
    cdef PipeSet* s = as_set(value[0])
    cdef Pipe* alone
    cdef uint32_t i
    if value[0] == 0:
        value[0] = <uint64_t> <size_t> p
        return MQ_OK
    if not is_set(value[0]):
        alone = as_pipe(value[0])
        s = <PipeSet*> malloc(sizeof(PipeSet) + 3 * sizeof(Pipe*))
        if s == NULL:
            return MQ_NOMEM
        s.n = 1
        s.cap = 4
        s.at[0] = alone
        value[0] = <uint64_t> <size_t> s | 1
    elif s.n == s.cap:
        s = <PipeSet*> realloc(s, sizeof(PipeSet) + (2 * <size_t> s.cap - 1) * sizeof(Pipe*))
        if s == NULL:
            return MQ_NOMEM
        s.cap *= 2
        value[0] = <uint64_t> <size_t> s | 1
    i = set_place(s, p.id)
    memmove(&s.at[0] + i + 1, &s.at[0] + i, (s.n - i) * sizeof(Pipe*))
    s.at[i] = p
    s.n += 1
    return MQ_OK


cdef void set_drop(uint64_t* value, Pipe* p) noexcept nogil:
    """Takes out a pipe that is in; 0 remains of the last one."""
    cdef PipeSet* s = as_set(value[0])
    cdef uint32_t i
    if not is_set(value[0]):
        value[0] = 0
        return
    i = set_place(s, p.id)
    s.n -= 1
    memmove(&s.at[0] + i, &s.at[0] + i + 1, (s.n - i) * sizeof(Pipe*))
    if s.n == 1:
        value[0] = <uint64_t> <size_t> s.at[0]
        free(s)


# -- subscriptions ---------------------------------------------------------------------------------

cdef int pub_path(Publisher* pub, size_t size) noexcept nogil:
    """Room for a topic in `path` before it goes into a tree: what is in can always get out."""
    cdef uint8_t* path
    if size < pub.path_cap:
        return MQ_OK
    path = <uint8_t*> realloc(pub.path, size * 2 + 64)
    if path == NULL:
        return MQ_NOMEM
    pub.path = path
    pub.path_cap = size * 2 + 64
    return MQ_OK


cdef inline void pub_tell(Publisher* pub, uint32_t what, Pipe* pipe, const uint8_t* topic,
                          size_t size) noexcept nogil:
    if pub.head.host.watched.load():
        pub.head.host.emit(pub.head.host, what, pipe, topic, size)


cdef void pub_init(Publisher* pub) noexcept nogil:
    pub.most = SUBSCRIBED_MOST


cdef bint pub_may(Publisher* pub, Pipe* pipe, size_t size) noexcept nogil:
    """May this peer have one more topic? If not, it is disconnected."""
    cdef Subscriber* peer = <Subscriber*> pipe.data
    if peer.bytes_ + <int64_t> size + SUB_COST <= pub.most:
        return True
    if not peer.cut:
        peer.cut = True
        tell_refused(pipe, TOO_MANY, strlen(TOO_MANY))
        pipe_touch(pipe, DIRTY_RESET)
    return False


cdef int pub_subscribe(Publisher* pub, Pipe* pipe, const uint8_t* topic,
                       size_t size) noexcept nogil:
    cdef Subscriber* peer = <Subscriber*> pipe.data
    cdef uint64_t* mine
    cdef uint64_t* all
    cdef bint first
    mine = topics_find(&peer.topics, topic, size)
    if mine != NULL:
        return SUB_NOTHING
    if not pub_may(pub, pipe, size):
        return -1
    if pub_path(pub, size):
        return -1
    mine = topics_put(&peer.topics, topic, size)
    if mine == NULL:
        return -1
    mine[0] = 1
    all = topics_put(&pub.index, topic, size)
    first = all != NULL and all[0] == 0
    if all == NULL or set_add(all, pipe):
        topics_remove(&peer.topics, topic, size)
        return -1
    peer.bytes_ += <int64_t> size + SUB_COST
    pub_tell(pub, EV_SUBSCRIBED, pipe, topic, size)
    if pub.retained.n:
        pub_replay(pub, pipe, topic, size)
    return SUB_CHANGED | (SUB_EDGE if first else 0)


cdef int pub_unindex(Publisher* pub, Pipe* pipe, const uint8_t* topic, size_t size) noexcept nogil:
    cdef uint64_t* all = topics_find(&pub.index, topic, size)
    cdef uint64_t rest = all[0]
    (<Subscriber*> pipe.data).bytes_ -= <int64_t> size + SUB_COST
    set_drop(&rest, pipe)
    if rest:
        all[0] = rest
    else:
        topics_remove(&pub.index, topic, size)
    pub_tell(pub, EV_UNSUBSCRIBED, pipe, topic, size)
    return SUB_CHANGED | (0 if rest else SUB_EDGE)


cdef int pub_cancel(Publisher* pub, Pipe* pipe, const uint8_t* topic, size_t size) noexcept nogil:
    if not topics_remove(&(<Subscriber*> pipe.data).topics, topic, size):
        return SUB_NOTHING
    return pub_unindex(pub, pipe, topic, size)


cdef int pub_strip(Publisher* pub, Pipe* pipe, size_t* size) noexcept nogil:
    if not topics_pop(&(<Subscriber*> pipe.data).topics, pub.path, size):
        return SUB_NOTHING
    return pub_unindex(pub, pipe, pub.path, size[0])


cdef bint pub_ask(Publisher* pub, Pipe* pipe, const uint8_t* topic, size_t size,
                  bint on) noexcept nogil:
    cdef Subscriber* peer = <Subscriber*> pipe.data
    cdef uint64_t* mine
    if not on:
        if topics_remove(&peer.asked, topic, size):
            peer.bytes_ -= <int64_t> size + SUB_COST
        return True
    if topics_find(&peer.asked, topic, size) != NULL:
        return True
    if not pub_may(pub, pipe, size) or pub_path(pub, size):
        return False
    mine = topics_put(&peer.asked, topic, size)
    if mine == NULL:
        return False
    mine[0] = 1
    peer.bytes_ += <int64_t> size + SUB_COST
    return True


cdef bint pub_unask(Publisher* pub, Pipe* pipe, size_t* size) noexcept nogil:
    cdef Subscriber* peer = <Subscriber*> pipe.data
    if not topics_pop(&peer.asked, pub.path, size):
        return False
    peer.bytes_ -= <int64_t> size[0] + SUB_COST
    return True


cdef int pub_attach(Publisher* pub, Pipe* pipe) noexcept nogil:
    pipe.data = calloc(1, sizeof(Subscriber))
    if pipe.data == NULL:
        return MQ_NOMEM
    return MQ_OK


cdef void pub_detach(Publisher* pub, Pipe* pipe) noexcept nogil:
    topics_fini(&(<Subscriber*> pipe.data).topics)
    topics_fini(&(<Subscriber*> pipe.data).asked)
    free(pipe.data)
    pipe.data = NULL


# -- messages --------------------------------------------------------------------------------------

cdef inline int pub_hit(Publisher* pub, Pipe* pipe) noexcept nogil:
    cdef Subscriber* peer = <Subscriber*> pipe.data
    if peer.round == pub.round:
        return MQ_OK          # by another of its topics
    peer.round = pub.round
    return targets_hit(&pub.hits, pipe)


cdef int pub_only(Publisher* pub, uint64_t value) noexcept nogil:
    if not is_set(value):
        return targets_hit(&pub.hits, as_pipe(value))
    return targets_hit_all(&pub.hits, &as_set(value).at[0], as_set(value).n)


cdef int pub_exactly(Publisher* pub, const uint8_t* topic, size_t size) noexcept nogil:
    cdef uint64_t* value = topics_find(&pub.index, topic, size)
    pub.hits.n = 0
    return MQ_OK if value == NULL else pub_only(pub, value[0])


cdef int pub_collect(Publisher* pub, const uint8_t* topic, size_t size) noexcept nogil:
    """All that subscribed to a prefix of topic into `hits`, each once. Status."""
    cdef Walk w
    cdef PipeSet* s
    cdef uint64_t value
    cdef uint64_t following
    cdef uint32_t i
    cdef int rc = MQ_OK
    pub.hits.n = 0
    walk_start(&w, &pub.index, topic, size)
    value = walk_next(&w)
    following = walk_next(&w) if value else 0
    if value and not following:          # one topic only: no pipe is in it twice
        return pub_only(pub, value)
    pub.round += 1
    while value and rc == MQ_OK:
        if is_set(value):
            s = as_set(value)
            for i in range(s.n):
                rc = pub_hit(pub, s.at[i])
                if rc:
                    break
        else:
            rc = pub_hit(pub, as_pipe(value))
        value = following
        following = walk_next(&w) if value else 0
    return rc


cdef int pub_send(Pattern* self, Msg* parts, size_t n) noexcept nogil:
    cdef Publisher* pub = <Publisher*> self
    cdef int rc = pub_collect(pub, msg_data(&parts[0]), msg_size(&parts[0]))
    return rc if rc else pub_give(pub, parts, n)


cdef int pub_give(Publisher* pub, Msg* parts, size_t n) noexcept nogil:
    cdef uint32_t i
    cdef int rc
    if n > 1:
        for i in range(pub.hits.n):
            if pub.hits.at[i].out.conflate:
                return MQ_INVALID
    if pub.nodrop and targets_room(&pub.hits, parts, n):
        return MQ_FULL
    if pub.retain:
        rc = pub_keep(pub, parts, n)
        if rc:
            return rc
    if pub.hits.n == 0:
        pub.head.host.unmatched += 1
    if pub.cut:
        targets_cut(&pub.hits, parts_size(parts, n))
    targets_send(&pub.hits, parts, n, False)
    close_all(parts, n)
    return MQ_OK


cdef int64_t pub_subscribers(Publisher* pub, const uint8_t* topic, size_t size) noexcept nogil:
    pub_collect(pub, topic, size)
    return pub.hits.n


# -- retain ----------------------------------------------------------------------------------------

cdef int pub_keep(Publisher* pub, Msg* parts, size_t n) noexcept nogil:
    """Keeps a copy in place of the oldest with this first part. Status."""
    cdef uint64_t* value
    cdef Retained* kept
    cdef MsgVec* slot
    cdef Msg m
    cdef size_t i
    if pub_path(pub, msg_size(&parts[0])):
        return MQ_NOMEM
    value = topics_find(&pub.retained, msg_data(&parts[0]), msg_size(&parts[0]))
    if value == NULL:
        kept = <Retained*> calloc(1, sizeof(Retained) + (pub.retain - 1) * sizeof(MsgVec))
        if kept == NULL:
            return MQ_NOMEM
        value = topics_put(&pub.retained, msg_data(&parts[0]), msg_size(&parts[0]))
        if value == NULL:
            free(kept)
            return MQ_NOMEM
        value[0] = <uint64_t> <size_t> kept
    kept = <Retained*> <size_t> value[0]
    slot = &kept.at[0] + (kept.head if kept.n == pub.retain else kept.n)
    vec_clear(slot)
    for i in range(n):
        msg_copy(&m, &parts[i])
        vec_push(slot, &m)
    if kept.n < pub.retain:
        kept.n += 1
    else:
        kept.head = (kept.head + 1) % pub.retain
    return MQ_OK


cdef void pub_replay(Publisher* pub, Pipe* pipe, const uint8_t* topic, size_t size) noexcept nogil:
    """All that is retained for a topic, to one peer."""
    cdef size_t at = size
    cdef uint64_t value
    cdef Retained* kept
    cdef MsgVec* m
    cdef uint32_t i
    if topic != pub.path:
        memcpy(pub.path, topic, size)
    value = topics_first(&pub.retained, pub.path, &at)
    while value and at >= size and memcmp(pub.path, topic, size) == 0:
        kept = <Retained*> <size_t> value
        for i in range(kept.n):
            m = &kept.at[0] + (kept.head + i) % pub.retain
            if pipe.out.conflate and m.n > 1 or copy_write(&pub.hits.copy, pipe, m.at, m.n):
                pipe_drop_out(pipe, DROP_FULL)
        value = topics_next(&pub.retained, pub.path, &at)


cdef void pub_forget(Publisher* pub) noexcept nogil:
    """Throws away all that is retained."""
    cdef size_t size = 0
    cdef uint64_t value
    cdef Retained* kept
    cdef uint32_t i
    while True:
        value = topics_pop(&pub.retained, pub.path, &size)
        if value == 0:
            return
        kept = <Retained*> <size_t> value
        for i in range(kept.n):
            vec_fini(&kept.at[0] + i)
        free(kept)


cdef int pub_set_option(Publisher* pub, const char* name, int64_t number) noexcept nogil:
    if strcmp(name, "nodrop") == 0:
        pub.nodrop = number != 0
        return MQ_OK
    if strcmp(name, "disconnect") == 0:   # no row of its own: the socket sets it for on_full
        pub.cut = number != 0
        return MQ_OK
    if strcmp(name, "max_subscription_bytes") == 0:
        pub.most = INT64_MAX if number < 0 else number
        return MQ_OK
    if strcmp(name, "retain") == 0:
        if number < 0 or number > UINT32_MAX:
            return MQ_INVALID
        pub_forget(pub)       # what is kept is laid out for the old number
        pub.retain = <uint32_t> number
        return MQ_OK
    return MQ_UNSUPPORTED


cdef void pub_fini(Publisher* pub) noexcept nogil:
    pub_forget(pub)
    topics_fini(&pub.retained)
    topics_fini(&pub.index)
    targets_fini(&pub.hits)
    free(pub.path)
    pub.path = NULL
