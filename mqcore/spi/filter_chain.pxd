"""Filters one above the other as one filter, which is what an engine runs."""

from mqcore.spi.filter_ops cimport Filter

# Combines sessions, outermost first. Calls their native(); a session in Python gets an adapter.
# NULL without an exception: no filter is left, bytes pass as they are.
cdef Filter* filter_chain(list sessions) except? NULL
