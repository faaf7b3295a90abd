"""The pump of a message engine: see mqcore/spi/message_engine.pxd."""

from mqcore.link.engine cimport Engine, PumpOps

cdef const PumpOps* messages_pump() noexcept nogil
cdef void messages_take(Engine* e) noexcept nogil    # its second descriptor rang
