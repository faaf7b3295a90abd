"""A listener's codec that finds out which wire the peer speaks, and becomes that one's."""

from mqcore.wire.codec cimport CodecOps

# Any thread. Filled once when the module is imported.
cdef const CodecOps* either_ops() noexcept nogil        # "either": zmtp or sp
cdef const CodecOps* either_ipc_ops() noexcept nogil    # "either-ipc": zmtp or sp-ipc
