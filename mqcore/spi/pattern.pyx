"""The Python object that carries a pattern's ops table: see pattern.pxd."""


cdef class PatternPlugin:
    def __init__(self):
        raise TypeError("a PatternPlugin is made by plugin_new(), see mqcore/spi/pattern.pxd")

    @property
    def abi(self) -> int:
        return self.ops.abi

    @property
    def flags(self) -> int:
        return self.ops.flags

    def __repr__(self) -> str:
        return f"<pattern {self.name}>"


cdef PatternPlugin plugin_new(const PatternOps* ops, str name, int number, str zmtp, int sp,
                              tuple peers, tuple options, str doc):
    cdef PatternPlugin plugin = PatternPlugin.__new__(PatternPlugin)
    plugin.ops = ops
    plugin.name = name
    plugin.number = number
    plugin.zmtp = zmtp
    plugin.sp = sp
    plugin.peers = peers
    plugin.options = options
    plugin.doc = doc
    return plugin
