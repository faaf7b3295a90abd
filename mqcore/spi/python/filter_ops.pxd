"""A filter's session in Python as a filter of the data plane. Its operations take the GIL, so
engines with one run on the context's filter thread only."""

from mqcore.spi.filter_ops cimport Filter

cdef Filter* filter_of(object session) except NULL      # keeps the session until fini
