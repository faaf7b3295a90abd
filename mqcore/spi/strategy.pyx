"""The Python object that carries a strategy's ops table: see strategy.pxd."""

import re

NAME = re.compile(r"[a-z][a-z0-9_]*")


cdef class StrategyPlugin:
    def __init__(self):
        raise TypeError("a StrategyPlugin is made by strategy_new(), see mqcore/spi/strategy.pxd")

    @property
    def abi(self):
        return self.ops.abi

    @property
    def address(self):
        """The address of the ops table: the value of a pattern's option `strategy`."""
        return <size_t> self.ops

    def faults(self):
        """What the registry refuses it for, in words. Only for a table of this ABI."""
        cdef list found = []
        if self.name is None or not NAME.fullmatch(self.name):
            found.append(f"has the name {self.name!r}: lower-case letters, digits and _")
        if self.ops.flags & ~(<uint32_t> STRATEGY_ALL) or self.ops.flags == STRATEGY_ALL:
            found.append(f"has flags that this mqcore does not know ({self.ops.flags:#x})")
        if (self.ops.choose == NULL) != (self.ops.flags != 0):
            found.append("has both choose and a flag that stands for it" if self.ops.flags else
                         "lacks the operation choose (NULL)")
        if self.ops.size < sizeof(Strategy):
            found.append(f"has a state of {self.ops.size} bytes: it must start with a Strategy")
        return found

    def __repr__(self):
        return f"<strategy {self.name}>"


cdef StrategyPlugin strategy_new(const StrategyOps* ops, str name, str doc):
    cdef StrategyPlugin made
    if ops == NULL:
        raise TypeError("a strategy without an ops table")
    made = StrategyPlugin.__new__(StrategyPlugin)
    made.ops = ops
    made.name = name
    made.doc = doc
    return made
