"""The codecs that blocks are compressed with, from pyarrow."""

from __future__ import annotations

import functools
from typing import Any

from mqcore.errors import NotSupported, OptionError

# by the names of compression=: what pyarrow calls them. lz4_raw is one LZ4 block without a frame
NAMES = {"zstd": "zstd", "lz4": "lz4_raw"}


@functools.lru_cache(maxsize=len(NAMES))
def codec(name: str) -> Any:
    """A pyarrow.Codec, which any number of threads may use. OptionError: there is none of this
    name. NotSupported: pyarrow is missing."""
    if not isinstance(name, str) or name not in NAMES:
        raise OptionError(f"compression={name!r}", hint="it is zstd, lz4 or None")
    try:
        import pyarrow
    except ImportError:
        raise NotSupported(f"a journal's blocks are compressed with {name} by the package pyarrow, "
                           "which is missing", hint="pip install mqcore[journal]") from None
    if not pyarrow.Codec.is_available(NAMES[name]):
        raise NotSupported(f"this build of pyarrow has no codec {name}",
                           hint="install pyarrow from PyPI: pip install mqcore[journal]")
    return pyarrow.Codec(NAMES[name])
