"""An endpoint of Zinc: it edits a document, and passes edits on between its host and its children.

An endpoint binds a PUB and a PULL socket for its children, and connects a SUB and a PUSH socket to
its host. So every endpoint may have children, to any depth. Messages are JSON, `from` names the
sender.

| way | message | meaning |
|---|---|---|
| up | `join` with `at` | take me as a child; these are the addresses of my sockets |
| up | `have` with `vector` | I am there, and this is what I have had |
| both | `edits` or `state` | edits, or a whole document for a copy that lacks many |
| down | `beat` | I am there: `vector`, `path` from the root, `kids` in order, my own host's `up` |
| down | `go` with `at` | I have enough children: be a child of this one |

A child without addresses (`at` is empty), such as a page in a browser, has no children of its own.

Downwards, the first part of a message is its topic: "all", or the id of one child. Edits to all
have a number, so that a child notices a gap at once. A child that lacks something says what it has,
and gets the rest; a host that lacks something shows it in its beat, and gets it from its children.

A host that is not heard for SILENCE seconds is dead. Its oldest child takes its place: below the
host's own host, or as the root. The others become children of the oldest. If the old host is heard
again, because only the network was broken, the one that took its place returns to it.
"""

import asyncio
import json
import secrets
from time import monotonic

from document import Document

import mqcore as mq

BEAT = 0.1              # seconds
SILENCE = 1.0           # seconds until a host is dead; a new root is there within 2 s
FLUSH = 0.01            # seconds that edits wait for others, to travel together
CHILDREN = 64           # of one host
PAGES = 1000            # children without addresses, of one host


