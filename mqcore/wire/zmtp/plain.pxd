"""PLAIN (RFC 24): a username and a password, in the clear. For `zmtp`; its traffic stays as it is.
"""

from mqcore.wire.zmtp.mechanism cimport MechanismOps

cdef const MechanismOps* plain_ops() noexcept nogil
