"""The topic index as a Python object, for tests and measurements."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from mqcore.base.clock cimport now_ns
from mqcore.protocols.routing.topics cimport (
    Topics, Walk, topics_fini, topics_find, topics_first, topics_next, topics_pop, topics_put,
    topics_remove, walk_next, walk_start,
)


cdef class TopicIndex:
    cdef Topics t

    def __dealloc__(self):
        topics_fini(&self.t)

    def __len__(self):
        return self.t.n

    @property
    def memory(self):
        return self.t.memory

    def put(self, bytes topic, uint64_t value):
        """The value before, 0 if the topic is new."""
        cdef uint64_t* place = topics_put(&self.t, <const uint8_t*> <char*> topic, len(topic))
        if place == NULL:
            raise MemoryError
        before = place[0]
        place[0] = value
        return before

    def find(self, bytes topic):
        cdef uint64_t* place = topics_find(&self.t, <const uint8_t*> <char*> topic, len(topic))
        return 0 if place == NULL else place[0]

    def remove(self, bytes topic):
        return topics_remove(&self.t, <const uint8_t*> <char*> topic, len(topic))

    def match(self, bytes data):
        cdef Walk w
        cdef uint64_t value
        out = []
        walk_start(&w, &self.t, <const uint8_t*> <char*> data, len(data))
        while True:
            value = walk_next(&w)
            if value == 0:
                return out
            out.append(value)

    def under(self, bytes prefix):
        """(topic, value) of all topics that start with prefix, as the tree is walked."""
        cdef size_t n = len(prefix)
        cdef uint8_t* buf = <uint8_t*> malloc(max(self.t.longest, n) + 1)
        cdef uint64_t value
        memcpy(buf, <const uint8_t*> <char*> prefix, n)
        out = []
        value = topics_first(&self.t, buf, &n)
        while value and buf[:n].startswith(prefix):
            out.append((buf[:n], value))
            value = topics_next(&self.t, buf, &n)
        free(buf)
        return out

    def pop(self):
        cdef size_t n = 0
        cdef uint8_t* buf = <uint8_t*> malloc(self.t.longest + 1)
        cdef uint64_t value = topics_pop(&self.t, buf, &n)
        topic = buf[:n]
        free(buf)
        return (topic, value) if value else None

    def clear(self):
        topics_fini(&self.t)

    def time_put(self, list topics):
        """Seconds to put them all."""
        cdef int64_t start = now_ns()
        cdef bytes topic
        for topic in topics:
            topics_put(&self.t, <const uint8_t*> <char*> topic, len(topic))[0] = 1
        return (now_ns() - start) / 1e9

    def time_match(self, list messages):
        """Seconds to match them all."""
        cdef int64_t start = now_ns()
        cdef Walk w
        cdef bytes data
        for data in messages:
            walk_start(&w, &self.t, <const uint8_t*> <char*> data, len(data))
            while walk_next(&w):
                pass
        return (now_ns() - start) / 1e9
