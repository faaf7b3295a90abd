"""Pings over the links of a node: they tell what has arrived there of all that was sent before."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from mqcore.cluster import frames
from mqcore.cluster.drain import LOOK

if TYPE_CHECKING:
    from mqcore.cluster.link import Link


class Pings:
    def __init__(self, node: Any) -> None:
        self.node = node
        self.by_rid: dict[bytes, Link] = {}     # all links
        # Pings that wait for their answer, and what has arrived by then: how many answers of ours,
        # and bytes of the window
        self.pings: dict[tuple[Link, int], tuple[int, int]] = {}
        self._number = 0            # of the last one

    async def taken(self, links: list[Link], timeout: float | None,
                    silence: float | None = None) -> bool:
        """Wait until all that was sent over these links has been taken, or they are broken. Those
        that are full are asked as soon as they have room. False: it lasts longer, or no frame came
        from one of them for `silence` seconds, which is not waited for then."""
        unasked, asked = list(links), set()
        heard: dict[Link, tuple[int, float]] = {}   # frames of a link, and seconds since the last
        silent: set[Link] = set()
        looked = time.monotonic()

        def taken() -> bool:
            nonlocal looked
            for link in unasked[:]:
                if number := self.ping(link):
                    asked.add((link, number))
                if number or not link.usable:
                    unasked.remove(link)
            waiting = {link for link, _ in asked & self.pings.keys() if link.usable}.union(unasked)
            before, looked = looked, time.monotonic()
            for link in waiting - silent:
                came, (known, quiet) = link.session.frames_in, heard.get(link, (-1, 0.0))
                # a process that stood still itself has to read first
                quiet = quiet + min(LOOK, looked - before) if came == known else 0.0
                heard[link] = came, quiet
                if silence is not None and quiet >= silence:
                    silent.add(link)
            return not waiting - silent

        try:
            done: bool = await self.node.until(taken, timeout)
            return done and not silent
        finally:
            for ping in asked:
                self.pings.pop(ping, None)

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
