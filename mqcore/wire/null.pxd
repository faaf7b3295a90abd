"""NULL where somebody judges the peer, by what is known of it without its help (the user at the
other end of an ipc connection, its address). For `zmtp`, which needs none of this if nobody asks.
"""

from mqcore.wire.mechanism cimport MechanismOps

cdef const MechanismOps* null_ops() noexcept nogil
