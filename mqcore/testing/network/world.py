"""The simulated network itself: its time, its chance, its events and its hosts. See README.md."""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import math
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from random import Random
from typing import Any, NamedTuple, TypeVar

import mqcore
from mqcore.base import virtual
from mqcore.errors import StateError, UsageError
from mqcore.testing import installed
from mqcore.testing.network.connections import RETRIES, RETRY, Door, Link, Partition, Way
from mqcore.testing.network.sim import SimTransport

EPOCH = 1000  # seconds that the clock of a context shows at the beginning
SECOND = 1_000_000_000
TURNS = 100_000  # that one moment may take
NEVER = 1 << 62
T = TypeVar("T")


class Event(NamedTuple):
    """One line of a trace. `time`: seconds; `size`: bytes."""

    time: float
    what: str
    where: str
    size: int

    def __str__(self) -> str:
        size = f" {self.size} B" if self.size else ""
        return f"{self.time:.6f} {self.what} {self.where}{size}"


class Stuck(AssertionError):
    """A call without a timeout waits, and nothing has come for it in an hour of virtual time. Or a
    moment of the network does not end."""


class Host:
    """A machine of the network, with a context of its own. Sockets that you make here may bind
    `sim://NAME/...` and connect to the addresses of every host."""

    def __init__(self, net: Network, name: str, options: dict[str, Any]) -> None:
        self.net, self.name = net, name
        self._pauses: list[object] = []  # those that go on; each has an end of its own
        self.rate = 0.0
        make: Any = mqcore.Context
        self.context = make(monitor=False, sim_host=self, **{"linger": 0, **options})
        self._hub: Any = self.context._hub
        self._hub.world = net
        self._kept: list[Any] = []

    @property
    def paused(self) -> bool:
        """Whether a pause() goes on."""
        return bool(self._pauses)

    def socket(self, pattern: str, **kw: Any) -> Any:
        """Context.socket(). The host keeps it open until the network is closed."""
        self.net._check()
        self._kept = [sock for sock in self._kept if not sock.closed]
        self._kept.append(self.context.socket(pattern, **kw))
        return self._kept[-1]

    def _step(self) -> int:
        """One turn of what its threads would do."""
        plane, loop = self._hub._plane, self._hub._loop
        if plane is None or loop is None or (self.paused and not self._closing()):
            return 0
        plane.settle()
        done: int = plane.step() + loop.step()
        return done

    def _closing(self) -> bool:
        """Whether the test closes a socket here: that takes no time, and no byte passes."""
        return any(links._until is not None for links in list(self._hub.sockets.values()))

    def _set_time(self, now: int) -> None:
        if self._hub._plane is not None:
            self._hub._plane.set_time(EPOCH * SECOND + now)

    def _due(self) -> int:
        plane, loop = self._hub._plane, self._hub._loop
        if plane is None or loop is None or self.paused:
            return NEVER
        when = loop.due()
        soon = NEVER if when == math.inf else math.ceil((when - EPOCH) * SECOND)
        if soon < NEVER and EPOCH + soon / SECOND < when:
            soon += 1
        return min(soon, int(plane.due()) - EPOCH * SECOND)

    def __repr__(self) -> str:
        return f"<Host {self.name}{', paused' if self.paused else ''}>"


