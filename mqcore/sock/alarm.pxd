"""The pattern's alarm: a timer that an I/O thread keeps for a socket.

The socket says under its lock when it wants to be called. The task sets the one timer of the I/O
thread, or cancels it once the socket closes. The task on its way and the timer each count as a user
of the socket, so close() waits for them.
"""

from mqcore.reactor.io_thread cimport IoThread, Task
from mqcore.sock.sock cimport Sock

# under the lock: the pattern wants another time than the I/O thread knows. True: post alarm_task
cdef bint alarm_want(Sock* s) noexcept nogil
cdef bint alarm_hold(Sock* s) noexcept nogil      # True: post alarm_task, which looks at `closing`
cdef void alarm_set(Task* task, IoThread* io) noexcept nogil      # alarm_task
cdef void alarm_ring(Sock* s) noexcept nogil      # under the lock: the time has come, or nearly
