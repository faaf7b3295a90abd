"""The radix tree of topics: see topics.pxd."""

from libc.stdint cimport UINT32_MAX
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove


cdef inline Node** kids(Node* node) noexcept nogil:
    return <Node**> (<uint8_t*> node + sizeof(Node))


cdef inline uint8_t* firsts(Node* node) noexcept nogil:
    return <uint8_t*> node + sizeof(Node) + node.cap * sizeof(Node*)


cdef inline uint8_t* label(Node* node) noexcept nogil:
    return firsts(node) + node.cap


cdef inline size_t node_bytes(size_t cap, size_t size) noexcept nogil:
    return sizeof(Node) + cap * (sizeof(Node*) + 1) + size


cdef Node* node_new(Topics* t, uint16_t cap, const uint8_t* text, size_t size) noexcept nogil:
    cdef Node* node = <Node*> malloc(node_bytes(cap, size))
    if node == NULL:
        return NULL
    node.value = 0
    node.size = <uint32_t> size
    node.n = 0
    node.cap = cap
    if size:
        memcpy(label(node), text, size)
    t.memory += node_bytes(cap, size)
    return node


cdef void node_free(Topics* t, Node* node) noexcept nogil:
    t.memory -= node_bytes(node.cap, node.size)
    free(node)


cdef inline Node** node_kid(Node* node, uint8_t first) noexcept nogil:
    cdef uint8_t* all = firsts(node)
    cdef uint8_t* at
    if node.n == 0:
        return NULL
    at = <uint8_t*> memchr(all, first, node.n)
    if at == NULL:
        return NULL
    return kids(node) + (at - all)


cdef bint node_add_kid(Topics* t, Node** place, uint8_t first, Node* kid) noexcept nogil:
    """False: no memory, nothing changed. The node may move."""
    cdef Node* node = place[0]
    cdef Node* wide
    if node.n == node.cap:
        wide = node_new(t, node.cap * 2 if node.cap else 2, label(node), node.size)
        if wide == NULL:
            return False
        wide.value = node.value
        wide.n = node.n
        memcpy(kids(wide), kids(node), node.n * sizeof(Node*))
        memcpy(firsts(wide), firsts(node), node.n)
        node_free(t, node)
        place[0] = wide
        node = wide
    kids(node)[node.n] = kid
    firsts(node)[node.n] = first
    node.n += 1
    return True


cdef bint node_split(Topics* t, Node** place, size_t at) noexcept nogil:
    """Cuts the label at `at`: a new node above holds what is in front. False: no memory."""
    cdef Node* low = place[0]
    cdef Node* high = node_new(t, 2, label(low), at)
    cdef Node* small
    if high == NULL:
        return False
    kids(high)[0] = low
    firsts(high)[0] = label(low)[at]
    high.n = 1
    t.memory -= at + 1
    low.size -= <uint32_t> at + 1
    memmove(label(low), label(low) + at + 1, low.size)
    small = <Node*> realloc(low, node_bytes(low.cap, low.size))
    if small != NULL:
        kids(high)[0] = small
    place[0] = high
    return True


cdef inline size_t shared(const uint8_t* a, const uint8_t* b, size_t n) noexcept nogil:
    cdef size_t i = 0
    while i < n and a[i] == b[i]:
        i += 1
    return i


cdef uint64_t* topics_find(Topics* t, const uint8_t* topic, size_t size) noexcept nogil:
    cdef Node* node = t.root
    cdef Node** kid
    if node == NULL:
        return NULL
    while True:
        if node.size > size or memcmp(label(node), topic, node.size) != 0:
            return NULL
        topic += node.size
        size -= node.size
        if size == 0:
            return &node.value if node.value else NULL
        kid = node_kid(node, topic[0])
        if kid == NULL:
            return NULL
        topic += 1
        size -= 1
        node = kid[0]


