"""What others report to a socket, and whom it wakes. Lock-free, any thread.

A report puts the pipe on the ready stack, adds to `Sock.change` and wakes sleepers. Whoever sleeps
announces it first and then looks at `change` once more.
"""

from libc.stdint cimport uint32_t

from mqcore.link.engine cimport Port
from mqcore.reactor.poller cimport Ready
from mqcore.sock.sock cimport Sock
from mqcore.spi.pipe cimport Pipe

# A new socket: what its engines and its pattern call.
cdef void events_init(Sock* s) noexcept nogil
cdef void sock_changed(Sock* s) noexcept nogil            # make every waiter look again
# Messages arrived, or the lead is free: if all followers are takers, one of them checks. A thread
# that waited as a taker calls sock_pass() when it leaves, with or without a message: the next one
# checks.
cdef void sock_arrived(Sock* s) noexcept nogil
cdef void sock_pass(Sock* s) noexcept nogil
# kick every harvested engine
cdef void sock_act(Sock* s, Ready* found, int n) noexcept nogil
# -- how engines and inproc peers reach the socket
cdef void sock_event(Pipe* pipe, uint32_t what) noexcept nogil
# The same, but an I/O thread does what follows: no system call here but its wake-up, and nothing of
# this socket runs in the caller, who may hold the lock of another.
cdef void sock_event_later(Pipe* pipe, uint32_t what) noexcept nogil
cdef void sock_ended(Port* port) noexcept nogil
