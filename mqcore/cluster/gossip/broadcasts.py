"""Updates that are still to be spread, each at most so many times (Das et al. 2002, section 4.1).

One update for each member: a newer one replaces the older. Those sent least often go first, and of
these the newest.
"""

from __future__ import annotations

import heapq
import math

from mqcore.cluster.gossip.messages import MAX_UPDATE, Update, encode_update


class Broadcasts:
    """The queue. It holds at most one entry for each member of the table."""

    def __init__(self, multiplier: int) -> None:
        self._multiplier = multiplier
        self._entries: dict[bytes, tuple[int, Update]] = {}         # id -> version, update
        self._encoded: dict[bytes, bytes] = {}
        self._heap: list[tuple[int, int, bytes]] = []               # times sent, -version, id
        self._version = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, member: bytes) -> bool:
        return member in self._entries

    def add(self, update: Update) -> None:
        """Spreads it, in place of an older one about the same member."""
        self._version += 1
        self._entries[update.id] = (self._version, update)
        self._encoded.pop(update.id, None)
        heapq.heappush(self._heap, (0, -self._version, update.id))
        if len(self._heap) > 2 * len(self._entries) + 64:
            self._heap = [one for one in self._heap if self._current(one)]
            heapq.heapify(self._heap)

    def discard(self, member: bytes) -> None:
        """No longer spreads anything about the member."""
        self._entries.pop(member, None)
        self._encoded.pop(member, None)

    def limit(self, members: int) -> int:
        """How many times an update is sent, in a cluster of so many members."""
        return self._multiplier * math.ceil(math.log2(members + 1))

    def take(self, room: int, members: int, most: int) -> list[bytes]:
        """At most `most` encoded updates, `room` bytes together."""
        taken: list[bytes] = []
        back = []
        limit = self.limit(members)
        looked = 0
        while self._heap and len(taken) < most and looked < 2 * most and room > 24:
            one = heapq.heappop(self._heap)
            if not self._current(one):
                continue
            looked += 1
            times, version, member = one
            data = self._encode(member)
            if len(data) > MAX_UPDATE:
                self.discard(member)
                continue
            if len(data) <= room:
                room -= len(data)
                taken.append(data)
                times += 1
            if times < limit:
                back.append((times, version, member))
            else:
                self.discard(member)
        for one in back:
            heapq.heappush(self._heap, one)
        return taken

    def _current(self, one: tuple[int, int, bytes]) -> bool:
        entry = self._entries.get(one[2])
        return entry is not None and entry[0] == -one[1]

    def _encode(self, member: bytes) -> bytes:
        data = self._encoded.get(member)
        if data is None:
            data = self._encoded[member] = encode_update(self._entries[member][1])
        return data
