from mqcore.wire.codec cimport Codec, batch_fini
from mqcore.spi.pattern cimport Pattern
