"""Federation: services of one cluster, by name, in another.

The gateways of all clusters form a small cluster of their own, with a key of its own. A gateway is
thus two nodes in one process: one in its cluster, one among the gateways, whose `version` is the
name of its cluster. No cluster gets another one's key, and no node besides the gateways is
reachable from outside.

- Exports: while its cluster has a live member for an exported name, the gateway serves it among
  the gateways, and passes what comes on to those members.
- Imports: while a gateway of another cluster exports a name that is imported, the gateway serves it
  in its own cluster, at a distance (`Offer.hops`) of 1. The balancer takes members at distance 0
  first, so a request leaves the cluster only when none of them can take it.

Loops cannot arise: what a gateway passes on to its cluster goes to members at distance 0 alone,
and what it passes on to gateways goes to those of other clusters alone. So nothing crosses more
than one border. Requests keep their deadlines, headers and traces. Broadcasts and publications
stay inside their cluster.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from fnmatch import translate
from typing import TYPE_CHECKING, Any, Self

from mqcore.binding.sleep import Nap, sleep
from mqcore.cluster import frames
from mqcore.cluster.errors import (
    ClusterError,
    MemberLost,
    NodeClosed,
    NoSuchService,
    Overloaded,
    RemoteError,
    RequestTimeout,
    TunnelClosed,
)
from mqcore.cluster.quota import Quota, Usage
from mqcore.cluster.requests import PENDING, Call
from mqcore.cluster.services import Refusal, Service
from mqcore.errors import StateError, UsageError

if TYPE_CHECKING:
    from mqcore.cluster.calls import Node
    from mqcore.cluster.directory import Member
    from mqcore.cluster.key import Key

LOOK = 0.1          # seconds between two looks at what is offered
AT_ONCE = 4096      # requests of one name that a gateway passes on
NAMES = 256         # that a gateway imports, and that it exports
CLUSTERS = 256      # whose use is accounted for by name
OPEN = 5.0          # seconds until the far end of a tunnel is open
CLUSTER = 63        # characters of a cluster's name


def cluster_name(name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= CLUSTER or not all(
            char.isalnum() or char in "-_." for char in name):
        raise UsageError(f"a cluster's name has 1 to {CLUSTER} letters, digits, - _ and ., not "
                         f"{name!r:.80}")
    return name


def named(cluster: str) -> bool:
    """Whether this is a cluster's name. What a member of the federation says may be anything."""
    try:
        return bool(cluster_name(cluster))
    except UsageError:
        return False


def matcher(patterns: Iterable[str]) -> Callable[[str], Any]:
    """One search for all patterns, since another cluster chooses how many names there are."""
    found = [translate(one) for one in patterns]
    return re.compile("|".join(found)).match if found else lambda name: None


def patterns_of(names: Any, what: str) -> tuple[str, ...]:
    found = (names,) if isinstance(names, str) else \
        tuple(names) if isinstance(names, Iterable) and not isinstance(names, bytes) else None
    if found is None or len(found) > NAMES or not all(
            isinstance(one, str) and 0 < len(one) <= frames.NAME for one in found):
        raise UsageError(f"{what}= is up to {NAMES} names of services, where * stands for any "
                         f"text, not {names!r:.80}", hint=f'such as {what}=["adder", "store.*"]')
    return found


