"""A server's key-value map, copied by clients: a snapshot, then updates in order."""
import struct

import zmq


class KVMsg:
    """A key, a number in the order of changes, a body."""

    def __init__(self, sequence, key=b"", body=b""):
        self.sequence, self.key, self.body = sequence, key, body

    def send(self, socket, *before):
        socket.send_multipart([*before, self.key, struct.pack("!q", self.sequence), self.body])

    @classmethod
    def recv(cls, socket):
        key, sequence, body = socket.recv_multipart()
        return cls(struct.unpack("!q", sequence)[0], key, body)


def server(a, b, c):
    context = zmq.Context()
    snapshot, publisher, done = (context.socket(kind) for kind in (zmq.ROUTER, zmq.PUB, zmq.PULL))
    snapshot.bind(a)
    publisher.bind(b)
    done.bind(c)
    poller = zmq.Poller()
    poller.register(snapshot, zmq.POLLIN)
    poller.register(done, zmq.POLLIN)
    kvmap, sequence, left = {}, 0, 2
    while left:
        events = dict(poller.poll(1))
        sequence += 1
        message = KVMsg(sequence, b"%d" % (sequence % 7), b"%d" % sequence)
        kvmap[message.key] = message
        message.send(publisher)
        if snapshot in events:
            identity, request = snapshot.recv_multipart()
            assert request == b"ICANHAZ?"
            for known in kvmap.values():
                known.send(snapshot, identity)
            KVMsg(sequence, b"KTHXBAI").send(snapshot, identity)
        if done in events:
            done.recv()
            left -= 1
    context.destroy(linger=0)


def client(a, b, c):
    context = zmq.Context()
    snapshot, subscriber, done = (context.socket(kind) for kind in (zmq.DEALER, zmq.SUB, zmq.PUSH))
    subscriber.subscribe("")
    subscriber.connect(b)
    first = KVMsg.recv(subscriber)      # the updates have begun
    snapshot.connect(a)
    done.connect(c)
    snapshot.send(b"ICANHAZ?")
    kvmap = {}
    while True:
        message = KVMsg.recv(snapshot)
        if message.key == b"KTHXBAI":
            sequence = message.sequence
            break
        kvmap[message.key] = message.body
    assert sequence >= first.sequence
    gaps = 0
    for _ in range(20):
        message = KVMsg.recv(subscriber)
        if message.sequence <= sequence:
            continue
        gaps += message.sequence != sequence + 1
        sequence = message.sequence
        kvmap[message.key] = message.body
    done.send(b"")
    for socket in (snapshot, subscriber, done):
        socket.close()
    context.term()
    return [gaps, sorted(int(body) for body in kvmap.values())
            == list(range(sequence - 6, sequence + 1))]
