"""Carries a message engine from its Python half to the host: see message_engine.pxd."""

from mqcore.errors import PluginError


cdef class NativeEngine:
    def __init__(self):
        raise TypeError("a NativeEngine is made by native_engine(), see "
                        "mqcore/spi/message_engine.pxd")

    def __dealloc__(self):
        if self.engine != NULL:
            self.engine.ops.fini(self.engine)

    cdef MessageEngine* take(self) noexcept:
        cdef MessageEngine* engine = self.engine
        self.engine = NULL
        return engine


cdef NativeEngine native_engine(MessageEngine* engine):
    cdef const MessageEngineOps* ops = engine.ops
    cdef NativeEngine carrier
    if ops == NULL or ops.abi != MESSAGE_ENGINE_ABI:
        raise PluginError(
            f"a message engine was made for ABI {ops.abi if ops != NULL else 'unknown'}, this "
            f"mqcore has {MESSAGE_ENGINE_ABI}", hint="rebuild the transport's distribution")
    if ops.start == NULL or ops.fini == NULL or ops.read == NULL or ops.write == NULL:
        raise PluginError("a message engine lacks start, fini, read or write",
                          hint="see mqcore/spi/message_engine.pxd")
    carrier = NativeEngine.__new__(NativeEngine)
    carrier.engine = engine
    return carrier
