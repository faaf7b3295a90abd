"""The pump of a stream behind filters: see stream.pxd and mqcore/spi/filter_ops.pxd."""

from mqcore.link.engine cimport PumpOps

cdef const PumpOps* filtered_pump() noexcept nogil
