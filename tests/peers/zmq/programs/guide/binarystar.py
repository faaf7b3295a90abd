"""Two servers: the backup becomes active when the primary is silent and a client asks it."""
import time

import zmq

BEAT = 40           # ms
PRIMARY, BACKUP, ACTIVE, PASSIVE = 1, 2, 3, 4


def serve(here, state_here, state_there, state):
    """Answer while active, until told to die. Returns the first state and the last."""
    context = zmq.Context()
    statepub, statesub = context.socket(zmq.PUB), context.socket(zmq.SUB)
    statepub.bind(state_here)
    statesub.subscribe("")
    statesub.connect(state_there)
    frontend, fate = context.socket(zmq.ROUTER), context.socket(zmq.REP)
    frontend.bind(here)
    fate.bind(here + "-fate")
    poller = zmq.Poller()
    for socket in (frontend, statesub, fate):
        poller.register(socket, zmq.POLLIN)
    first, peer, expiry, due = state, 0, float("inf"), time.monotonic()
    while True:
        socks = dict(poller.poll(max(0, (due - time.monotonic()) * 1000)))
        now = time.monotonic()
        if fate in socks and peer != BACKUP:    # one that knows of us is PASSIVE
            break
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
            if state == ACTIVE:
                frontend.send_multipart(message)
    for socket in (statepub, statesub, frontend):
        socket.close(linger=0)
    fate.recv()
    fate.send(b"dead")
    fate.close()
    context.term()
    return [first, state]


def primary(a, b, c, d):
    return serve(a, c, d, PRIMARY)


def backup(a, b, c, d):
    return serve(b, d, c, BACKUP)


def client(a, b, c, d):
    """Requests to whoever answers; then the primary dies, and later the backup."""
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
        if request != b"1":
            fate = context.socket(zmq.REQ)
            fate.connect((a if request == b"2" else b) + "-fate")
            fate.send(b"die")
            fate.recv()
            fate.close()
    socket.close(linger=0)
    context.term()
    return [replies, server]
