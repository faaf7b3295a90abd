"""epoll behind the poller's table: edge-triggered, nested."""

from mqcore.reactor.poller cimport PollerOps

cdef const PollerOps* epoll_ops() noexcept nogil
