"""Replicas: a primary asks the journal servers of its mirrors whether one of them was promoted.

When a writer opens, every replica must answer: a primary that comes back after its mirror was
promoted takes no message. While it is open, one thread asks again every EVERY seconds, for all
writers of the process, and fences a writer whose mirror was promoted in the meantime. It holds
writers by weak references only.
"""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mqcore.base.native import threading
from mqcore.base.threads import Thread
from mqcore.base.waits import Event
from mqcore.errors import Error, OptionError
from mqcore.journal.errors import (
    JournalBusy,
    JournalDiverged,
    JournalFenced,
    JournalNotFound,
    JournalUnconfirmed,
)
from mqcore.journal.store.epoch import Epochs, History, newer, parting, read_epochs

if TYPE_CHECKING:
    from mqcore.journal.reader import Reader
    from mqcore.journal.writer import Writer

EVERY = 1.0             # seconds between two questions
MOST = 16               # replicas of a writer
_log = logging.getLogger("mqcore.journal")


def fenced_error(path: Path, epochs: Epochs, end: int) -> JournalFenced:
    """For a copy that ends before message `end`."""
    first = min(end, parting(epochs.own, (*epochs.own, *epochs.newer)) or 0)
    epoch = epochs.newer[-1].epoch if epochs.newer else epochs.number
    alone = f"messages {first} to {end - 1} are only here" if first < end else \
        "it has no message that the promoted mirror lacks"
    return JournalFenced(f"a mirror of {path} was promoted to epoch {epoch}: {alone}",
                         epoch=epoch, first=first, end=end)


def check_primary(reader: Reader) -> None:
    """JournalFenced: a mirror of the journal that it reads was promoted. JournalBusy: it is one."""
    epochs = read_epochs(reader.path, reader._journal)
    if epochs.fenced:
        raise fenced_error(reader.path, epochs, reader.end)
    if epochs.mirror:
        raise mirror_error(str(reader.path))


def mirror_error(which: str) -> JournalBusy:
    """Groups commit to the primary: what they commit to a mirror, it would overwrite."""
    return JournalBusy(f"{which} is a mirror here, which takes the offsets of its primary's groups",
                       hint="commit to its primary, or promote the mirror: `mq journal promote`")


def separate(other: str, ours: History, theirs: History, apart: int) -> JournalDiverged:
    return JournalDiverged(
        f"this journal was promoted to epoch {ours[-1].epoch}, and {other} separately to epoch "
        f"{theirs[-1].epoch}: from message {apart} on they are two journals",
        epoch=theirs[-1].epoch, first=apart, end=apart,
        hint="decide which one goes on; move the other one away, and begin a new mirror")


def replicas_of(urls: Any, topic: str, partition: int, timeout: float,
                options: dict[str, Any] | None) -> Replicas | None:
    urls = (urls,) if isinstance(urls, str) else tuple(urls)
    if not urls:
        return None
    if len(urls) > MOST or not all(isinstance(url, str) and "://" in url for url in urls):
        raise OptionError(f"replicas={urls!r}", hint=f"give 1 to {MOST} addresses of journal "
                                                     "servers, without a topic")
    return Replicas(urls, topic, partition, timeout, options or {})


