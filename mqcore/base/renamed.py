"""Names that changed before the first release. A program that uses a former name goes on working,
with a DeprecationWarning that says the present one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def find_renamed(module: str, name: str, former: Mapping[str, str]) -> Any:
    """For a module's __getattr__(): what `name` was in it. None: not a former name.

    former: a module, and the former names of what is in it now, with spaces between them. A name
        that changed is written former=present.
    """
    for home, words in former.items():
        for word in words.split():
            was, _, present = word.partition("=")
            if was == name:
                present = present or name
                warnings.warn(f"{module}.{name} is {home}.{present} now", DeprecationWarning,
                              stacklevel=3)
                return getattr(import_module(home), present)
    return None


def renamed(**former: str) -> Callable[[Any, str], Any]:
    """A class's __getattr__() with members that were renamed: former="present"."""

    def __getattr__(self: Any, name: str) -> Any:
        kind = type(self).__name__
        present = former.get(name)
        if present is None:
            raise AttributeError(f"{kind!r} object has no attribute {name!r}", name=name, obj=self)
        warnings.warn(f"{kind}.{name} is {kind}.{present} now", DeprecationWarning, stacklevel=2)
        return getattr(self, present)

    return __getattr__