class Network:
    """A network in virtual time. Everything that happens follows from the seed and from what the
    program does, which runs on one thread.

    delay, jitter: seconds that a piece is under way, and by how much that varies, up and down.
    loss: the chance of a piece to be lost. reorder: the chance to be held up, so that pieces of
    other connections overtake it. rate: bytes per second of each direction of a connection; 0: no
    limit. give_up: seconds after which a connection across a partition breaks. Other keyword
    arguments are default options of all sockets (linger is 0)."""

    def __init__(self, seed: int = 0, *, delay: float = 0.001, jitter: float = 0.0,
                 loss: float = 0.0, reorder: float = 0.0, rate: float = 0.0, give_up: float = 20.0,
                 **options: Any) -> None:
        _check_numbers(delay=delay, jitter=jitter, rate=rate, give_up=give_up)
        _check_chances(loss=loss, reorder=reorder)
        if jitter > delay:
            raise UsageError(f"jitter={jitter:g} is more than delay={delay:g}",
                             hint="a piece cannot arrive before it is sent")
        if virtual.world() is not None:
            raise StateError("this thread runs a simulated network already", hint="close it first")
        self.seed = seed
        self.loss, self.reorder, self.rate = loss, reorder, rate
        self.counts: Counter[str] = Counter()
        self._delay, self._jitter = round(delay * SECOND), round(jitter * SECOND)
        self._give_up = round(give_up * SECOND)
        self._options = options
        self._chance = Random(seed)
        self._now = 0
        self._heap: list[tuple[int, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._order = 0
        self._hosts: dict[str, Host] = {}
        self._doors: dict[str, Door] = {}
        self._links: dict[int, Link] = {}
        self._number = 0
        self._partitions: list[Partition] = []
        self._trace: list[Event] = []
        self._owner = threading.get_ident()
        self._inside = ""  # "callback": of at(); "turn": of a host
        self._closed = False
        self._installed = contextlib.ExitStack()
        self._installed.enter_context(installed("transport", SimTransport(self)))
        virtual.enter(self)

    # -- what a test does --------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self._now / SECOND

    def host(self, name: str, **options: Any) -> Host:
        """The host of that name, made on first use. options: defaults of its sockets."""
        self._check()
        found = self._hosts.get(name)
        if found is None:
            if not name or "/" in name:
                raise UsageError(f"{name!r} is no name of a host", hint='such as "a", without /')
            found = self._hosts[name] = Host(self, name, {**self._options, **options})
        return found

    def run(self, until: float | None = None, *, seconds: float | None = None) -> None:
        """Let time pass: until that moment, or for that many seconds."""
        if (until is None) == (seconds is None):
            raise UsageError("run() needs one of until= and seconds=")
        end = _ns(until, "until") if seconds is None else self._now + _ns(seconds, "seconds")
        if end < self._now:
            raise UsageError(f"it is {self.now:g} s already, later than until={until:g}")
        while self.step(self._deadline(end - self._now)):
            pass

    def run_async(self, main: Coroutine[Any, Any, T], limit: float = virtual.FOREVER) -> T:
        """asyncio.run(main): timers, timeouts and sleeps of its tasks go by this network's time,
        which passes while all of them wait. Stuck if they take longer than `limit` seconds of it
        (an hour)."""
        self._check()
        _check_numbers(limit=limit)
        from mqcore.testing.network.virtual_loop import run

        return run(self, main, limit)

    def at(self, when: float, fn: Callable[..., Any], *args: Any) -> None:
        """Call fn(*args) at that moment, or now if it has passed. It may send and receive, with
        timeout=0, and close sockets, hosts' contexts and the network, but no time passes in it: a
        call that waits raises StateError."""
        self._check()
        self._after(max(0, _ns(when, "when") - self._now), fn, *args)

    def partition(self, one: Iterable[Any], other: Iterable[Any], *, at: float | None = None,
                  heal: float | None = None) -> None:
        """From `at` (default: now) to `heal` (default: until heal() is called) no byte passes
        between the two groups of hosts, which exist when it begins. A second partition of the same
        groups has an end of its own."""
        partition = Partition(_names(one), _names(other))
        self._between(at, heal, "heal", self._part, self._heal, partition)

    def heal(self) -> None:
        """End all partitions."""
        for partition in list(self._partitions):
            self._heal(partition)

    def pause(self, name: str, *, at: float | None = None, until: float | None = None) -> None:
        """The host's library gets no time from `at` (now) to `until` (until go() is called), like a
        stopped process: a slow peer. No byte leaves it or reaches it. What the test itself sends
        there waits, and the host takes what has arrived when it goes on. Pauses may overlap: each
        has an end of its own."""
        self._between(at, until, "until", self._pause, self._resume, name, object())

    def go(self, name: str) -> None:
        """End every pause() of the host that has begun."""
        for pause in list(self._known(name)._pauses):
            self._resume(name, pause)

    def cut(self) -> int:
        """Break every connection now. How many there were."""
        found = [link for link in self._links.values() if link.connected]
        for link in found:
            link.reset("cut")
        return len(found)

    def note(self, text: str) -> None:
        """Add a line of your own to the trace."""
        self._log("note", text, 0)

    def trace(self) -> list[Event]:
        """What has happened. Equal for equal seeds and equal programs."""
        return list(self._trace)

    def digest(self) -> str:
        """The trace as 16 hexadecimal digits."""
        text = "\n".join(map(str, self._trace))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def explain(self) -> str:
        """The network now, in some lines: time, counters, partitions, connections."""
        lines = [f"seed {self.seed}, {self.now:g} s, {len(self._trace)} events, "
                 f"trace {self.digest()}"]
        lines += [f"  {what}: {count}" for what, count in sorted(self.counts.items())]
        lines += [f"  no byte passes between {', '.join(sorted(one))} and "
                  f"{', '.join(sorted(other))}"
                  for one, other in (partition.sides for partition in self._partitions)]
        lines += [f"  {host!r}" for host in self._hosts.values() if host.paused]
        lines += [f"  {link!r}" for link in self._links.values()]
        return "\n".join(lines)

    def close(self) -> None:
        """Close all sockets and end the network. Idempotent."""
        if self._closed:
            return
        self._check()
        for host in self._hosts.values():
            host._pauses.clear()
        try:
            for host in self._hosts.values():
                host.context.close(0)
                host._kept.clear()
        finally:
            self._closed = True
            for link in list(self._links.values()):
                link.close()
            self._heap.clear()
            virtual.leave(self)
            self._installed.close()

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Network seed={self.seed} at {self.now:g} s, {len(self._hosts)} hosts>"

    # -- time: World of mqcore/base/virtual.py -----------------------------------------------------

    def clock(self) -> float:
        return EPOCH + self._now / SECOND

    def random(self) -> float:
        """For the pauses between attempts to connect."""
        return self._chance.random()

    def step(self, deadline: int) -> bool:
        self._check()
        if deadline < 0:
            raise self._stuck(f"nothing came for {virtual.FOREVER} s, and a call without a timeout "
                              "waits")
        if self._inside == "callback":
            happened = self._settle() > 0
            if happened or deadline <= EPOCH * SECOND + self._now:
                return happened
        if self._inside:
            raise StateError("this call would wait inside a callback of the simulated network",
                             hint="use timeout=0 there, or a task of an event loop")
        if self._settle():
            return True
        when = min(self._heap[0][0] if self._heap else NEVER,
                   min((host._due() for host in self._hosts.values()), default=NEVER))
        end = deadline - EPOCH * SECOND
        self._move(max(self._now, min(when, end)))
        while self._heap and self._heap[0][0] <= self._now and when <= end:
            _, _, fn, args = heapq.heappop(self._heap)
            self._call(fn, args)
        self._settle()
        return when <= end

    def check_scheme(self, scheme: str) -> None:
        if scheme not in ("sim", "inproc"):
            raise UsageError(f"a simulated host has no {scheme}://: it would not be replayed",
                             hint="use sim://HOST/NAME, or inproc:// within one host")

    def wait_for(self, done: Callable[[], bool], timeout: float | None) -> bool:
        deadline = self._deadline(
            round((virtual.FOREVER if timeout is None else timeout) * SECOND))
        while not done():
            if not self.step(deadline):
                if timeout is None and not done():
                    self.step(-1)
                return done()
        return True

    def _deadline(self, wait: int) -> int:
        return EPOCH * SECOND + self._now + wait

    def _move(self, now: int) -> None:
        self._now = now
        for host in self._hosts.values():
            host._set_time(now)

    def _call(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._inside = "callback"
        try:
            fn(*args)
        finally:
            self._inside = ""

    def _settle(self) -> int:
        """Until nothing can happen at this moment any more: no host has work, and the network has
        all that they wrote. Returns how much happened."""
        total = 0
        outside = self._inside
        for _ in range(TURNS):
            done = 0
            self._inside = "turn"
            try:
                for host in list(self._hosts.values()):
                    done += host._step()
                for link in list(self._links.values()):
                    for way in link.ways:
                        done += way.flush() + way.collect()
            finally:
                self._inside = outside
            if not done:
                return total
            total += done
        raise self._stuck(f"{TURNS} turns at one moment did not come to rest")

    def _stuck(self, what: str) -> Stuck:
        return Stuck(f"{what}\n{self.explain()}")

    # -- for links ---------------------------------------------------------------------------------

    def _after(self, wait: int, fn: Callable[..., Any], *args: Any) -> None:
        self._order += 1
        heapq.heappush(self._heap, (self._now + wait, self._order, fn, args))

    def _between(self, begin: float | None, end: float | None, name: str,
                 start: Callable[..., Any], stop: Callable[..., Any], *args: Any) -> None:
        """Call start(*args) at `begin` (None: now) and stop(*args) at `end` (None: never). `name`:
        of the argument that says the end."""
        first = self._now if begin is None else max(self._now, _ns(begin, "at"))
        last = None if end is None else _ns(end, name)
        if last is not None and last < first:
            raise UsageError(f"{name}={last / SECOND:g} is before it begins, at "
                             f"{first / SECOND:g} s")
        if first > self._now:
            self._after(first - self._now, start, *args)
        else:
            start(*args)
        if last is not None:
            self._after(last - self._now, stop, *args)

    def _attempt(self, client: Host, address: str) -> Link:
        self._number += 1
        link = self._links[self._number] = Link(self, self._number, client, address)
        self._log("attempt", link.name, 0)
        self._after(self._journey(link), link.knock)
        return link

    def _journey(self, link: Link) -> int:
        """ns that one piece is under way."""
        vary = self._chance.uniform(-1, 1) if self._jitter else 0.0
        return self._delay + int(self._jitter * vary)

    def _dispatch(self, way: Way, data: bytes) -> None:
        """A piece leaves: decide when it arrives."""
        wait = self._journey(way.link)
        self._log("send" if data else "finish", way.name, len(data))
        if self.rate:
            way.free = max(way.free, self._now) + int(len(data) * SECOND / self.rate)
            wait += way.free - self._now
        lost = 0
        while self.loss and self._chance.random() < self.loss:
            self._count("lost", "lose", way.name, len(data))
            if lost == RETRIES:
                self._after(wait, way.link.reset, "loss")
                return
            wait += RETRY << lost
            lost += 1
        if self.reorder and self._chance.random() < self.reorder:
            self._count("reordered", "overtake", way.name, len(data))
            wait += int(4 * self._delay * self._chance.random())
        if lost:
            self._count("delayed", "delay", way.name, len(data))
        way.last = max(way.last, self._now + wait)
        way.pieces.append((way.last, data))
        self._after(way.last - self._now, way.arrive)

    def _parted(self, one: Host, other: Host | None) -> bool:
        return other is not None and any(partition.parts(one.name, other.name)
                                         for partition in self._partitions)

    def _part(self, partition: Partition) -> None:
        for name in sorted(frozenset().union(*partition.sides)):
            self._known(name)
        self._log("partition", str(partition), 0)
        self._partitions.append(partition)

    def _heal(self, partition: Partition) -> None:
        if partition not in self._partitions:
            return
        self._partitions.remove(partition)
        self._log("heal", str(partition), 0)
        for link in list(self._links.values()):
            link.heal()

    def _pause(self, name: str, pause: object) -> None:
        self._known(name)._pauses.append(pause)
        self._log("pause", name, 0)

    def _resume(self, name: str, pause: object) -> None:
        host = self._known(name)
        if pause in host._pauses:
            host._pauses.remove(pause)
            self._log("go", name, 0)

    def _known(self, name: str) -> Host:
        host = self._hosts.get(name)
        if host is None:
            raise UsageError(f"there is no host {name!r}", hint="make it first: net.host(name)")
        return host

    def _log(self, what: str, where: str, size: int) -> None:
        self._trace.append(Event(self._now / SECOND, what, where, size))

    def _count(self, counter: str, what: str, where: str, size: int = 0) -> None:
        self.counts[counter] += 1
        self._log(what, where, size)

    def _check(self) -> None:
        if self._closed:
            raise StateError("the simulated network is closed", hint="make a new one")
        if threading.get_ident() != self._owner:
            raise StateError("a simulated network belongs to the thread that made it",
                             hint="use tasks of one event loop instead of threads")


def _ns(seconds: float | None, name: str) -> int:
    _check_numbers(**{name: seconds or 0})
    return round((seconds or 0) * SECOND)


def _names(hosts: Iterable[Any]) -> frozenset[str]:
    if isinstance(hosts, str):
        raise UsageError(f"a side of a partition is a set of hosts, not {hosts!r}",
                         hint=f"write {{{hosts!r}}}")
    return frozenset(getattr(host, "name", host) for host in hosts)


def _check_numbers(**values: float) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
            raise UsageError(f"{name} must be a number from 0 on, not {value!r}")


def _check_chances(**values: float) -> None:
    _check_numbers(**values)
    for name, value in values.items():
        if value > 1:
            raise UsageError(f"{name} is a chance from 0 to 1, not {value!r}")