class Gateway:
    """This cluster's place among the gateways, see Node.afederate(). `stats()` has its accounts,
    `fed` is its node there."""

    def __init__(self, node: Node, name: str, key: Key, exports: Any,
                 imports: Any, quota: Quota, options: dict[str, Any]) -> None:
        from mqcore.cluster.calls import Node

        self.node = node
        self.name = cluster_name(name)
        self.exports = patterns_of(exports, "exports")
        self.imports = patterns_of(imports, "imports")
        if any("@" in one for one in self.exports):
            raise UsageError("an exported name has no @, which is for imports from one cluster")
        self._is_exported = matcher(self.exports)
        self._is_imported = matcher(one for one in self.imports if "@" not in one)
        self._is_imported_from = matcher(one for one in self.imports if "@" in one)
        if not isinstance(quota, Quota):
            raise UsageError(f"quota= is a cluster.Quota, not {type(quota).__name__}")
        self.quota = quota
        self.fed = Node(key, version=self.name, **{"zone": node.zone, **options})
        self.usage: dict[str, Usage] = {}           # by the name of the cluster that asks
        self.asked = Usage(Quota(in_flight=AT_ONCE * 16))   # what this cluster asks of others
        self.names_refused = 0
        self.forgotten = 0          # requests of clusters whose accounts have been dropped
        self._exported: dict[str, Service] = {}
        self._imported: dict[str, Service] = {}
        self._seen: Any = None
        self._state = ""            # "", "starting", "open", "over"
        self._error: BaseException | None = None

    # -- begin and end -----------------------------------------------------------------------------

    async def astart(self) -> Self:
        """Join the gateways. Raises KeyRejected and IdentityError as ajoin() does, and NodeClosed
        if this gateway or its node is closed meanwhile."""
        self.node.check_here()
        if self._state:
            raise StateError("this gateway has been started already", hint="make another one")
        self._state = "starting"
        # a task of its own: trio's scopes must end where they began, and a blocking caller's task
        # ends before
        self.node.loop.spawn(self._run)
        try:        # a node that leaves meanwhile may end before that task has begun
            await self.node.until(lambda: self._state != "starting" or self.node.closed
                                  and self not in self.node.gateways, None)
        except BaseException:
            self._state = "closing"
            raise
        if self._error is not None:
            raise self._error
        if self._state != "open":
            self._state = "over"
            raise NodeClosed("this gateway was closed while it began")
        return self

    async def _run(self) -> None:
        """The node knows its gateway while this runs."""
        if self._state != "starting" or self.node.closed:
            return
        self.node.gateways.add(self)
        try:
            async with self.fed:
                if self._state == "starting":
                    self._refresh()
                    await self.fed.barrier()
                    await self.node.barrier()
                if self._state == "starting":       # else it has been closed meanwhile
                    self._state = "open"
                while self._state == "open" and not self.fed.closed:
                    self._refresh()
                    await self.fed.until(lambda: self._state != "open" or self.fed.closed
                                         or self._changed(), LOOK)
        except Exception as error:
            self._error = error
        finally:
            self._state = "over"
            self._withdraw(self.node, self._imported, set())
            self.node.gateways.discard(self)

    async def aclose(self) -> None:
        """Leave the gateways. Requests that are under way there end with MemberLost. Idempotent."""
        if self.node.loop.inherited:
            return
        if self._state in ("starting", "open"):
            self._state = "closing"
        while self in self.node.gateways:
            await self.node.until(lambda: self not in self.node.gateways, None)

    def start(self) -> Self:
        """astart(), blocking."""
        started: Self = self.node.loop.call(
            self.astart, undo=lambda made: self.node.loop.spawn(self.aclose))
        return started

    def close(self) -> None:
        """aclose(), blocking."""
        self.node.loop.end(self.aclose)

    async def __aenter__(self) -> Self:
        return await self.astart()

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- what is offered ---------------------------------------------------------------------------

    def _changed(self) -> bool:
        """Not while the node drains: nothing new is offered then, and what is offered is waited
        for."""
        seen: bool = not self.node.draining \
            and self._seen != (self.node.directory.version, self.fed.directory.version)
        return seen

    def _refresh(self) -> None:
        """Offer what there is on the one side at the other."""
        if not self._changed():
            return
        here = {name for member in self.node.directory if member.link is not None
                for name, offer in member.record.services.items()
                if not offer.hops and offer.weight > 0 and "@" not in name
                and self._is_exported(name)}
        self._offer(self.fed, self._exported, {name: (name, self._local(name)) for name in here}, 0)
        there: dict[str, tuple[str, Callable[[Member], bool]]] = {}
        for member in self.fed.directory.members.values():
            cluster = member.record.version
            if member.link is None or cluster == self.name or not named(cluster):
                continue
            for name, offer in member.record.services.items():
                # a name with @ could pass for that of a third cluster
                if offer.weight > 0 and "@" not in name:
                    there.update(self._imports_of(name, cluster))
        self._offer(self.node, self._imported, there, 1)
        self._seen = (self.node.directory.version, self.fed.directory.version)

    def _imports_of(self, name: str, cluster: str) -> dict[str, Any]:
        """By which names this cluster imports a service of another one, and from whom."""
        found: dict[str, Any] = {}
        full = f"{name}@{cluster}"
        if self._is_imported(name):
            found[name] = (name, self._foreign())
        if len(full) <= frames.NAME and self._is_imported_from(full):
            found[full] = (name, self._foreign(cluster))
        return found

    def _local(self, name: str) -> Callable[[Member], bool]:
        return lambda member: name in member.record.services \
            and not member.record.services[name].hops

    def _foreign(self, cluster: str = "") -> Callable[[Member], bool]:
        return lambda member: member.record.version != self.name \
            and (member.record.version == cluster if cluster else named(member.record.version))

    def _offer(self, node: Node, offered: dict[str, Service],
               wanted: dict[str, tuple[str, Callable[[Member], bool]]], hops: int) -> None:
        before = self._withdraw(node, offered, set(wanted))
        added = False
        target = self.node if node is self.fed else self.fed
        for name, (service, only) in sorted(wanted.items()):
            if name in offered or name in node.services:
                continue        # a handler of this node's own comes first
            if len(offered) >= NAMES:
                self.names_refused += 1
                continue
            handler = Passing(self, target, service, only, bool(hops))
            made = Service(node, name, handler, concurrency=AT_ONCE, queue_bytes=0, weight=1.0,
                           hops=hops)
            offered[name] = node.services[name] = made
            added = True
        if added or before:
            try:
                node.announce()
            except ValueError:      # the names do not fit into this node's record
                self.names_refused += len(offered)
                self._withdraw(node, offered, set())

    def _withdraw(self, node: Node, offered: dict[str, Service], keep: set[str]) -> bool:
        """Take back all names but these. Requests that run go on."""
        gone = [name for name, service in offered.items()
                if name not in keep or node.services.get(name) is not service]
        changed = False
        for name in gone:
            service = offered.pop(name)
            service.draining = True
            node.retire(service)
            if node.services.get(name) is service:
                del node.services[name]
                changed = True
        if changed and not node.closed:
            node.announce()
        return changed

    # -- questions ---------------------------------------------------------------------------------

    def use_of(self, cluster: str) -> Usage:
        found = self.usage.get(cluster)
        if found is None:
            if len(self.usage) >= CLUSTERS and not self._forget_one():
                # names are what the others say they are
                return self.usage.setdefault("", Usage(self.quota))
            found = self.usage[cluster] = Usage(self.quota)
        return found

    def _forget_one(self) -> bool:
        """Forget the accounts of a cluster that has no gateway any more: `forgotten` counts its
        requests."""
        there = {member.record.version for member in self.fed.directory.members.values()}
        for name, usage in self.usage.items():
            if name and name not in there and not usage.in_flight:
                self.forgotten += self.usage.pop(name).offered
                return True
        return False

    def stats(self) -> dict[str, Any]:
        """Accounts by the cluster that asked (`served`), of what this one asked (`asked`), and the
        names that are offered at present."""
        return {"name": self.name, "served": {name: usage.accounts() for name, usage
                                              in self.usage.items()},
                "asked": self.asked.accounts(), "exported": sorted(self._exported),
                "imported": sorted(self._imported), "names_refused": self.names_refused,
                "forgotten": self.forgotten,
                "gateways": len(self.fed.directory.members) if self._state == "open" else 0}

    def explain(self) -> str:
        """In plain words: the gateways, and what is passed on."""
        if self._state != "open":
            return f"gateway of {self.name!r}: {self._state or 'not started'}"
        stats = self.stats()
        refused = sum(usage.refused for usage in self.usage.values())
        return "\n".join([
            f"gateway of {self.name!r}: exports {', '.join(stats['exported']) or 'nothing'}; "
            f"imports {', '.join(stats['imported']) or 'nothing'}; {refused} over quota",
            *(f"  {member.record.version}: {member.url} {member.state}"
              + (f", zone {member.zone}" if member.zone else "")
              + f": {', '.join(member.record.services) or 'no services'}"
              for member in self.fed.directory.members.values())])

    def __repr__(self) -> str:
        return f"<gateway of {self.name!r}, {self._state or 'not started'}>"


