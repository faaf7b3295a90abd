"""Lifeguard: local health awareness for SWIM (Dadgar, Phillips, Currey 2017, section IV).

A process that is slow itself takes its peers for dead. So each member doubts itself first: the
worse its own health, the longer it waits (`Health`), and a suspicion lasts long while it is alone
with it, and short once others share it (`Suspicion`).
"""

from __future__ import annotations

import math

MAX_SCORE = 8           # the paper's S, section IV-A


class Health:
    """The local health multiplier: 0 is well, `MAX_SCORE` is worst."""

    __slots__ = ("score",)

    def __init__(self) -> None:
        self.score = 0

    def add(self, delta: int) -> None:
        """-1 for a probe that succeeded; +1 for one that failed, for a nack that did not come, for
        a suspicion of oneself that had to be refuted."""
        self.score = min(MAX_SCORE, max(0, self.score + delta))

    def scale(self, seconds: float) -> float:
        """That time, as long as this health makes it: 1 to 9 times."""
        return seconds * (self.score + 1)


def suspicion_bounds(members: int, period: float, alpha: float, beta: float) -> tuple[float, float]:
    """(shortest, longest) seconds before a suspect counts as dead (section IV-B)."""
    shortest = alpha * max(1.0, math.log10(max(1, members))) * period
    return shortest, beta * shortest


class Suspicion:
    """How long one suspicion lasts. It begins with one accuser; each further one shortens it."""

    __slots__ = ("_expected", "_longest", "_shortest", "accusers", "since", "sure")

    def __init__(self, now: float, accuser: bytes, bounds: tuple[float, float],
                 expected: int) -> None:
        self.since = now
        self.accusers = {accuser}
        self._shortest, self._longest = bounds
        self._expected = expected
        self.sure = math.inf    # since when it is certain that nothing listens at its address

    def confirm(self, accuser: bytes) -> bool:
        """Whether this is a further independent accuser, and one that counts."""
        if accuser in self.accusers or len(self.accusers) > self._expected:
            return False
        self.accusers.add(accuser)
        return True

    @property
    def deadline(self) -> float:
        """When the member counts as dead."""
        if self._expected < 1:
            return self.since + self._shortest
        share = math.log(len(self.accusers)) / math.log(self._expected + 1)
        left = max(self._shortest, self._longest - (self._longest - self._shortest) * share)
        return min(self.since + left, self.sure + self._shortest)
