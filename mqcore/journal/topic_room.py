"""TopicRoom: how many topics a folder may get. What counts is what is there, since other processes
make and delete topics, too."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from mqcore.base.native import time
from mqcore.journal.errors import NO_FILES
from mqcore.journal.store.place import is_partition, partition_numbers

SETTLED = 1.0           # seconds after which a folder's time tells whether it has changed
EVERY = 1.0             # seconds between two counts, at least
SHARE = 20              # and so many times what one takes


class TopicRoom:
    """Of the writers of one folder. One thread at a time uses it."""

    def __init__(self, where: str | os.PathLike[str], most: int) -> None:
        self._where, self._most = Path(os.fsdecode(where)), most
        self._known: set[str] = set()
        self._others: set[str] = set()  # names that were no topics
        self._left = 0
        self._seen: int | None = None   # the folder's time; None: it does not tell
        self._again = 0.0               # when to look into all of them

    def left(self) -> int:
        """Where none is left, a topic that was deleted just now with its folder makes room. What
        else other processes change may be seen a second later, or 20 times as long as it takes to
        count."""
        if time.monotonic() >= self._again:
            self._count()
        elif self._left <= 0 and (self._seen is None or self._seen != self._time()):
            self._look()
        return self._left

    def take(self, topic: str) -> None:
        """It was made."""
        self._known.add(topic)
        self._others.discard(topic)
        self._left -= 1

    def _time(self) -> int:
        try:
            return os.stat(self._where).st_mtime_ns
        except (FileNotFoundError, NotADirectoryError):
            return 0

    def _count(self) -> None:
        began = time.monotonic()
        self._known.clear()
        self._others.clear()
        self._look()
        now = time.monotonic()
        self._again = now + max(EVERY, SHARE * (now - began))

    def _look(self) -> None:
        """Only into what is new: whoever changes the folder without end, while others ask for new
        topics, makes this happen for each of them."""
        changed = self._time()
        names: set[str] = set()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            names.update(os.listdir(self._where))
        self._known &= names
        self._others &= names
        for name in names - self._known - self._others:
            (self._known if is_topic(self._where / name) else self._others).add(name)
        self._left = self._most - len(self._known)
        settled = abs(time.time() - changed / 1e9) > SETTLED    # or of another machine's clock
        self._seen = changed if settled else None


def is_topic(home: Path) -> bool:
    """Whether a folder has partitions: folders with a number for a name, in which a writer was. One
    that cannot be read, as lost+found, is none. OSError: there are no descriptors, or no memory, so
    it is unknown."""
    try:
        return any((folder / "lock").is_file() or is_partition(folder) for folder in
                   (home / str(number) for number in partition_numbers(home)))
    except OSError as error:
        if error.errno in NO_FILES or error.errno == errno.ENOMEM:
            raise
        return False
