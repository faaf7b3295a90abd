"""A shared-memory engine driven through its table, as its host would, without sockets."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint64_t

from mqcore.base.message cimport MSG_MORE, Msg, msg_close, msg_data, msg_init_copy, msg_size
from mqcore.base.slab cimport Pool, pool_drain_released, pool_free, pool_new
from mqcore.base.status cimport MQ_AGAIN, MQ_OK, MQ_PROTOCOL
from mqcore.reactor.includes cimport POLLIN, pollfd, ppoll
from mqcore.reactor.wakeup cimport eventfd_clear
from mqcore.spi.message_engine cimport MessageEngine, NativeEngine

cdef enum:
    CAP = 64                  # parts of a call


cdef class ShmEnd:
    """An engine, as its host would drive it. `what` of the errors is the engine's reason."""

    cdef MessageEngine* engine
    cdef Pool* pool
    cdef readonly str reason

    def __init__(self, NativeEngine carrier, *, int64_t max_message_size=-1, bint connected=False):
        self.pool = pool_new()
        if self.pool == NULL:
            raise MemoryError()
        self.engine = carrier.take()
        self.engine.fd = -1
        self.engine.pool = self.pool
        self.engine.max_message_size = max_message_size
        self.engine.connected = connected
        self.engine.ops.start(self.engine)

    def close(self):
        if self.engine != NULL:
            self.engine.ops.fini(self.engine)
            self.engine = NULL

    def __dealloc__(self):
        self.close()
        if self.pool != NULL:
            pool_drain_released(self.pool)
            pool_free(self.pool)

    @property
    def wake(self):
        return self.engine.wake

    @property
    def live(self):
        """The number of bodies in use."""
        return self.pool.live.load()

    def pending(self):
        return self.engine.ops.pending(self.engine)

    def flush(self):
        return self.engine.ops.flush(self.engine)

    def write(self, parts, int flags=0):
        """The status; `parts` are the message's. After 1 (again) call it with the same."""
        cdef Msg[CAP] some
        cdef size_t n = len(parts)
        cdef size_t i
        cdef int rc
        for i in range(n):
            body = parts[i]
            msg_init_copy(&some[i], self.pool, <uint8_t*> PyBytes_AS_STRING(body),
                          PyBytes_GET_SIZE(body))
            some[i].flags = <uint8_t> (flags | (MSG_MORE if i + 1 < n else 0))
        with nogil:
            rc = self.engine.ops.write(self.engine, some, n)
        if rc != MQ_OK:
            for i in range(n):
                msg_close(&some[i])
        self._note(rc)
        return rc

    def read(self, size_t cap=CAP):
        """(status, [(body, flags)]) of one call."""
        cdef Msg[CAP] some
        cdef size_t n = 0
        cdef size_t i
        cdef int rc
        with nogil:
            rc = self.engine.ops.read(self.engine, some, min(cap, <size_t> CAP), &n)
        found = []
        for i in range(n):
            found.append((PyBytes_FromStringAndSize(<char*> msg_data(&some[i]),
                                                    msg_size(&some[i])), some[i].flags))
            msg_close(&some[i])
        self._note(rc)
        return rc, found

    cdef _note(self, int rc):
        if rc == MQ_PROTOCOL:
            self.reason = self.engine.reason.decode()

    def blast(self, bytes body, uint64_t count):
        """Writes it count times, sleeping while there is no room; a flush after each 64."""
        cdef Msg m
        cdef uint64_t i = 0
        cdef int rc = MQ_OK
        cdef const uint8_t* at = <const uint8_t*> PyBytes_AS_STRING(body)
        cdef size_t size = PyBytes_GET_SIZE(body)
        with nogil:
            while i < count and (rc == MQ_OK or rc == MQ_AGAIN):
                if rc == MQ_OK:
                    msg_init_copy(&m, self.pool, at, size)
                rc = self.engine.ops.write(self.engine, &m, 1)
                if rc == MQ_AGAIN:
                    self._wait()
                elif rc == MQ_OK:
                    i += 1
                    if not i & 63:
                        self.engine.ops.flush(self.engine)
            self.engine.ops.flush(self.engine)
        return i

    def drain(self, uint64_t count):
        """Reads so many messages, sleeping while there is none; bytes of all of them."""
        cdef Msg[CAP] some
        cdef size_t n, i
        cdef uint64_t total = 0
        cdef int rc = MQ_OK
        with nogil:
            while count > 0 and (rc == MQ_OK or rc == MQ_AGAIN):
                n = 0
                rc = self.engine.ops.read(self.engine, some, min(<uint64_t> CAP, count), &n)
                for i in range(n):
                    total += msg_size(&some[i])
                    msg_close(&some[i])
                count -= n
                if rc == MQ_AGAIN and count > 0:
                    self._wait()
        return total

    cdef void _wait(self) noexcept nogil:
        cdef pollfd p
        p.fd = self.engine.wake
        p.events = POLLIN
        ppoll(&p, 1, NULL, NULL)
        eventfd_clear(p.fd)