cdef uint64_t* topics_new(Topics* t, Node** place, const uint8_t* rest, size_t size) noexcept nogil:
    """A leaf below *place for what is left of a topic; or *place itself if nothing is."""
    cdef Node* leaf
    if size == 0:
        return &place[0].value
    leaf = node_new(t, 0, rest + 1, size - 1)
    if leaf == NULL:
        return NULL
    if not node_add_kid(t, place, rest[0], leaf):
        node_free(t, leaf)
        return NULL
    return &leaf.value


cdef uint64_t* topics_put(Topics* t, const uint8_t* topic, size_t size) noexcept nogil:
    cdef Node** place = &t.root
    cdef Node** kid
    cdef uint64_t* value
    cdef const uint8_t* rest = topic
    cdef size_t left = size
    cdef size_t same
    if size > <size_t> UINT32_MAX:
        return NULL
    if t.root == NULL:
        t.root = node_new(t, 0, NULL, 0)
        if t.root == NULL:
            return NULL
    while True:
        same = shared(label(place[0]), rest, min(<size_t> place[0].size, left))
        if same < place[0].size:
            if not node_split(t, place, same):
                return NULL
            value = topics_new(t, place, rest + same, left - same)
            if value == NULL:             # undo: the upper half alone would be a node too many
                topics_join(t, place)
            break
        rest += same
        left -= same
        kid = NULL
        if left:
            kid = node_kid(place[0], rest[0])
        if kid == NULL:
            value = topics_new(t, place, rest, left)
            break
        rest += 1
        left -= 1
        place = kid
    if value != NULL and value[0] == 0:
        t.n += 1
        if size > t.longest:
            t.longest = size
    return value


cdef void topics_join(Topics* t, Node** place) noexcept nogil:
    """A node with one kid and no value becomes one with its kid; without memory it stays."""
    cdef Node* high = place[0]
    cdef Node* low
    cdef Node* one
    if high.value or high.n != 1 or high == t.root:
        return
    low = kids(high)[0]
    one = node_new(t, low.cap, NULL, 0)
    if one == NULL:
        return
    place[0] = <Node*> realloc(one, node_bytes(low.cap, <size_t> high.size + 1 + low.size))
    if place[0] == NULL:
        node_free(t, one)
        place[0] = high
        return
    one = place[0]
    t.memory += <size_t> high.size + 1 + low.size
    one.value = low.value
    one.n = low.n
    one.size = high.size + 1 + low.size
    memcpy(kids(one), kids(low), low.n * sizeof(Node*))
    memcpy(firsts(one), firsts(low), low.n)
    memcpy(label(one), label(high), high.size)
    label(one)[high.size] = firsts(high)[0]
    memcpy(label(one) + high.size + 1, label(low), low.size)
    node_free(t, low)
    node_free(t, high)


cdef bint topics_remove(Topics* t, const uint8_t* topic, size_t size) noexcept nogil:
    cdef uint64_t* value = topics_find(t, topic, size)
    if value == NULL:
        return False
    value[0] = 0
    t.n -= 1
    while topics_prune(t, topic, &size):
        pass
    return True


cdef bint topics_prune(Topics* t, const uint8_t* topic, size_t* size) noexcept nogil:
    """Tidies the node at a path where no topic ends. True: its parent, at topic[0..*size) now,
    is such a node without kids too (only after a join had failed for want of memory)."""
    cdef Node** place = &t.root
    cdef Node** above = NULL
    cdef Node* parent
    cdef size_t at = place[0].size
    cdef size_t above_at = 0
    cdef size_t i
    while at < size[0]:
        above = place
        above_at = at
        place = node_kid(place[0], topic[at])
        at += 1 + place[0].size
    if place[0].n or above == NULL:
        topics_join(t, place)
        return False
    parent = above[0]
    i = place - kids(parent)
    node_free(t, place[0])
    parent.n -= 1
    kids(parent)[i] = kids(parent)[parent.n]
    firsts(parent)[i] = firsts(parent)[parent.n]
    size[0] = above_at
    if parent.n == 0 and parent.value == 0 and parent != t.root:
        return True
    topics_join(t, above)
    return False


# -- prefixes of a message -------------------------------------------------------------------------

