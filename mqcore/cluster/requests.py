"""The asking side: a request from its first attempt to its answer.

A `Call` holds one request. It may have several attempts. After a refusal a repetition is always
safe, since the request has not run. After a broken link it needs an idempotent request. A hedge is
a second attempt while the first is still out. Each but the first takes from the retry budget. The
first answer counts, and the others are cancelled.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from mqcore.binding.sleep import Nap
from mqcore.cluster import frames
from mqcore.cluster.errors import (
    MemberLost,
    NoSuchService,
    Overloaded,
    RemoteError,
    RequestTimeout,
)

if TYPE_CHECKING:
    from mqcore.cluster.balance import Score
    from mqcore.cluster.directory import Member
    from mqcore.cluster.link import Way
    from mqcore.cluster.node import Core

PENDING = 100_000       # requests of one node that are out at once
HEDGE_FLOOR = 0.002     # seconds before a hedge, at least
STILL = 1.5             # seconds between two ticks, which are due each half: this loop stood still
P95 = 3.0               # times the smoothed latency: the 95th percentile of an exponential one
COUNTS = ("asked", "answered", "faults", "timeouts", "overloaded", "lost", "unserved", "cancelled",
          "retries", "hedges", "late")


class Attempt(frames.Struct, eq=False):
    """A request that one member has."""

    call: Call
    id: int
    member: Member
    link: Way
    score: Score
    at: float           # when it was sent


class Call(frames.Struct, eq=False):
    """One request. A struct, since its constructor is a tenth of a plain class's."""

    service: str
    body: bytes
    deadline: float | None      # of time.monotonic()
    key: bytes | None
    idempotent: bool
    headers: dict[str, bytes]
    trace: str
    nap: Nap                    # of who asks
    only: Callable[[Member], bool] | None = None        # which members may have it
    tried: list[Member] = []
    attempts: list[Attempt] = []
    unserved: int = 0           # of those that were tried: how many take no requests
    done: bool = False
    result: bytes = b""
    error: Exception | None = None

    def finish(self, result: bytes, error: Exception | None = None) -> None:
        if not self.done:
            self.done, self.result, self.error = True, result, error
            self.nap.wake()


