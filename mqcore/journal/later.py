"""NumPy as `np`, imported when it is first used."""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from mqcore.errors import NotSupported

SPARE = 8       # descriptors that are free when NumPy is loaded

if TYPE_CHECKING:
    import numpy as np
else:
    class _Later:
        def __getattr__(self, name: str) -> Any:
            found = getattr(_load(), name)
            setattr(self, name, found)      # looked up once: readers do so for every block
            return found

    np = _Later()


def _load() -> Any:
    """NumPy. If descriptors run out while it is loaded, this process can never load it again. So it
    is not begun while few are left: OSError, and a later call may succeed."""
    if "numpy" not in sys.modules:
        _check_descriptors()
    try:
        return importlib.import_module("numpy")
    except ImportError as error:
        raise NotSupported(f"NumPy cannot be loaded: {error.__cause__ or error}",
                           hint="if it says that it was loaded before, descriptors ran out then: "
                                "start the process again") from error


def _check_descriptors() -> None:
    held: list[int] = []
    try:
        for _ in range(SPARE):
            held.append(os.eventfd(0, os.EFD_CLOEXEC))
    except OSError as error:
        raise OSError(error.errno, f"{os.strerror(error.errno or 0)}: a journal's messages cannot "
                      f"be read before {SPARE} descriptors are free to load NumPy") from None
    finally:
        for fd in held:
            os.close(fd)


__all__ = ["np"]
