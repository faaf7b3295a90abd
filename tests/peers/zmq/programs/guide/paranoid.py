"""Heartbeats both ways: a queue forgets a worker that is silent, a worker leaves a silent queue."""
import time
from collections import OrderedDict

import zmq
from pirates import ask, polled

READY, HEARTBEAT = b"\x01", b"\x02"
INTERVAL, LIVENESS = 0.03, 5    # seconds; silent intervals until it is given up


def client(a, b, c, d):
    with zmq.Context() as context:
        return ask(context, a, [b"1", b"2", b"3"], [c, d])[0]


def queue(a, b, c, d):
    context = zmq.Context()
    frontend, backend = context.socket(zmq.ROUTER), context.socket(zmq.ROUTER)
    frontend.bind(a)
    backend.bind(b)
    done, poller = polled(context, c, backend)
    workers, expired = OrderedDict(), 0
    beat = time.monotonic() + INTERVAL
    while True:
        # clients wait until the silent worker has been found out
        poller.register(frontend, zmq.POLLIN if workers and expired else 0)
        socks = dict(poller.poll(INTERVAL * 1000))
        now = time.monotonic()
        if done in socks:
            break
        if backend in socks:
            address, *rest = backend.recv_multipart()
            workers.pop(address, None)
            workers[address] = now + INTERVAL * LIVENESS
            if rest not in ([READY], [HEARTBEAT]):
                frontend.send_multipart(rest)
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
    context.destroy(linger=0)
    return expired > 0


def mute(a, b, c, d):
    """A worker that registers and says no more; it hears the queue until it is forgotten."""
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.connect(b)
    socket.send(READY)
    heard = [socket.recv_multipart()]
    while socket.poll(INTERVAL * LIVENESS * 2000):
        heard.append(socket.recv_multipart())
    socket.close(linger=0)
    context.term()
    return heard[0] == [HEARTBEAT]


def worker(a, b, c, d):
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.connect(b)
    socket.send(READY)
    done, poller = polled(context, d, socket)
    beat = time.monotonic() + INTERVAL
    while True:
        ready = dict(poller.poll(INTERVAL * 1000))
        if done in ready:
            break
        if socket in ready:
            frames = socket.recv_multipart()
            if len(frames) == 3:
                socket.send_multipart(frames)
        if time.monotonic() >= beat:
            socket.send(HEARTBEAT)
            beat = time.monotonic() + INTERVAL
    context.destroy(linger=0)
