"""The end of the program: writers that it has left open are closed. Daemon threads that use them
stay asleep instead of raising JournalClosed (base/waits.pyx).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mqcore.base.at_rest import AtRest
from mqcore.base.waits import program_ends, stay_asleep
from mqcore.journal.errors import JournalClosed

if TYPE_CHECKING:
    from mqcore.journal.writer import Writer

SLOWEST = 30.0      # seconds that a slow disk may take
AT_REST = AtRest(JournalClosed)     # for calls that hold a lock when they find it closed


def closed_error(writer: Any) -> JournalClosed:
    """At the end of the program, a daemon thread stays asleep in here, but not with the lock of
    retention, for which close() waits."""
    if not writer._retaining._is_owned():
        stay_asleep()
    return JournalClosed(f"the writer of {writer.path} is closed")


def close_at_exit(ref: Callable[[], Writer | None]) -> None:
    writer = ref()
    if writer is not None:
        program_ends(SLOWEST)
        try:
            writer.close()
        finally:
            program_ends()
