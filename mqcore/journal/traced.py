"""A writer whose messages carry the current trace. It is a class of its own, so that append() of a
writer without traces stays native."""

from __future__ import annotations

from typing import Any

from mqcore.journal.writer import Writer
from mqcore.trace.carry import joined


class TracedWriter(Writer):
    """Made by `mqcore.journal.open(..., trace=True)`."""

    def append(self, value: Any, *, key: Any = None, time: float | None = None,
               headers: Any = ()) -> int:
        """append() of a Writer, with the headers of the current trace, unless they name one. Other
        calls, such as append_many(), add none."""
        return super().append(value, key=key, time=time, headers=joined(headers))
