"""Heartbeats both ways: a queue forgets a worker that is silent, a worker leaves a silent queue."""
import time
from collections import OrderedDict

import zmq
from pirates import ask

READY, HEARTBEAT = b"\x01", b"\x02"
INTERVAL, LIVENESS = 0.03, 5    # seconds; silent intervals until it is given up


def client(a, b):
    with zmq.Context() as context:
        return ask(context, a, [b"1", b"2", b"END"])[0]


def queue(a, b):
    context = zmq.Context()
    frontend, backend = context.socket(zmq.ROUTER), context.socket(zmq.ROUTER)
    frontend.bind(a)
    backend.bind(b)
    workers, expired, over = OrderedDict(), 0, False
    beat = time.monotonic() + INTERVAL
    while not over:
        poller = zmq.Poller()
        poller.register(backend, zmq.POLLIN)
        if workers and expired:         # the silent one has been found out
            poller.register(frontend, zmq.POLLIN)
        socks = dict(poller.poll(INTERVAL * 1000))
        now = time.monotonic()
        if backend in socks:
            address, *rest = backend.recv_multipart()
            workers.pop(address, None)
            workers[address] = now + INTERVAL * LIVENESS
            if rest not in ([READY], [HEARTBEAT]):
                frontend.send_multipart(rest)
                over = rest[-1] == b"END"
        if frontend in socks:
            backend.send_multipart([workers.popitem(False)[0], *frontend.recv_multipart()])
        if now >= beat:
            for address in workers:
                backend.send_multipart([address, HEARTBEAT])
            beat = now + INTERVAL
        for address, expiry in list(workers.items()):
            if now >= expiry:
                del workers[address]
                expired += 1
    frontend.close()
    backend.close(linger=0)
    context.term()
    return expired > 0


def mute(a, b):
    """A worker that registers and says no more; it hears the queue until it is forgotten."""
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.connect(b)
    socket.send(READY)
    heard = 0
    while socket.poll(INTERVAL * LIVENESS * 2000):
        heard += socket.recv_multipart() == [HEARTBEAT]
    socket.close(linger=0)
    context.term()
    return heard > 0


def worker(a, b):
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.connect(b)
    socket.send(READY)
    beat, frames = time.monotonic() + INTERVAL, [b""]
    while frames[-1] != b"END":
        if socket.poll(INTERVAL * 1000):
            frames = socket.recv_multipart()
            if len(frames) == 3:
                socket.send_multipart(frames)
        if time.monotonic() >= beat:
            socket.send(HEARTBEAT)
            beat = time.monotonic() + INTERVAL
    socket.close()
    context.term()
