"""Lists: what a server tells of all its topics and partitions.

To make a list, the server looks at each partition's folder. It does so in slices between other
work, once for all who wait, and remembers what has not changed. A reader gets a list that was begun
after it asked, so what it knows of is in there.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

from mqcore.journal.listing import Listing
from mqcore.journal.rights import Rights
from mqcore.journal.server.complaints import Complaints
from mqcore.journal.server.requests import rows_of_list
from mqcore.journal.server.sources import Sources
from mqcore.journal.server.streams import Guest

KINDS = 100             # rights for which a list is kept
_log = logging.getLogger("mqcore.journal")


class Lists:
    """Numbered from 1 on, in the order in which they are begun."""

    def __init__(self, sources: Sources, complaints: Complaints) -> None:
        self._sources = sources
        self._complaints = complaints
        self._listing = Listing(sources.where)
        self._begun = self._made = 0
        self._wanted = 0            # the latest one that a reader waits for
        self._looks: Iterator[None] | None = None
        self._rows: dict[Rights, bytes] = {}    # encoded, by who may see what
        self._error: Exception | None = None

    def expect(self, guest: Guest, number: int) -> None:
        """A request has come. A repeated one waits for the same list as before."""
        self._wanted = max(self._wanted, guest.lists.setdefault(number, self._begun + 1))

    def ready(self, guest: Guest, number: int) -> bool:
        """Whether the list is made that this request waits for."""
        return guest.lists[number] <= self._made

    def answer(self, guest: Guest, number: int) -> bytes:
        """The latest one. Raises what kept it from being made."""
        del guest.lists[number]
        if self._error is not None:
            raise self._error.with_traceback(None)
        return b'{"id":%d,"ok":%s}' % (number, self._seen_by(guest.rights))

    def _seen_by(self, rights: Rights) -> bytes:
        rows = self._rows.get(rights)
        if rows is None:
            if len(self._rows) >= KINDS:
                self._rows.clear()
            topics = {row.topic for row in self._listing.rows}
            seen = {topic for topic in topics if rights.covers_topic(topic)}
            rows = self._rows[rights] = rows_of_list(
                self._listing.rows if seen == topics
                else [row for row in self._listing.rows if row.topic in seen])
        return rows

    def go_on(self, seconds: float) -> bool:
        """Make the one that is wanted, for so long at most. False: there is none."""
        if self._looks is None:
            if self._made >= self._wanted:
                return False
            self._begin()
        end = time.monotonic() + seconds
        try:
            while self._looks is not None and time.monotonic() < end:
                next(self._looks)
        except StopIteration:
            self._end(None)
        except Exception as error:      # the folder itself cannot be read
            self._end(error)
        return True

    def _begin(self) -> None:
        """Also ends streams of journals that were deleted, or made anew, in the meantime."""
        self._begun += 1
        for source in self._sources:
            self._sources.checked(source)
        self._looks = self._listing.look(self._bad_topic)

    def _end(self, error: Exception | None) -> None:
        self._looks = None
        self._made = self._begun
        self._error = error
        self._rows.clear()

    def _bad_topic(self, path: Any, error: Exception) -> None:
        if self._complaints.due("damaged partitions"):
            _log.warning("%s is left out of the list: %s", path, error)