cdef void walk_start(Walk* w, const Topics* t, const uint8_t* data, size_t size) noexcept nogil:
    w.node = t.root
    w.at = data
    w.left = size


cdef uint64_t walk_next(Walk* w) noexcept nogil:
    cdef Node* node
    cdef Node** kid
    while w.node != NULL:
        node = w.node
        w.node = NULL
        if node.size > w.left or memcmp(label(node), w.at, node.size) != 0:
            return 0
        w.at += node.size
        w.left -= node.size
        if w.left:
            kid = node_kid(node, w.at[0])
            if kid != NULL:
                w.at += 1
                w.left -= 1
                w.node = kid[0]
        if node.value:
            return node.value
    return 0


# -- all topics ------------------------------------------------------------------------------------

cdef uint64_t topics_down(Node* node, uint8_t* buf, size_t* size) noexcept nogil:
    """From a node whose path is buf[0..*size), its label not yet in it: the first topic below."""
    while True:
        memcpy(buf + size[0], label(node), node.size)
        size[0] += node.size
        if node.value or node.n == 0:
            return node.value
        buf[size[0]] = firsts(node)[0]
        size[0] += 1
        node = kids(node)[0]


cdef uint64_t topics_first(Topics* t, uint8_t* buf, size_t* size) noexcept nogil:
    cdef Node* node = t.root
    cdef Node** kid
    cdef size_t at = 0        # bytes of buf in front of the node's label
    if node == NULL:
        return 0
    while True:
        if memcmp(label(node), buf + at, min(<size_t> node.size, size[0] - at)) != 0:
            return 0
        if at + node.size >= size[0]:
            size[0] = at
            return topics_down(node, buf, size)
        at += node.size
        kid = node_kid(node, buf[at])
        if kid == NULL:
            return 0
        at += 1
        node = kid[0]


cdef uint64_t topics_next(Topics* t, uint8_t* buf, size_t* size) noexcept nogil:
    cdef Node* node = t.root
    cdef Node* turn = NULL    # the last node on the way with a later kid
    cdef size_t turn_at = 0
    cdef size_t turn_kid = 0
    cdef size_t at = node.size
    cdef size_t i
    while at < size[0]:
        i = node_kid(node, buf[at]) - kids(node)
        if i + 1 < node.n:
            turn = node
            turn_at = at
            turn_kid = i + 1
        node = kids(node)[i]
        at += 1 + node.size
    if node.n:                # its own extensions first
        turn = node
        turn_at = at
        turn_kid = 0
    if turn == NULL:
        return 0
    buf[turn_at] = firsts(turn)[turn_kid]
    size[0] = turn_at + 1
    return topics_down(kids(turn)[turn_kid], buf, size)


cdef uint64_t topics_pop(Topics* t, uint8_t* buf, size_t* size) noexcept nogil:
    # the last kid each time: the leaf leaves its parent's array from the end
    cdef Node* node = t.root
    cdef uint64_t value
    size[0] = 0
    if t.n == 0:
        return 0
    while node.n:
        memcpy(buf + size[0], label(node), node.size)
        size[0] += node.size
        buf[size[0]] = firsts(node)[node.n - 1]
        size[0] += 1
        node = kids(node)[node.n - 1]
    memcpy(buf + size[0], label(node), node.size)
    size[0] += node.size
    value = node.value
    topics_remove(t, buf, size[0])
    return value


cdef void topics_fini(Topics* t) noexcept nogil:
    """Frees leaf by leaf; a node's value is of no more use and remembers its parent meanwhile."""
    cdef Node* node = t.root
    cdef Node* kid
    cdef Node* parent
    if node != NULL:
        node.value = 0
    while node != NULL:
        if node.n:
            node.n -= 1
            kid = kids(node)[node.n]
            kid.value = <uint64_t> <size_t> node
            node = kid
        else:
            parent = <Node*> <size_t> node.value
            free(node)
            node = parent
    t.root = NULL
    t.n = 0
    t.longest = 0
    t.memory = 0
