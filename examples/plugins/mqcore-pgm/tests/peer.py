"""A publisher or subscriber in a process of its own, of mqcore or of libzmq (pyzmq).

    python peer.py mq|zmq pub|sub URL [NAME=VALUE ...]

A publisher says "hello 0", "hello 1" ... until a line comes on its standard input. Then it sends
`n` numbered messages of `size` bytes, in `parts` parts, and closes with linger. A subscriber prints
"ready" when it has heard some hellos: by then it knows whom to ask for what it lacks. It ends with
the last number, or when nothing has come for `idle` s. Both print what they saw as a line of JSON.
Other names are options of the socket.
"""

import json
import select
import sys
import threading
import time

LINGER = 20.0
READY = 15
OWN = {"n": 1000, "size": 1024, "parts": 1, "idle": 10.0, "pace": 0.0}


def values(words):
    out = dict(OWN)
    for word in words:
        name, _, value = word.partition("=")
        out[name] = True if value == "on" else float(value) if "." in value else int(value)
    return out


class Mq:
    """mqcore's sockets."""

    def __init__(self, pattern, url, more):
        import mqcore as mq

        self.sock = (mq.Pub(nodrop=True) if pattern == "pub"
                     else mq.Sub(topics=[b""], recv_hwm=None, recv_hwm_bytes=None))
        self.seen = []
        self.thread = threading.Thread(target=self.watch, args=(self.sock.events(),), daemon=True)
        self.thread.start()
        binds = pattern == "pub" and not more.pop("connect", 0)
        (self.sock.bind if binds else self.sock.connect)(url, **more)

    def watch(self, stream):
        for event in stream:
            if event.kind == "Lost":
                self.seen.append(event.reason)

    def send(self, parts):
        self.sock.send_parts(parts, timeout=60)

    def recv(self, timeout):
        import mqcore as mq

        try:
            return self.sock.recv_parts(timeout=timeout)
        except mq.RecvTimeout:
            return None

    def stats(self):
        """The counters by source may come a moment after those of the peer."""
        end = time.monotonic() + LINGER
        while True:
            stats = self.sock.stats()
            total = sum(peer.lost for peer in stats.peers.values())
            if sum(stats.lost.values()) == total or time.monotonic() > end:
                return stats.lost, total
            time.sleep(0.01)

    def close(self):
        lost, total = self.stats()
        report = self.sock.close(linger=LINGER)
        self.thread.join(10)
        return {"lost": lost, "lost_total": total,
                "events": self.seen, "undelivered": report.undelivered, "unacked": report.unacked,
                "dropped": report.dropped, "elapsed": report.elapsed}


class Zmq:
    """libzmq's."""

    def __init__(self, pattern, url, more):
        import zmq

        self.zmq = zmq
        self.sock = zmq.Context.instance().socket(zmq.PUB if pattern == "pub" else zmq.SUB)
        self.sock.setsockopt(zmq.RATE, more.pop("pgm_rate", 100_000))
        self.sock.setsockopt(zmq.SNDHWM, 0)
        self.sock.setsockopt(zmq.RCVHWM, 0)
        self.sock.setsockopt(zmq.LINGER, int(LINGER * 1000))
        if pattern == "sub":
            self.sock.setsockopt(zmq.RCVBUF, 4 << 20)
            self.sock.setsockopt(zmq.SUBSCRIBE, b"")
        binds = pattern == "pub" and not more.pop("connect", 0)
        (self.sock.bind if binds else self.sock.connect)(url)

    def send(self, parts):
        self.sock.send_multipart(parts)

    def recv(self, timeout):
        return self.sock.recv_multipart() if self.sock.poll(timeout * 1000) else None

    def close(self):
        self.sock.close()
        self.zmq.Context.instance().term()
        return {}


def body(number, own):
    first = b"%08d" % number
    if own["parts"] == 1:
        return [first + bytes(max(own["size"] - 8, 0))]
    return [first, *[b"%d" % k * own["size"] for k in range(1, own["parts"])]]


def publish(peer, own):
    hellos = 0
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        peer.send([b"hello %d" % hellos])
        hellos += 1
    sys.stdin.readline()
    started = time.monotonic()
    for number in range(own["n"]):
        peer.send(body(number, own))
        if own["pace"]:
            time.sleep(own["pace"])
    sent = time.monotonic() - started
    return {"hellos": hellos, "sent": own["n"], "seconds": sent, **peer.close(),
            "closed": time.monotonic() - started}


def subscribe(peer, own):
    numbers, wrong, latest, slowest = [], 0, time.monotonic(), 0.0
    started = ended = 0.0
    hellos = []
    while not numbers or numbers[-1] != own["n"] - 1:
        parts = peer.recv(own["idle"] if numbers else 60.0)
        if parts is None:
            break
        now = time.monotonic()
        if parts[0].startswith(b"hello"):
            hellos.append(int(parts[0].split()[1]))
            if len(hellos) == READY:
                print("ready", flush=True)
            continue
        started = started or now
        slowest = max(slowest, now - latest if numbers else 0.0)
        latest = ended = now
        number = int(parts[0][:8])
        numbers.append(number)
        wrong += parts != body(number, own)
    out = peer.close()
    missing = sorted(set(range(own["n"])) - set(numbers))
    return {"got": len(numbers), "hellos": hellos, "wrong": wrong, "missing": len(missing),
            "ordered": numbers == sorted(set(numbers)), "seconds": ended - started,
            "slowest": slowest, **out}


def main():
    library, pattern, url, *words = sys.argv[1:]
    given = values(words)
    own = {name: given.pop(name) for name in OWN}
    peer = (Mq if library == "mq" else Zmq)(pattern, url, given)
    print(json.dumps((publish if pattern == "pub" else subscribe)(peer, own)), flush=True)


if __name__ == "__main__":
    main()
