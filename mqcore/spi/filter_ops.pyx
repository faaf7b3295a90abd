"""Carries a filter from its Python half to an engine: see filter_ops.pxd."""

from mqcore.errors import PluginError


cdef class NativeFilter:
    def __init__(self):
        raise TypeError("a NativeFilter is made by native_filter(), see mqcore/spi/filter_ops.pxd")

    def __dealloc__(self):
        if self.filter != NULL:
            self.filter.ops.fini(self.filter)

    cdef Filter* take(self) noexcept:
        cdef Filter* filter = self.filter
        self.filter = NULL
        return filter


cdef NativeFilter native_filter(Filter* filter):
    cdef const FilterOps* ops = filter.ops
    cdef NativeFilter carrier
    if ops == NULL or ops.abi != FILTER_OPS_ABI:
        raise PluginError(
            f"a filter was made for ABI {ops.abi if ops != NULL else 'unknown'}, this mqcore has "
            f"{FILTER_OPS_ABI}", hint="rebuild the filter's distribution")
    if ops.fini == NULL or ops.decode == NULL or ops.encode == NULL:
        raise PluginError("a filter lacks fini, decode or encode",
                          hint="see mqcore/spi/filter_ops.pxd")
    carrier = NativeFilter.__new__(NativeFilter)
    carrier.filter = filter
    return carrier
