"""Holding: which partitions a member has, as the server's answers say. No I/O: the caller brings
the lock and the time."""

from __future__ import annotations

from typing import Any


class Share:
    """A partition that the server has given."""

    def __init__(self, partition: int, token: int) -> None:
        self.partition = partition
        self.token = token
        self.taken = False      # the member reads it
        self.revoked = False    # the member shall let it go
        self.lost = False       # it is another member's already


class Holding:
    """`shares`, until `expires`: the member's lease for `session` seconds, which each answer
    renews."""

    def __init__(self, session: float) -> None:
        self.session = session
        self.seen = 0           # the number of the last answer
        self.expires = 0.0
        self.shares: dict[int, Share] = {}

    @property
    def held(self) -> list[tuple[int, int]]:
        """What a beat says."""
        return [(share.partition, share.token) for share in self.shares.values()]

    def heard(self, sent: float, number: int, partitions: list[Any], lost: list[int]) -> bool:
        """An answer to the beat that was sent at this time. Whether the shares have changed."""
        given = dict(partitions)
        before = [(share, share.revoked) for share in self.shares.values()]
        for share in list(self.shares.values()):
            self._keep(share, given.get(share.partition), share.partition in lost)
        for partition, token in given.items():
            if partition not in self.shares:
                self.shares[partition] = Share(partition, token)
        self.seen = number
        self.expires = sent + self.session
        return before != [(share, share.revoked) for share in self.shares.values()]

    def _keep(self, share: Share, token: int | None, lost: bool) -> None:
        if token == share.token:
            share.revoked = False
        elif token is not None or lost:
            self._lose(share)
        elif share.taken:
            share.revoked = True
        else:
            del self.shares[share.partition]

    def _lose(self, share: Share) -> None:
        share.lost = True
        del self.shares[share.partition]

    def expire(self, now: float) -> bool:
        """Once it is over the member has nothing any more. Whether that is news."""
        if now < self.expires or not self.shares:
            return False
        self.end()
        return True

    def end(self) -> None:
        """The member has nothing any more."""
        for share in list(self.shares.values()):
            self._lose(share)

    def take(self, share: Share) -> bool:
        """The member begins to read it. False: it is not to be read any more."""
        share.taken = self.shares.get(share.partition) is share and not share.revoked
        return share.taken

    def release(self, share: Share) -> bool:
        """The member does not read it any more. False: it was not its own anyway."""
        share.taken = False
        if self.shares.get(share.partition) is not share:
            return False
        del self.shares[share.partition]
        return True
