"""Fan-out: sends each message to every connected peer. For BUS and SURVEYOR.

Never waits: a peer at its HWM loses the message, counted. `nodrop` waits for all of
them, `disconnect` closes the links of the full ones (on_full of the socket).
"""

from libc.stdint cimport int64_t
from libc.string cimport strcmp

from mqcore.base.message cimport Msg
from mqcore.base.status cimport MQ_FULL, MQ_OK, MQ_UNSUPPORTED
from mqcore.protocols.routing.distribute cimport (
    Targets, targets_cut, targets_room, targets_send,
)
from mqcore.spi.pipe cimport Host, parts_size

cdef struct Fanout:           # zero-initialise; peers by targets_join and targets_leave
    Targets peers
    bint nodrop
    bint cut


cdef inline int fanout_set_option(Fanout* f, const char* name, int64_t number) noexcept nogil:
    if strcmp(name, "nodrop") == 0:
        f.nodrop = number != 0
        return MQ_OK
    if strcmp(name, "disconnect") == 0:   # no row of its own: the socket sets it for on_full
        f.cut = number != 0
        return MQ_OK
    return MQ_UNSUPPORTED


cdef inline int fanout_send(Fanout* f, Host* host, Msg* parts, size_t n) noexcept nogil:
    """Send a copy to each peer. The caller keeps the parts. MQ_OK; MQ_FULL: nodrop, nothing
    sent."""
    if f.nodrop and targets_room(&f.peers, parts, n):
        return MQ_FULL
    if f.peers.n == 0:
        host.unmatched += 1
    if f.cut:
        targets_cut(&f.peers, parts_size(parts, n))
    targets_send(&f.peers, parts, n, False)
    return MQ_OK
