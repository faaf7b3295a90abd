"""NULL with authentication by facts known without the peer's help (the user at the other end of an
ipc connection, its address). `zmtp` uses it only if there is an authentication callback.
"""

from mqcore.wire.zmtp.mechanism cimport MechanismOps

cdef const MechanismOps* null_ops() noexcept nogil
