"""NumPy as `np`, imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
else:
    class _Later:
        def __getattr__(self, name: str) -> Any:
            found = getattr(importlib.import_module("numpy"), name)
            setattr(self, name, found)      # looked up once: readers do so for every block
            return found

    np = _Later()

__all__ = ["np"]
