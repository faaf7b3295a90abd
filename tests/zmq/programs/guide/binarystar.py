"""Two servers: the backup becomes active when the primary is silent and a client asks it."""
import time

import zmq

BEAT = 40           # ms
PRIMARY, BACKUP, ACTIVE, PASSIVE = 1, 2, 3, 4


def serve(here, state_here, state_there, state, requests):
    """Answer while active, until so many requests are done. Returns the states it went through."""
    context = zmq.Context()
    statepub = context.socket(zmq.PUB)
    statepub.bind(state_here)
    statesub = context.socket(zmq.SUB)
    statesub.subscribe("")
    statesub.connect(state_there)
    frontend = context.socket(zmq.ROUTER)
    frontend.bind(here)
    poller = zmq.Poller()
    poller.register(frontend, zmq.POLLIN)
    poller.register(statesub, zmq.POLLIN)
    seen, expiry, peer = [state], time.monotonic() + 1000, 0
    due = time.monotonic()
    while requests or peer == BACKUP:   # a backup that knows of us is PASSIVE
        socks = dict(poller.poll(max(0, (due - time.monotonic()) * 1000)))
        now = time.monotonic()
        if now >= due:
            statepub.send(b"%d" % state)
            due = now + BEAT / 1000
        if statesub in socks:
            peer = int(statesub.recv())
            expiry = now + 4 * BEAT / 1000
            if state == PRIMARY and peer in (BACKUP, PASSIVE):
                state = ACTIVE
            elif state == BACKUP and peer == ACTIVE:
                state = PASSIVE
        if frontend in socks:
            if state == PASSIVE and now >= expiry:
                state = ACTIVE
            message = frontend.recv_multipart()
            if state == ACTIVE and requests:
                frontend.send_multipart(message)
                requests -= 1
        if state != seen[-1]:
            seen.append(state)
    statepub.close(linger=0)
    statesub.close()
    frontend.close()
    context.term()
    return seen


def primary(a, b, c, d):
    return serve(a, c, d, PRIMARY, 2)


def backup(a, b, c, d):
    return serve(b, d, c, BACKUP, 1)


def client(a, b, c, d):
    """Two requests at the primary, then it is gone."""
    context = zmq.Context()
    servers, server, replies = [a, b], 0, []
    socket = context.socket(zmq.REQ)
    socket.connect(servers[0])
    for request in (b"1", b"2", b"3"):
        socket.send(request)
        while not socket.poll(8 * BEAT):
            socket.close(linger=0)
            server = (server + 1) % 2
            socket = context.socket(zmq.REQ)
            socket.connect(servers[server])
            socket.send(request)
        replies.append(socket.recv().decode())
    socket.close(linger=0)
    context.term()
    return [replies, server]