class Passing:
    """The handler of one name at a gateway: what comes on one side goes to members of the other."""

    def __init__(self, gateway: Gateway, target: Node, service: str,
                 only: Callable[[Member], bool], outward: bool) -> None:
        self.gateway = gateway
        self.target = target
        self.service = service
        self.only = only
        self.outward = outward

    def _use(self, peer: Member, size: int) -> Usage:
        gateway = self.gateway
        usage = gateway.asked if self.outward else gateway.use_of(peer.record.version)
        if not usage.admit(size, time.monotonic()):
            raise Refusal(frames.OVERLOADED)
        return usage

    async def request(self, req: Any) -> bytes:
        if self.target.closed or self.target.requests.pending >= PENDING:
            raise Refusal(frames.OVERLOADED)
        usage = self._use(req.peer, req.size)
        answered = False
        call = Call(self.service, req.body, req.deadline, None, False, req.headers, req.trace,
                    self.target.loop.nap(), self.only)
        # when the requester gives up, the member on the other side need not go on either
        req._stop = lambda: call.finish(b"", RequestTimeout("the requester has gone"))
        try:
            answer = await self.target.requests.ask(call, None)
            answered = True
            return answer
        except (ClusterError, RequestTimeout) as error:
            answered = isinstance(error, RemoteError)
            raise refusal_of(error) from None
        finally:
            usage.over(answered)

    async def tunnel(self, near: Any) -> None:
        try:
            usage = self._use(near.peer, 0)
        except Refusal:
            near.reset("refused", f"the quota of {near.peer.record.version!r} is used up")
            return
        answered = False
        try:
            far = await self.target.tunnels.aopen(self.service, OPEN, None, self.only)
            await self._join(near, far, usage)
            answered = True
        except (ClusterError, RequestTimeout) as error:
            near.reset("refused", error.text)
        finally:
            usage.over(answered)

    async def _join(self, near: Any, far: Any, usage: Usage) -> None:
        """Pass messages on both ways until both tunnels are over."""
        running = {near: far, far: near}        # by the end that is read
        nap = Nap()

        async def pump(source: Any) -> None:
            try:
                await self._pump(source, running[source], usage)
            finally:
                del running[source]
                nap.wake()

        spawn = self.gateway.node.loop.spawn
        try:
            for source in (near, far):
                spawn(pump, source)
            while running:
                near._enders[:] = far._enders[:] = [nap]
                await nap.wait()
                nap = Nap()
                for source, sink in ((near, far), (far, near)):
                    # all that the one side has sent is passed on, and it has closed both ways
                    if source not in running and source._ended and source._ended.reason != "eof":
                        sink.reset(source._ended.reason, source._ended.text)
        finally:
            for tunnel in (near, far):
                tunnel._enders.clear()
                tunnel.reset("closed")          # unless it is over

    async def _pump(self, source: Any, sink: Any, usage: Usage) -> None:
        """Pass messages on one way until the source has sent all."""
        try:
            # no `async for`: trio wants its generator closed when this is cancelled half-way
            while (message := await _next_of(source)) is not None:
                while wait := usage.bytes.wait(time.monotonic()):
                    await sleep(min(wait, 1.0))
                usage.bytes.take(len(message))
                await sink.asend(message)
            await sink.asend_eof()
        except (TunnelClosed, StateError) as error:
            reason = error.reason if isinstance(error, TunnelClosed) else "closed"
            source.reset(reason, error.text)
            sink.reset(reason, error.text)


async def _next_of(tunnel: Any) -> bytes | None:
    try:
        message: bytes = await tunnel.arecv()
    except TunnelClosed as closed:
        if not tunnel._is_all(closed):
            raise
        return None
    return message


def refusal_of(error: Exception) -> Refusal:
    """What the requester gets instead of an answer, so that it sees what it would see at home."""
    if isinstance(error, RemoteError):
        return Refusal(frames.FAULT, error.kind, error.text)
    if isinstance(error, Overloaded):
        return Refusal(frames.OVERLOADED)
    if isinstance(error, NoSuchService):
        return Refusal(frames.NO_SERVICE)
    if isinstance(error, MemberLost | NodeClosed):
        return Refusal(frames.LOST)
    return Refusal(None)        # a time-out: the requester has the same one
