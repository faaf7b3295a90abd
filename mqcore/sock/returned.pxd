"""Messages that a peer has not been sent, once nothing more can be sent to it."""

from mqcore.sock.sock cimport Sock
from mqcore.spi.pipe cimport Pipe

# Under the socket's lock; the far side has let go of the lane to it. They go back to the socket, in
# order and in front, or are counted as dropped. Twice does nothing.
cdef void take_back(Sock* s, Pipe* pipe) noexcept nogil
