"""Pings over the links of a node: they tell what has arrived there of all that was sent before."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from mqcore.cluster import frames
from mqcore.cluster.window import REPORT

if TYPE_CHECKING:
    from mqcore.cluster.link import Link

MUTE = 60.0             # seconds in which a member answers a Ping, however slow its link,
LOOK = 0.1              # of which the time between two looks counts as so many at most


class Pings:
    def __init__(self, node: Any) -> None:
        self.node = node
        self.by_rid: dict[bytes, Link] = {}     # all links
        # Pings that wait for their answer, and what has arrived by then: how many answers of ours,
        # and bytes of the window
        self.pings: dict[tuple[Link, int], tuple[int, int]] = {}
        self._number = 0            # of the last one

    async def taken(self, links: list[Link], timeout: float | None) -> bool:
        """Wait until all that was sent over these links has been taken, or they are broken. Those
        that are full are asked as soon as they have room. False: it lasts longer, or, if there is
        no time-out, one was given up, see Question."""
        asked = [Question(link, patient=timeout is not None) for link in links]
        try:
            done: bool = await self.node.until(lambda: all([one.over() for one in asked]), timeout)
            return done and not any(one.given_up for one in asked)
        finally:
            for one in asked:
                one.forget()

    def ping(self, link: Link) -> int:
        """Its number. 0: it has not been sent."""
        number = self._number + 1
        if not link.send(frames.Ping(number)):
            return 0
        self._number = number
        window = link.session.window
        self.pings[link, number] = link.carried, window.position()
        return number

    def ask_news(self, link: Link) -> None:
        """Ask what has arrived of the messages that nobody answers, one question at a time."""
        if link.session.window.news and (link, link.asked_news) not in self.pings:
            link.asked_news = self.ping(link)

    def confirm(self) -> None:
        """Ask which answers have arrived, so that a link that ends later does not count for them:
        one question for each link at a time, which is forgotten with it."""
        for link in list(self.by_rid.values()):     # a Ping may end one
            if link.confirmed >= link.asked < link.carried and self.ping(link):
                link.asked = link.carried

    def answered(self, link: Link, number: int) -> bool:
        """A Pong came. Whether a call of taken() waits for it."""
        arrived = self.pings.pop((link, number), None)
        if arrived is None:
            return False
        link.confirmed = max(link.confirmed, arrived[0])
        link.session.window.confirm(arrived[1])
        return True


class Question:
    """A Ping over a link, as soon as it has room, and whether it has been answered.

    It may be given up, though the link is not broken: if no frame comes for `silence` seconds, or,
    unless it is patient, no answer for `MUTE` seconds. Each report of what was sent before the Ping
    begins these `MUTE` seconds anew: on a slow link there may be much of that."""

    def __init__(self, link: Link, silence: float | None = None, patient: bool = False) -> None:
        self.link, self._pings = link, link.links
        self._silence, self._patient = silence, patient
        self.given_up = False
        self._number = 0
        self._before = 0            # bytes ever that were sent before the Ping
        self._looked = time.monotonic()
        self._frames, self._quiet = -1, 0.0     # frames ever that came, seconds since the last;
        self._taken, self._waited = -1, 0.0     # parts that were reported, seconds since the last

    def over(self) -> bool:
        link = self.link
        if not self._number and (number := self._pings.ping(link)):
            self._number = number
            self._before = self._pings.pings[link, number][1]
        if not self.given_up and link.usable \
                and (not self._number or (link, self._number) in self._pings.pings):
            self._look()
            return self.given_up
        return True

    def _look(self) -> None:
        before, self._looked = self._looked, time.monotonic()
        passed = min(LOOK, self._looked - before)   # a process that stood still has to read first
        session = self.link.session
        came, reported = session.frames_in, session.window.taken
        taken = (min(reported, self._before) if self._number else reported) // REPORT
        self._quiet = self._quiet + passed if came == self._frames else 0.0
        self._waited = self._waited + passed if taken == self._taken else 0.0
        self._frames, self._taken = came, taken
        self.given_up = self._silence is not None and self._quiet >= self._silence \
            or not self._patient and self._waited >= MUTE

    def forget(self) -> None:
        self._pings.pings.pop((self.link, self._number), None)