class Replicas:
    """Those of one writer. One thread at a time asks."""

    def __init__(self, urls: tuple[str, ...], topic: str, partition: int, timeout: float,
                 options: dict[str, Any]) -> None:
        self.urls = urls
        self._about = {"topic": topic, "partition": partition}
        self._timeout = timeout
        self._options = options
        self._connections: dict[str, Any] = {}
        self.strangers: set[str] = set()        # that serve another journal

    def ask(self, epochs: Epochs, journal: bytes) -> History | None:
        """The history of a replica that was promoted; None: none was. JournalUnconfirmed: one of
        them does not say."""
        found = None
        for url in self.urls:
            try:
                theirs = self.told(url, epochs, journal, self._timeout)
            except JournalUnconfirmed:
                if found is None:
                    raise
            else:
                found = theirs or found
        return found

    def told(self, url: str, epochs: Epochs, journal: bytes, timeout: float) -> History | None:
        """What one of them says. JournalUnconfirmed."""
        from mqcore.journal.server.connection import Connection
        from mqcore.journal.server.failover import understood

        try:
            connection = self._connections.get(url)
            if connection is None:
                connection = self._connections[url] = Connection(url, url, self._about, timeout,
                                                                  self._options)
            connection._timeout = timeout
            theirs = understood(connection._ask("epochs"))
        except JournalNotFound:         # it has not begun to copy
            return None
        except Error as error:
            raise JournalUnconfirmed(f"the replica at {url} does not say whether it was promoted: "
                                     f"{error.text}", replica=url) from error
        if theirs.origin not in (b"", epochs.origin or journal):
            self._stranger(url)
            return None
        history = (*theirs.own, *theirs.newer)
        apart = parting(epochs.own, history)
        if apart is None or newer(history, epochs.own):
            return None
        if newer(epochs.own, history):
            return history
        raise separate(str(url), epochs.own, history, apart)

    def _stranger(self, url: str) -> None:
        """It serves another journal: once."""
        if url not in self.strangers:
            self.strangers.add(url)
            _log.warning("%s serves another journal as topic %r, partition %d, not a mirror of "
                         "this one: it cannot say whether a mirror was promoted. Is the address "
                         "in replicas= right?", url, self._about["topic"], self._about["partition"])

    def close(self) -> None:
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            with contextlib.suppress(Error):
                connection.close()


class _Watch:
    """The thread that asks. It starts with the first writer and ends after the last one."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """As new: also in a forked child, where the thread is not there."""
        self._lock = threading.RLock()
        self._writers: dict[int, weakref.ref[Writer]] = {}
        self._thread: Thread | None = None
        self._wake = Event()
        self._doubts: dict[str, str] = {}

    def add(self, writer: Writer) -> None:
        with self._lock:
            self._writers[id(writer)] = weakref.ref(writer)
            if self._thread is None:
                self._thread = Thread(self._loop, "mqcore-replicas", (self._wake,))
                try:
                    self._thread.start()
                except BaseException:
                    self._thread = None
                    del self._writers[id(writer)]
                    raise

    def remove(self, writer: Writer) -> None:
        """A writer that is closed. The thread closes its connections, or has done so."""
        with self._lock:
            self._writers.pop(id(writer), None)
            if not self._writers:
                self._wake.set()
        if writer._replicas is not None:
            writer._replicas.close()    # which ends a question under way

    def _loop(self, wake: Any) -> None:
        seen: dict[int, Replicas] = {}
        while True:
            with self._lock:
                refs = dict(self._writers)
                if not refs and self._wake is wake:
                    self._thread, self._wake = None, Event()
            for key in seen.keys() - refs.keys():
                seen.pop(key).close()
            if not refs:
                return
            away: set[str] = set()      # no answer, or a bad one, in this round
            for key, ref in refs.items():
                writer = ref()
                if writer is not None and writer._replicas is not None and not writer.closed:
                    if seen.setdefault(key, writer._replicas) is not writer._replicas:
                        seen[key].close()       # of a writer that is gone
                        seen[key] = writer._replicas
                    self._look(writer, writer._replicas, away)
                del writer
            wake.wait(EVERY)

    def _doubt(self, url: str, error: Error) -> None:
        """Once for each kind of trouble with each replica."""
        if self._doubts.get(url) != error.code:
            self._doubts[url] = error.code
            _log.warning("%s; meanwhile the primary goes on", error)

    def _look(self, writer: Writer, replicas: Replicas, away: set[str]) -> None:
        for url in replicas.urls:
            if url in away or writer._epochs.fenced and writer._told:
                continue
            try:
                found = replicas.told(url, writer._epochs, writer._journal, EVERY)
                self._doubts.pop(url, None)
                if found is not None:
                    writer._fence(found)
            except JournalUnconfirmed as error:
                self._doubt(url, error)
                away.add(url)
            except JournalDiverged as error:
                self._doubt(url, error)
            except Exception:           # the file cannot be written, say: asked again
                _log.exception("the writer of %s could not be fenced durably", writer.path)


WATCH = _Watch()
os.register_at_fork(after_in_child=WATCH.reset)