class Requests:
    """All requests of a node. Accounts, exact at any moment:
    asked == answered + faults + timeouts + overloaded + lost + unserved + cancelled + pending."""

    def __init__(self, node: Core) -> None:
        self.node = node
        self.number = 0
        self.counts = dict.fromkeys(COUNTS, 0)
        self.pending = 0
        self.late = 0           # those of them that were made while the node drained
        self._ejected: dict[Score, tuple[Member, str]] = {}     # and from which service
        self._ticked = time.monotonic()
        self._stood = float("-inf")     # when it was found that this loop had stood still

    def tick(self, now: float) -> None:
        """Every half second."""
        if now - self._ticked > STILL:
            self._stood = now
        self._ticked = now
        for score in [score for score in self._ejected if now >= score.until]:
            self._restored(score)

    def gone(self, member: Member) -> None:
        """It has left, or failed."""
        for score in [score for score, (one, _) in self._ejected.items() if one is member]:
            self._restored(score)

    def _failed(self, attempt: Attempt, now: float) -> None:
        """It counts against its member."""
        score = attempt.score
        if score.failed(now):
            if score in self._ejected:
                self._restored(score)
            self._ejected[score] = attempt.member, attempt.call.service
            self.node.directory.event("ejected", attempt.member, attempt.call.service)
            if attempt.member.link not in (None, attempt.link):
                score.linked(now)       # the loss of the old link was found late

    def _restored(self, score: Score) -> None:
        self.node.directory.event("restored", *self._ejected.pop(score))

    def _stands(self, now: float) -> bool:
        """Whether this loop stands still, or has until a moment ago: the process was stopped, say.
        Then it has not read what members have answered, and their links have ended."""
        return now - self._ticked > STILL or now - self._stood < STILL

    async def ask(self, call: Call, hedge: float | bool | None) -> bytes:
        counts = self.counts
        counts["asked"] += 1
        self.pending += 1
        late = self.node.draining
        self.late += late
        outcome = "cancelled"
        self.node.budget.request()
        timer = None
        timers = self.node.loop.timers
        try:
            self._launch(call)
            hedge_at = None if hedge is None else self._hedge_at(call, hedge)
            while not call.done:
                limit = call.deadline
                if hedge_at is not None and (limit is None or hedge_at < limit):
                    limit = hedge_at
                if limit is not None:
                    timer = timers.at(limit, call.nap.wake)
                await call.nap.wait()
                if call.done:
                    break
                now = time.monotonic()
                if call.deadline is not None and now >= call.deadline:
                    outcome = "timeouts"
                    self._give_up(call, now)
                    raise RequestTimeout(
                        f"service {call.service!r} did not answer within the time-out; the request "
                        f"was sent to {len(call.tried)} member(s)", service=call.service,
                        tried=len(call.tried))
                call.nap = Nap()
                hedge_at = None
                if not call.done and self.node.budget.take() and self._launch(call, hedge=True):
                    counts["hedges"] += 1
            outcome = _OUTCOMES.get(type(call.error), "lost")
            if call.error is not None:
                raise call.error
            return call.result
        finally:
            if timer is not None:
                timers.cancel(timer)
            if call.attempts:
                self._withdraw(call)
            self.pending -= 1
            self.late -= late
            counts[outcome] += 1
            call.error = None       # its traceback refers to this frame

    def _hedge_at(self, call: Call, hedge: float | bool | None) -> float | None:
        if hedge is None or hedge is False or not call.attempts:
            return None
        if hedge is True:
            latency = call.attempts[0].score.latency
            hedge = max(HEDGE_FLOOR, P95 * latency)
        return time.monotonic() + float(hedge)

    # -- attempts ----------------------------------------------------------------------------------

    def _launch(self, call: Call, hedge: bool = False, lost: MemberLost | None = None) -> bool:
        """Send the request to one more member. If no member is left, the call is over, unless this
        was to be a hedge. `lost`: what is raised then, if a member that had it was lost."""
        node = self.node
        while True:
            now = time.monotonic()
            members = node.directory.offering(call.service)
            if call.only is not None:
                members = tuple(filter(call.only, members))
            member = node.balancer.choose(members, call.service, now, call.tried, call.key)
            if member is None:
                if not hedge and not call.attempts:
                    call.finish(b"", lost or self.nobody(call.service, bool(members), call.tried,
                                                         call.unserved))
                return False
            ttl = 0 if call.deadline is None else max(1, int((call.deadline - now) * 1e6))
            self.number += 1
            link = member.link
            if link.send(frames.Request(self.number, call.service, ttl, call.body, call.headers,
                                        call.trace)):
                break
            if link.usable:
                call.tried.append(member)
            else:       # not the member refuses it: over another link, or as if it were not there
                node.links.unused(link, "the connection broke")
        call.tried.append(member)
        attempt = Attempt(call, self.number, member, link, member.score(call.service), now)
        attempt.score.sent(now)
        attempt.link.attempts[self.number] = attempt
        call.attempts.append(attempt)
        return True

    def nobody(self, service: str, offered: bool, tried: list[Member],
               unserved: int = 0) -> Exception:
        if tried and unserved == len(tried):
            return Overloaded(
                f"no member of {service!r} that was asked ({unserved}) takes requests: they serve "
                "it with other methods alone, or no more", service=service,
                tried=unserved, hint="give its handler a method request, or start other members")
        if not offered and not tried:
            return NoSuchService(f"no live member offers the service {service!r}", service=service)
        if not tried:
            return Overloaded(f"no member of {service!r} takes requests now: those that offer it "
                              "drain, or have weight 0", service=service, tried=0)
        return Overloaded(f"all {len(tried)} members of {service!r} that were asked are at their "
                          "limit, drain, or take none", service=service, tried=len(tried))

    def _again(self, call: Call, otherwise: Exception, free: bool = False) -> None:
        """One attempt has failed. Try the next member, if the budget allows."""
        if call.done or call.attempts:
            return              # another attempt is still out
        if not free and not self.node.budget.take():
            call.finish(b"", otherwise)
        elif self._launch(call, lost=otherwise if isinstance(otherwise, MemberLost) else None):
            self.counts["retries"] += 1

    def _give_up(self, call: Call, now: float) -> None:
        """The deadline has passed: it counts against the members that have not answered, unless
        they were asked so late that they could not, or this loop is to blame."""
        stands = self._stands(now)
        for attempt in call.attempts:
            if stands or now - attempt.at < P95 * attempt.score.expected(now):
                attempt.score.released()
            else:
                self._failed(attempt, now)
            self._cancel(attempt)
        call.attempts.clear()

    def _withdraw(self, call: Call) -> None:
        """The call is over: discard the attempts that are still out."""
        for attempt in call.attempts:
            attempt.score.released()
            self._cancel(attempt)
        call.attempts.clear()

    def _cancel(self, attempt: Attempt) -> None:
        attempt.link.attempts.pop(attempt.id, None)
        attempt.link.withdraw_request(attempt.id)

    # -- what comes back ---------------------------------------------------------------------------

    def reply(self, link: Way, frame: frames.Reply) -> None:
        attempt = link.attempts.pop(frame.id, None)
        if attempt is None:
            self.counts["late"] += 1
            return
        call = attempt.call
        call.attempts.remove(attempt)
        score = attempt.score
        if frame.status in frames.REFUSALS:
            score.refused(frame.load)
            call.unserved += frame.status == frames.NO_SERVICE
            self._again(call, Overloaded(
                f"a member of {call.service!r} {_REFUSED[frame.status]}, and the retry budget is "
                "spent", service=call.service, tried=len(call.tried)),
                # no repetition, as in offered()
                free=frame.status == frames.DRAINING)
            return
        now = time.monotonic()
        if frame.status == frames.LOST:
            score.refused(frame.load)
            self._lost(call, attempt.member, "the member passes requests on, and lost who had it")
            return
        score.answered(now - attempt.at, frame.load, now)
        if frame.status == frames.OK:
            call.finish(frame.body)
        elif frame.status == frames.EXPIRED:
            call.finish(b"", RequestTimeout(
                f"the request waited at a member of {call.service!r} until its deadline passed, "
                "and has not run", service=call.service, tried=len(call.tried)))
        else:
            call.finish(b"", RemoteError(frame.text or frame.kind, service=call.service,
                                         kind=frame.kind))

    def offered(self, member: Member) -> None:
        """The member offers other services than before. A request for one that it takes no more,
        and that has not been sent to it whole, goes to another member: it would be refused. That
        is no repetition, so it takes nothing from the budget."""
        for link in self.node.links.of(member):
            for attempt in filter(None, map(link.attempts.get, link.session.unsent)):
                offer = member.record.services.get(attempt.call.service)
                if offer is not None and offer.weight > 0 or not link.take_back(attempt.id):
                    continue
                del link.attempts[attempt.id]
                attempt.call.attempts.remove(attempt)
                attempt.score.released()
                if not attempt.call.done and not attempt.call.attempts:
                    self._launch(attempt.call)

    def unlinked(self, link: Way, member: Member, reason: str) -> None:
        """A link broke: the attempts that it carried will not be answered."""
        now = time.monotonic()
        attempts, link.attempts = link.attempts, {}
        for attempt in attempts.values():
            call = attempt.call
            call.attempts.remove(attempt)
            if self._stands(now):
                attempt.score.released()
            else:
                self._failed(attempt, now)
            self._lost(call, member, reason)

    def _lost(self, call: Call, member: Member, reason: str) -> None:
        error = MemberLost(f"the link to a member of {call.service!r} broke before its answer "
                           f"({reason})", service=call.service, member=member.id)
        if call.idempotent:
            self._again(call, error)
        elif not call.attempts:
            call.finish(b"", error)


_REFUSED = {frames.OVERLOADED: "is at its limit", frames.DRAINING: "drains",
            frames.NO_SERVICE: "takes no requests"}
_OUTCOMES = {type(None): "answered", RemoteError: "faults", RequestTimeout: "timeouts",
             Overloaded: "overloaded", MemberLost: "lost", NoSuchService: "unserved"}
