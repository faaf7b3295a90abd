"""Where a node finds the others: addresses, DNS names, files, and the local network.

    tcp://10.0.0.5:7400             an address
    dns://nodes.example.org:7400    every address of the name
    srv://_mq._tcp.example.org      hosts and ports of a service record
    file:///etc/app/nodes           every line of the file
    lan                             the nodes of this key on the local network, see beacon.py
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from mqcore.cluster.beacon import Beacon, Where, linked
from mqcore.errors import NO_FILES, AddressError, Error
from mqcore.options import from_text
from mqcore.spi import registry
from mqcore.spi.resolver import Resolver
from mqcore.spi.url import parse

if TYPE_CHECKING:
    from mqcore.cluster.loops import Loop
    from mqcore.cluster.node import Core

AGAIN = 10.0            # seconds until a node that is alone looks its seeds up again
REFUSED = 30.0          # seconds until it tries a seed again that does not let it in
OPTIONS = {"refresh": 30.0, "connect_timeout": 5.0, "family": 0}
LAN = "lan"


def split(seeds: Iterable[str]) -> tuple[tuple[str, ...], Where | None]:
    """The seeds to look up, and where to look on the local network. Raises AddressError."""
    others, where = [], None
    for seed in seeds:
        if seed != LAN and not seed.startswith(f"{LAN}://"):
            others.append(seed)
        elif where is not None:
            raise AddressError(f"{seed!r}: a node looks in one place on the local network",
                               hint='give "lan" once')
        else:
            where = Where.parse("" if seed == LAN else seed)
    return tuple(others), where


class Seed:
    """One seed that the caller has given. Raises AddressError for what is no URL."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.error = ""                     # why it cannot be looked up
        self.found: tuple[str, ...] = ()    # the addresses behind it
        self.looking = False
        self._url = parse(text if "://" in text else f"tcp://{text}")
        self._resolver = registry.resolver(self._url.transport)
        if self._resolver is None:
            self.found = (self._url.text,)
            return
        self._resolver.check(self._url.address)
        rows = registry.resolver_options(self._resolver.scheme)
        self._options = {**OPTIONS, **{row.name: row.default for row in rows},
                         **{name: from_text(name, text, extra=rows)
                            for name, text in self._url.query}}

    @property
    def named(self) -> bool:
        """Whether it has to be looked up."""
        return self._resolver is not None

    async def look_up(self, loop: Loop) -> None:
        """Sets `found` or `error`, or both where a part is wrong. However long one name takes, the
        other seeds do not wait."""
        resolver = self._resolver
        # one that is not derived from Resolver may lack it
        part = getattr(resolver, "look_up_part", partial(Resolver.look_up_part, resolver))
        try:
            found, self.error = await loop.in_thread(
                lambda: part(self._url.address, self._options))
            self.found = tuple(dict.fromkeys(found))
        except OSError as error:
            self.error = error.strerror or str(error)
        except Error as error:
            self.error = error.text
        finally:
            self.looking = False


class Seeds:
    """The seeds of a node. Names are looked up when it joins, and again while it is alone. Raises
    AddressError."""

    def __init__(self, node: Core, given: Iterable[str]) -> None:
        self.node = node
        self.others, self.where = split(given)
        self.seeds = [Seed(text) for text in self.others]
        self.beacon: Beacon | None = None
        self._due = 0.0

    def targets(self) -> tuple[str, ...]:
        """URLs of hosts that tell which of this machine's addresses others may use. May block."""
        if self.where is None:
            return self.others
        try:
            return (*self.others, f"udp://{self.where.target()}:{self.where.port}")
        except OSError as error:
            if error.errno in NO_FILES:
                raise
            return self.others

    def start(self) -> None:
        """Connect to all seeds, to those with a name once it is known. Raises AddressError."""
        if self.where is not None:
            self.beacon = Beacon(self.node, self.where)
            self.beacon.start()
        self._dial()
        self._look_up()

    def _look_up(self) -> None:
        for seed in self.seeds:
            if seed.named and not seed.looking:
                seed.looking = True
                self.node.loop.spawn(self._find, seed)

    async def _find(self, seed: Seed) -> None:
        before = seed.found
        await seed.look_up(self.node.loop)
        self._due = time.monotonic() + AGAIN
        links, good = self.node.links, []
        for url in seed.found:
            try:
                links.dial(url, seed=True)
                good.append(url)
            except Error as error:      # what a name or a file yields may be anything
                seed.error = seed.error or f"{url}: {error.text}"
        seed.found = tuple(good)
        wanted = {url for one in self.seeds for url in one.found}
        for url in set(before) - wanted:        # else a name that changes has ever more
            dial = links.dials.get(url)
            if dial is not None and dial.seed:
                # a member may have the address; else it is given up once it has no link
                dial.seed, dial.of_member = False, True

    def _dial(self) -> None:
        for seed in self.seeds:
            for url in seed.found:
                self.node.links.dial(url, seed=True)

    def settled(self) -> bool:
        """Whether each seed has answered, or cannot at present. Names that are looked up do not
        matter once a member is known."""
        looking = any(seed.looking for seed in self.seeds)
        return (not looking or bool(self.node.directory.members)) and all(
            dial.error or dial.done or linked(dial)
            for dial in self.node.links.dials.values() if dial.seed) and (
            self.beacon is None or self.beacon.settled())

    def tick(self, now: float) -> None:
        if self.beacon is not None:
            self.beacon.tick()
        if self.node.directory.members:
            return
        links = self.node.links
        for dial in list(links.dials.values()):
            if dial.seed and dial.done and now - dial.since > REFUSED:
                links.hang_up(dial)
        self._dial()        # alone: the seeds may let this node in again
        if now > self._due:
            self._look_up()

    def close(self) -> None:
        if self.beacon is not None:
            self.beacon.close()

    def explain(self) -> list[str]:
        lines = [f"  seed {seed.text}: {seed.error or 'its name is being looked up'}"
                 for seed in self.seeds if seed.error or seed.looking]
        return lines if self.beacon is None else [*lines, self.beacon.explain()]
