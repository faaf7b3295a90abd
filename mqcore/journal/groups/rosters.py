"""Rosters: the consumer groups of a journal server that have members, and their files.

A group with members has the file WHERE/TOPIC/groups/NAME, which holds the longest lease of its
members, in seconds. The server that coordinates the group has a lock on it. After a crash the file
tells the next server that members may still have partitions, and for how long.

A topic may be renamed meanwhile, and the file goes with it. So at each request and each look the
path has to lead to the file that is locked. If it does not, the server lets go of the group, which
another one may coordinate under its new name.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from pathlib import Path
from typing import Any

from mqcore.errors import UsageError
from mqcore.journal.errors import JournalBusy, JournalNotFound, PartitionLost
from mqcore.journal.groups.roster import Roster
from mqcore.journal.server.limits import Limits
from mqcore.journal.server.requests import Beat, Commit, shown
from mqcore.journal.store.place import (
    group_name,
    is_number,
    make_folder,
    sync_folder,
    topic_folder,
)

LOOK = 1.0              # seconds between two looks for new partitions
AWAY = 1.0              # seconds between two ticks that are too many
LEASE = 10.0            # the lease that is assumed if the file of a crashed server cannot be read
_log = logging.getLogger("mqcore.journal")

Key = tuple[str, str]


class Coordinated:
    """A roster, its file, and the members' links that are to hear of changes."""

    def __init__(self, path: Path, now: float) -> None:
        self.path = path
        self._fd = _locked(path)
        try:
            self._written = _lease(self._fd)
            self._durable = 0.0         # a server that was killed may not have synced it
        except BaseException:
            os.close(self._fd)
            raise
        self.roster = Roster(grace=now + self._written)
        self.looked = -LOOK
        self.told = -1          # the latest generation that the members know

    def keep(self) -> None:
        """The file tells the longest lease. Durable on return."""
        lease = self.roster.session
        if lease <= self._durable:
            return
        if lease > self._written:
            raw = f"{lease!r}\n".encode()
            # whole at each moment: nothing of a longer number stays behind it
            os.pwrite(self._fd, raw.ljust(os.fstat(self._fd).st_size, b"\n"), 0)
            os.ftruncate(self._fd, len(raw))
            self._written = lease
        os.fsync(self._fd)
        for folder in (self.path.parent, self.path.parent.parent):
            sync_folder(folder)
        self._durable = self._written

    def holds(self) -> bool:
        """Whether this server coordinates what the path leads to. If the topic was deleted and made
        anew, its members go on with that, unless they have met at another server."""
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(self.path))
        except (FileNotFoundError, NotADirectoryError):     # deleted, since os.fstat() perhaps
            return not os.fstat(self._fd).st_nlink          # else it was renamed
        except OSError:         # nothing can be said now
            return True

    def close(self, over: bool) -> None:
        """over: the last member has left."""
        try:
            if over:
                self._unlink()
        except (FileNotFoundError, NotADirectoryError):     # the topic was deleted
            pass
        except OSError as error:        # the next server waits for members that do not come
            _log.warning("%s stays, though the last member has left: %s", self.path, error)
        finally:
            os.close(self._fd)

    def _unlink(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:                # a rename takes the folder along, between these two calls as well
            found = os.stat(self.path.name, dir_fd=folder)
            if os.path.samestat(os.fstat(self._fd), found):
                os.unlink(self.path.name, dir_fd=folder)
        finally:
            os.close(folder)


class Rosters:
    """All of a server's. `due`: the links of members for whom something has changed. The server
    tells them and empties it."""

    def __init__(self, where: str, limits: Limits) -> None:
        self._where = Path(where)
        self._limits = limits
        self._all: dict[Key, Coordinated] = {}
        self.due: set[int] = set()
        self._ticked = time.monotonic()

    def __bool__(self) -> bool:
        return bool(self._all)

    @property
    def members(self) -> int:
        return sum(len(one.roster.members) for one in self._all.values())

    @property
    def links(self) -> set[int]:
        """The connections over which members beat."""
        return {member.link for one in self._all.values() for member in one.roster.members.values()}

    # -- requests --

    def beat(self, link: int, request: Beat) -> dict[str, Any]:
        """The answer: its number, the member's partitions with their tokens, which of those that it
        holds are not its own any more, and how many members there are."""
        now = time.monotonic()
        one = self._of(request, now)
        self._look(one, request.topic, now)
        before = one.roster.members.get(request.member)
        if before is not None and before.link != link and not before.knows(request.seen):
            raise JournalBusy(f"the member {shown(request.member)} has another connection")
        one.roster.beat(now, request.member, link, request.session, request.handling,
                        request.held, request.seen)
        one.keep()
        member = one.roster.members[request.member]
        lost = one.roster.lost(member, request.held)
        number, grants = one.roster.answer(member)
        self._tell(one, besides=link)
        return {"number": number, "members": len(one.roster.members), "lost": lost,
                "partitions": [[grant.partition, grant.token] for grant in grants]}

    def check(self, request: Commit) -> None:
        """Raises PartitionLost, JournalBusy or UsageError unless the member has the partition."""
        key = request.topic, request.group
        one = self._known(key)
        if one is None and self._path(*key).exists():       # a server before this one had members
            one = self._all[key] = Coordinated(self._path(*key), time.monotonic())
        if one is None:
            if request.token is not None:
                raise _lost(request)
            return
        if request.token is None:
            raise UsageError(f"the group {request.group!r} has members, and only they commit its "
                             "offsets",
                             hint="stop them first, or join the group: journal.join()")
        mine = one.roster.owner(time.monotonic(), request.partition, request.token)
        if mine is None:
            raise JournalBusy("the members of the group have not come back to this server yet")
        if not mine:
            raise _lost(request)

    def shares(self, topic: str, group: str) -> dict[str, list[int]]:
        """The members of a group and their partitions."""
        one = self._known((topic, group))
        return {} if one is None else one.roster.shares()

    # -- what happens --

    def unlinked(self, link: int) -> None:
        """The connection has gone, and the members that came over it."""
        for key, one in list(self._all.items()):
            for member in list(one.roster.members.values()):
                if one.roster.leave(member.name, link):
                    self._after(key, one)

    def renewed(self, topic: str, partition: int) -> None:
        """Its journal was deleted, or made anew: what is committed for the old one is refused."""
        for key, one in list(self._all.items()):
            if key[0] == topic:
                one.roster.renew(time.monotonic(), partition)
                self._after(key, one)

    def tick(self) -> None:
        """Ends leases; to be called several times a second. After a longer time, in which the
        server was stopped or busy, the beats of its members may wait unread, so that this time does
        not count."""
        now = time.monotonic()
        away, self._ticked = now - self._ticked, now
        for key, one in list(self._all.items()):
            if away > AWAY:
                one.roster.pardon(now, away)
            if now - one.looked >= LOOK and self._known(key) is not one:
                continue
            self._look(one, key[0], now)
            one.roster.expire(now)
            self._after(key, one)

    def close(self) -> None:
        """The server stops: its groups go on at the next one."""
        for one in self._all.values():
            one.close(over=not one.roster.members)
        self._all.clear()

    def abandon(self) -> None:
        """In a forked child: the files, and so their locks, are the parent's."""
        for one in self._all.values():
            one.close(over=False)
        self._all.clear()

    def _after(self, key: Key, one: Coordinated) -> None:
        one.roster.settle(time.monotonic())
        if one.roster.members:
            self._tell(one)
        elif not one.roster.waits(time.monotonic()):
            del self._all[key]
            one.close(over=True)

    def _tell(self, one: Coordinated, besides: int | None = None) -> None:
        if one.told != one.roster.generation:
            one.told = one.roster.generation
            self.due |= {member.link for member in one.roster.members.values()} - {besides}

    # -- files --

    def _of(self, request: Beat, now: float) -> Coordinated:
        key = request.topic, request.group
        one = self._known(key)
        if one is not None and request.member in one.roster.members:
            return one
        if self.members >= self._limits.members:
            raise JournalBusy(f"the groups of this server have {self.members} members, the limit")
        if one is None:
            path = self._path(*key)
            if not path.parent.parent.is_dir():
                raise JournalNotFound(f"there is no topic {request.topic!r}",
                                      hint="`mq journal list` shows what there is")
            make_folder(path.parent)
            one = self._all[key] = self._coordinated(path, now)
        return one

    def _coordinated(self, path: Path, now: float) -> Coordinated:
        try:
            return Coordinated(path, now)
        except JournalBusy:     # by this server, under a former name?
            if not [key for key, one in list(self._all.items()) if self._known(key) is not one]:
                raise
            return Coordinated(path, now)

    def _known(self, key: Key) -> Coordinated | None:
        """The group, if this server still coordinates the one that has this name now."""
        one = self._all.get(key)
        if one is None or one.holds():
            return one
        del self._all[key]
        self.due |= {member.link for member in one.roster.members.values()}
        one.close(over=False)   # its members may go to the server of its new name
        return None

    def _path(self, topic: str, group: str) -> Path:
        return self._where / topic_folder(topic) / "groups" / group_name(group)

    def _look(self, one: Coordinated, topic: str, now: float) -> None:
        if now - one.looked < LOOK:
            return
        one.looked = now
        try:
            found = os.listdir(self._where / topic_folder(topic))
        except (FileNotFoundError, NotADirectoryError):     # deleted
            found = []
        except OSError:                 # no descriptor, say: what is known holds
            return
        one.roster.partitions(now, (int(name) for name in found if is_number(name)))


def _lost(request: Commit) -> PartitionLost:
    return PartitionLost(f"partition {request.partition} of {request.topic!r} is not this "
                         f"member's any more, so offset {request.offset} was not committed",
                         partition=request.partition)


def _locked(path: Path) -> int:
    """Open and lock it. Another server may remove it in between."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_nlink:
                return fd
        except BlockingIOError:
            os.close(fd)
            raise JournalBusy(f"another journal server coordinates the group ({path})",
                              hint="let all members of a group use one server") from None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _lease(fd: int) -> float:
    """How long the members of a server before this one may have partitions, seconds."""
    raw = os.pread(fd, 64, 0)
    if not raw and not os.fstat(fd).st_size:
        return 0.0          # the file is new, or its server had no member yet
    try:
        lease = float(raw)
    except ValueError:
        return LEASE
    return lease if 0 <= lease < 1e6 else LEASE
