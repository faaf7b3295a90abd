"""poll(2) behind the poller's table: the twin of epoll for other systems, and for tests."""

from mqcore.reactor.poller cimport PollerOps

cdef const PollerOps* poll_ops() noexcept nogil