class Endpoint:
    """`async with Endpoint(bind=["tcp://127.0.0.1:0", "tcp://127.0.0.1:0"]) as one:`

    Args:
        bind: addresses for the PUB and the PULL socket; further pairs are more ways to the same.
        host: the pair of addresses of another endpoint's sockets; None for the root.
        most: children of this endpoint. Further ones are sent on to a child.
        line: line(sender, receiver) -> seconds of delay, or None for a loss. For tests.
    """

    def __init__(self, bind, host=None, *, most=CHILDREN, line=None, hwm=1000):
        self.id = secrets.token_hex(4)
        self.document = Document(self.id)
        self.bind, self.host, self.most, self.line, self.hwm = bind, host, most, line, hwm
        self.host_id = ""
        self.path = [self.id]           # ids from the root to here
        self.kids = {}                  # id: [addresses, when it was heard last]
        self.siblings = []              # [id, addresses], the oldest first
        self.above = None               # addresses of the host's host
        self.former = None              # a host that was lost, as (id, addresses)
        self.promoted = 0
        self.held_up = False            # a slow reader, for tests
        self.stopped = False
        self.malformed = self.refused = 0       # messages; children
        self.changed = asyncio.Event()  # set whenever the text may have changed
        self._out = []                  # edits to be sent
        self._number = self._seen = 0   # of edits to all: sent, and heard
        self._acked = {}                # child: its vector
        self._asked = self._heard = 0.0

    async def __aenter__(self):
        self.pub = mq.Pub(send_hwm=self.hwm, linger=0)
        self.pull = mq.Pull()
        self.sub, self.push = mq.Sub(recv_hwm=self.hwm), mq.Push(linger=0)
        self.old = mq.Sub(topics="all")         # to a former host
        self.urls = [socket.bind(url).url for socket, url in
                     zip([self.pub, self.pull] * (len(self.bind) // 2), self.bind, strict=True)]
        self.at = self.urls[:2]
        self.sub.subscribe("all")
        self.sub.subscribe(self.id)
        if self.host:
            self._attach(self.host)
        self._tasks = [asyncio.create_task(work()) for work in (
            self._from_children, self._from_host, self._from_former, self._beats, self._flushes)]
        return self

    async def __aexit__(self, *_):
        await self.stop()

    async def stop(self):
        """Leave without a word, as a crash would."""
        self.stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        for socket in (self.pub, self.pull, self.sub, self.push, self.old):
            await socket.aclose(0)

    # -- editing -----------------------------------------------------------------------------------

    def insert(self, position, text):
        self._out.append(self.document.insert(position, text))
        self.changed.set()

    def delete(self, position, count=1):
        self._out.append(self.document.delete(position, count))
        self.changed.set()

    def acknowledged(self):
        """Whether another endpoint has had all edits of this one."""
        number = self.document.vector.get(self.id, 0)
        return any(vector.get(self.id, 0) >= number for vector in self._acked.values())

    # -- sockets -----------------------------------------------------------------------------------

    def _attach(self, at):
        """Become a child of the endpoint with these addresses."""
        for socket, url in ((self.sub, at[0]), (self.push, at[1])):
            for endpoint in list(socket.endpoints):
                endpoint.close()
            socket.connect(url)
        self.host, self.host_id, self._seen = at, "", 0
        self._heard = monotonic()

    def _down(self, topic, **message):
        self.pub.send_parts([topic.encode(), json.dumps({"from": self.id, **message}).encode()])

    def _up(self, **message):
        try:
            self.push.send(json.dumps({"from": self.id, **message}).encode(), timeout=0)
        except mq.Timeout:
            pass            # a host that is not there: it asks again for what it lost

    def _receive(self, data, take):
        """Let a message through, as the line does."""
        try:
            message = json.loads(data)
            delay = self.line(message["from"], self.id) if self.line else 0.0
        except (ValueError, TypeError, KeyError):
            self.malformed += 1
            return
        if delay:
            asyncio.get_running_loop().call_later(delay, self._take, take, message)
        elif delay is not None:
            self._take(take, message)

    def _take(self, take, message):
        try:
            if not self.stopped:
                take(message)
        except (ValueError, TypeError, KeyError, AttributeError):
            self.malformed += 1     # a child may be any program that reaches the socket

    async def _from_children(self):
        async for data in self.pull:
            self._receive(data, self._take_up)

    async def _from_host(self):
        while True:
            parts = await self.sub.arecv_parts()
            while self.held_up:
                await asyncio.sleep(FLUSH)
            self._receive(parts[-1], self._take_down)

    async def _from_former(self):
        while True:
            self._receive((await self.old.arecv_parts())[-1], self._take_former)

    # -- messages ----------------------------------------------------------------------------------

    def _take_up(self, message):
        child, kind = message["from"], message["kind"]
        if kind == "join" and child not in self.kids:
            hosts = [kid for kid in self.kids.values() if kid[0]]
            if message["at"] and len(hosts) >= self.most:
                way = min(hosts, key=lambda kid: kid[2])
                way[2] += 1         # until it says how many it has
                self._down(child, kind="go", at=way[0])
                return
            if len(self.kids) - len(hosts) >= PAGES:
                self.refused += 1
                return
            self.kids[child] = [message["at"], 0.0, 0]
        if child not in self.kids:
            return
        self.kids[child][1] = monotonic()
        if kind == "have":
            self._acked[child] = message["vector"]
            self.kids[child][2] = message["below"]
            if any(number > message["vector"].get(origin, 0)
                   for origin, number in self.document.vector.items()):
                self._down(child, kind="edits", number=0, **self.document.since(message["vector"]))
        elif kind == "edits":
            self._take_edits(message)

    def _take_down(self, message):
        kind = message["kind"]
        if kind == "go" and not self.host_id:
            self._attach(message["at"])
        elif kind == "beat" and (self.host_id or self.id in dict(message["kids"])):
            self._beat(message)
        elif kind == "beat":
            self._heard = monotonic()
            self._up(kind="join", at=self.at)
        elif kind == "edits" and self.host_id == message["from"]:
            if message["number"]:
                gap = message["number"] != self._seen + 1
                self._seen = message["number"]
                if gap:
                    self._have()
            self._take_edits(message)

    def _take_edits(self, message):
        if "state" in message:
            new = self.document.merge(message["state"], message["vector"])
            self._asked = 0.0
        else:
            new = self.document.offer(message["edits"])
        self._out += new            # to the host and to all children; the author drops its echo
        self.changed.set()

    def _beat(self, message):
        if self.id not in dict(message["kids"]):
            self.host_id = ""       # the host has forgotten this child: join again
            return
        if self.id in message["path"]:      # a circle: the smallest of it is the root
            if self.id == min(message["path"]):
                self._promote()
            return
        self._heard = monotonic()
        self.host_id = message["from"]
        self.path = [*message["path"], self.id]
        self.siblings = [kid for kid in message["kids"] if kid[1]]
        self.above = message["up"]
        self._acked = {child: vector for child, vector in self._acked.items()
                       if child in self.kids}
        self._acked[self.host_id] = message["vector"]
        if self.document.lacks(message["vector"]):
            self._have()
        lacking = self.document.since(message["vector"])
        if lacking.get("edits", True):
            self._up(kind="edits", **lacking)

    def _take_former(self, message):
        """The host that was lost is there after all."""
        if message["kind"] == "beat" and self.former and self.id not in message["path"]:
            self._attach(self.former)
            self._forget()

    # -- the tree ----------------------------------------------------------------------------------

    def _have(self):
        """Tell the host what this copy has; it sends the rest."""
        if monotonic() - self._asked >= BEAT:
            self._asked = monotonic()
            below = sum(1 + kid[2] for kid in self.kids.values())
            self._up(kind="have", vector=self.document.vector, below=below)

    def _forget(self):
        for endpoint in list(self.old.endpoints):
            endpoint.close()
        self.former = None

    def _promote(self):
        """Be the root, until the lost host is heard again."""
        for socket in (self.sub, self.push):
            for endpoint in list(socket.endpoints):
                endpoint.close()
        self._forget()
        if self.host:
            self.former = self.host
            self.old.connect(self.host[0])
        self.host, self.host_id, self.path = None, "", [self.id]
        self.siblings, self.above = [], None
        self.promoted += 1

    def _host_lost(self):
        """The oldest child takes the host's place, the others follow it."""
        if self.siblings and self.siblings[0][0] != self.id:
            _, oldest = self.siblings.pop(0)
            self._attach(oldest)
        elif self.above:
            above, self.above = self.above, None
            self._attach(above)
        else:
            self._promote()

    async def _beats(self):
        while True:
            now = monotonic()
            for child, (_, heard, _) in list(self.kids.items()):
                if heard and now - heard > 2 * SILENCE:
                    del self.kids[child]
                    self._acked.pop(child, None)
            if self.host:
                self._have()
                if now - self._heard > SILENCE:
                    self._host_lost()
            self._down("all", kind="beat", vector=self.document.vector, path=self.path,
                       kids=[[child, kid[0]] for child, kid in self.kids.items()], up=self.host)
            await asyncio.sleep(BEAT)

    async def _flushes(self):
        while True:
            if self._out:
                out, self._out = self._out, []
                self._number += 1
                self._down("all", kind="edits", number=self._number, edits=out)
                if self.host_id:
                    self._up(kind="edits", edits=out)
            await asyncio.sleep(FLUSH)
