"""Compressed blocks: the codecs of pyarrow, called with the GIL."""

from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t

from mqcore.journal.store.block cimport BlockHeader
from mqcore.journal.store.log cimport Pack

# For Log.pack; Log.codec is what compressors.codec() has returned. It takes the GIL.
cdef Pack packer() noexcept nogil
# The columns of a block whose header has been checked, `at`: those in the file. A memoryview as
# long as they are by the header, aligned to ALIGN; None: that is not what they decompress to.
# Raises NotSupported (pyarrow is missing), MemoryError.
cdef object unpack(const BlockHeader* h, const uint8_t* at)
cdef const uint8_t* address_of(object view) except NULL
# The flag of a codec by its name, for the headers of its blocks.
cdef uint32_t flag_of(str name) except 0
# What one LZ4 block of n bytes decompresses to, in bytes; -1: it is none.
cdef int64_t lz4_size(const uint8_t* at, size_t n) noexcept nogil
