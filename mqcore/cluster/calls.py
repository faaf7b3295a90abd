"""The calls on services, each awaitable and blocking."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from os import PathLike
from typing import TYPE_CHECKING, Any

from mqcore.binding.yielding import fair
from mqcore.cluster import report
from mqcore.cluster.adopt import Adopted, adopt
from mqcore.cluster.checks import (
    body_of,
    count_of,
    headers_of,
    hedge_of,
    key_of,
    limit_of,
    name_of,
    seconds_of,
    text_of,
    texts_of,
    weight_of,
)
from mqcore.cluster.directory import Events, Member
from mqcore.cluster.drain import abandon, check_caller
from mqcore.cluster.errors import NodeClosed
from mqcore.cluster.frames import HEADERS
from mqcore.cluster.key import Key
from mqcore.cluster.node import Core
from mqcore.cluster.patterns import check_topic
from mqcore.cluster.quota import Quota
from mqcore.cluster.requests import PENDING, Call
from mqcore.cluster.services import Service
from mqcore.cluster.surveys import Survey
from mqcore.cluster.topics import Feed
from mqcore.cluster.tunnels import RESUME, RESUME_MOST, Opening
from mqcore.errors import UsageError, WaitTimeout
from mqcore.trace.carry import merged
from mqcore.trace.flow import current, step

if TYPE_CHECKING:
    from mqcore.cluster.federation import Gateway

TIMEOUT = 5.0       # seconds, of a request
QUEUE = 32 << 20    # bytes


class Node(Core):
    """A node of a cluster, made by `cluster.ajoin` and `cluster.join`."""

    # -- requests ----------------------------------------------------------------------------------

    async def arequest(self, service: str, body: bytes, *, timeout: float | None = TIMEOUT,
                       key: bytes | str | None = None, hedge: float | bool | None = None,
                       idempotent: bool = False, headers: Mapping[str, bytes] | None = None,
                       trace: str = "") -> bytes:
        """Have one member answer. Returns its bytes.

        Args:
            service: the name.
            body: up to 64 MiB.
            timeout: seconds until RequestTimeout; None waits for ever. It travels with the request,
                and a member does not run what has expired.
            key: requests with the same key go to the same member, as long as it is there.
            hedge: seconds after which a second member gets the request, too; True chooses the time
                by the latencies seen. The first answer counts. For what may run twice.
            idempotent: the request may run twice: repeat it if a link breaks.
            headers: up to 32 names and values of up to 4096 bytes for `req.headers`.
            trace: a text for `req.trace`. The current trace of mqcore.trace needs no argument: it
                travels in the headers `traceparent` and `tracestate`.

        Raises NoSuchService, RequestTimeout, Overloaded, MemberLost, RemoteError, NodeClosed.
        """
        self.check()
        if self.requests.pending >= PENDING:
            raise UsageError(f"{PENDING} requests of this node are pending",
                             hint="wait for answers")
        call = Call(name_of(service), body_of(body),
                    None if timeout is None else time.monotonic() + seconds_of(timeout),
                    None if key is None else key_of(key), idempotent,
                    headers_of(headers) if headers else {},
                    text_of(trace, "trace") if trace != "" else trace, self.loop.nap())
        if hedge is not None:
            hedge_of(hedge)
        if current() is None:
            return await self.requests.ask(call, hedge)
        with step(f"request {service}", "client"):
            call.headers = merged(call.headers, HEADERS)
            return await self.requests.ask(call, hedge)

    def request(self, service: str, body: bytes, **options: Any) -> bytes:
        """arequest(), blocking."""
        answer: bytes = self.loop.call(lambda: self.arequest(service, body, **options))
        return answer

    async def abroadcast(self, service: str, body: bytes) -> int:
        """Send to all members of a service. Returns how many were addressed; none answers."""
        await fair()
        self.check_here()
        service = name_of(service)
        with step(f"broadcast {service}", "producer"):
            return self.surveys.broadcast(service, body_of(body))

    def broadcast(self, service: str, body: bytes) -> int:
        """abroadcast(), blocking."""
        count: int = self.loop.call(self.abroadcast, service, body)
        return count

    def asurvey(self, service: str, body: bytes, *, deadline: float = 1.0) -> Survey:
        """Ask all members of a service. Iterate over the replies (`body`, `peer`) as they come. It
        ends when all have answered, or after `deadline` seconds."""
        self.check()
        return Survey(self, name_of(service), body_of(body), seconds_of(deadline))

    def survey(self, service: str, body: bytes, *, deadline: float = 1.0) -> Survey:
        """asurvey(), for a plain `for`."""
        return self.asurvey(service, body, deadline=deadline)

    # -- topics ------------------------------------------------------------------------------------

    async def apublish(self, topic: str, body: bytes) -> int:
        """Send to all subscriptions that match the topic, best effort. Returns the number of nodes
        that want it."""
        await fair()
        self.check_here()
        topic = check_topic(topic)
        if current() is None:
            return self.topics.publish(topic, body_of(body))
        with step(f"publish {topic}", "producer"):
            return self.topics.publish(topic, body_of(body))

    def publish(self, topic: str, body: bytes) -> int:
        """apublish(), blocking."""
        count: int = self.loop.call(self.apublish, topic, body)
        return count

    def asubscribe(self, *patterns: str, queue: str = "", queue_bytes: int = 8 << 20) -> Feed:
        """Subscribe to topics, within `async with`. In a pattern `*` stands for one token and a
        last `>` for one or more. Subscriptions with the same `queue` share their messages."""
        self.check()
        return Feed(self, patterns, text_of(queue, "queue"), count_of(queue_bytes, "queue_bytes="))

    def subscribe(self, *patterns: str, queue: str = "", queue_bytes: int = 8 << 20) -> Feed:
        """asubscribe(), within a plain `with`."""
        return self.asubscribe(*patterns, queue=queue, queue_bytes=queue_bytes)

    # -- tunnels and services ----------------------------------------------------------------------

    def atunnel(self, service: str, *, timeout: float | None = TIMEOUT,
                key: bytes | None = None, resume: float = RESUME) -> Opening:
        """Open a tunnel to one member, within `async with`.

        Args:
            timeout: seconds until it is accepted.
            key: tunnels with the same key go to the same member, as long as it is there.
            resume: seconds, up to 300, that the tunnel waits for another link to its member if the
                link breaks. 0: it ends with its link.
        """
        self.check()
        if seconds_of(resume) > RESUME_MOST:
            raise UsageError(f"resume= is up to {RESUME_MOST:g} seconds, not {resume!r:.80}")
        return Opening(self, name_of(service), limit_of(timeout), key_of(key), float(resume))

    def tunnel(self, service: str, *, timeout: float | None = TIMEOUT,
               key: bytes | None = None, resume: float = RESUME) -> Opening:
        """atunnel(), within a plain `with`."""
        return self.atunnel(service, timeout=timeout, key=key, resume=resume)

    def aserve(self, name: str, handler: Any, *, concurrency: int = 64,
               queue_bytes: int = QUEUE, weight: float = 1.0,
               urls: tuple[str, ...] = ()) -> Service:
        """Serve a name, within `async with`.

        Args:
            name: of the service.
            handler: an object with some of the methods request, broadcast, tunnel.
            concurrency: requests that run at once; as many broadcasts run besides.
            queue_bytes: bytes of requests that wait beyond that. Further ones are refused at once.
            weight: a member of weight 2 gets about twice the requests of one of weight 1.
            urls: plain sockets of this program for the same service, which `cluster://NAME` yields.

        Raises UsageError, and AddressError for one of the `urls` that no socket can connect to.
        """
        self.check()
        count_of(concurrency, "concurrency=", 1)
        count_of(queue_bytes, "queue_bytes=")
        urls = texts_of(urls, "urls")
        for url in urls:
            self.links.check(url)
        return Service(self, name_of(name), handler, concurrency=concurrency,
                       queue_bytes=queue_bytes, weight=weight_of(weight), urls=urls)

    def serve(self, name: str, handler: Any, **options: Any) -> Service:
        """aserve(), within a plain `with`."""
        return self.aserve(name, handler, **options)

    def afederate(self, name: str, key: Key, *, exports: str | Iterable[str] = (),
                  imports: str | Iterable[str] = (), quota: Quota | None = None,
                  listen: str | Iterable[str] = "tcp://127.0.0.1:0",
                  seeds: str | Iterable[str] = (), zone: str | None = None,
                  url: str | None = None, udp: bool = True,
                  identity: str | PathLike[str] | None = None) -> Gateway:
        """Make this node a gateway to other clusters, within `async with`.

        Args:
            name: of this cluster, by which the others know it. All its gateways use the same one.
            key: of the federation, which only the gateways have. Not the cluster's key.
            exports: services that other clusters may use; `*` stands for any text.
            imports: services of other clusters to use here: `adder` from whichever exports it,
                `adder@acme` by that name from the cluster `acme` alone.
            quota: what each other cluster may ask, see Quota.
            listen: addresses to accept other gateways at.
            seeds: addresses of other gateways, as of ajoin().
            zone: gateways of this zone are preferred; by default the node's own.
            url: the address to give to other gateways, if it differs from the one listened at.
            udp: use UDP among the gateways.
            identity: a file that keeps this gateway's id over restarts.
        """
        from mqcore.cluster.federation import Gateway

        self.check()
        options = {"listen": listen, "seeds": seeds, "url": url, "udp": udp, "identity": identity}
        if zone is not None:
            options["zone"] = zone
        return Gateway(self, name, key, exports, imports, Quota() if quota is None else quota,
                       options)

    def federate(self, name: str, key: Key, **options: Any) -> Gateway:
        """afederate(), within a plain `with`."""
        return self.afederate(name, key, **options)

    # -- waiting and leaving -----------------------------------------------------------------------

    async def await_members(self, service: str | None = None, n: int = 1,
                            timeout: float | None = None) -> list[Member]:
        """Wait until `n` members offer the service (or are known, this node included). Raises
        WaitTimeout."""
        await fair()
        self.check_here()
        count_of(n, "n=")
        limit_of(timeout)
        if service is not None:
            service = name_of(service)
        found = await self.until(
            lambda: self.closed or len(self.members(service)) >= n, timeout)
        self._check_closed()
        if not found:
            have = len(self.members(service))
            raise WaitTimeout(f"{have} of {n} members"
                              f"{f' of {service!r}' if service else ''} after {timeout:g} s",
                              have=have, want=n, why=self.explain())
        return self.members(service)

    def wait_members(self, service: str | None = None, n: int = 1,
                     timeout: float | None = None) -> list[Member]:
        """await_members(), blocking."""
        found: list[Member] = self.loop.call(self.await_members, service, n, timeout)
        return found

    async def aadopt(self, service: str, url: str, *, weight: float = 1.0,
                     **options: Any) -> Adopted:
        """Make a plain REP or Rep0 socket at `url` a member's service, by way of this node. It is
        offered while it is connected. `options` are those of the Req socket. Close the result to
        end it."""
        self.check_here()
        return await adopt(self, name_of(service), texts_of((url,), "url")[0], weight_of(weight),
                           options)

    def adopt(self, service: str, url: str, **options: Any) -> Any:
        """aadopt(), blocking."""
        return self.loop.call(lambda: self.aadopt(service, url, **options),
                              undo=lambda adopted: self.loop.spawn(adopted.aclose))

    def drain(self, timeout: float | None = 5.0) -> bool:
        """adrain(), blocking."""
        left = self.closed
        if not left:
            check_caller(self)
        try:
            done: bool = self.loop.call(self.adrain, timeout)
        except NodeClosed:
            if left or not self.closed:
                raise
            self.close()        # another call has closed it, or its event loop stops as it ends
            done = self.drained
        return done

    def close(self) -> None:
        """aclose(), blocking."""
        if self.begun and not self.ended and not self.loop.over:
            with suppress(NodeClosed):      # the loop has ended meanwhile
                self.loop.call(self.aclose)
                return
        abandon(self)

    # -- looking -----------------------------------------------------------------------------------

    def members(self, service: str | None = None) -> list[Member]:
        """The members that offer the service and can be reached, or all known members. This node is
        one of them. Raises StateError before the node has joined."""
        self.check_ready()
        if service is not None:
            return list(self.directory.offering(service))
        return list(self.directory)

    def events(self) -> Events:
        """What changes from now on: see Event."""
        stream = Events(self, self._streams.discard)
        stream.closed = self.closed
        self._streams.add(stream)
        return stream

    def stats(self) -> dict[str, Any]:
        """Counters by subject, exact at any moment. Raises StateError before the node has
        joined."""
        self.check_ready()
        return report.stats(self)

    def explain(self) -> str:
        """In plain words: whom this node knows, whom it cannot reach and why, what was dropped."""
        if not self.ready:
            return "this node has not joined" + (", and is closed" if self.closed else "")
        return report.explain(self)

    def __repr__(self) -> str:
        if not hasattr(self, "directory"):
            return f"<cluster node, {'closed' if self.closed else 'not joined'}>"
        state = "closed" if self.closed else f"{len(self.directory.members) + 1} members"
        return f"<cluster node {self.id[:8]} at {self.url}, {state}>"
