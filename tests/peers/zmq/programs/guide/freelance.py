"""Several servers, no broker: one after the other, all at once, or whoever is known to live."""
import zmq


def server(a, b, c):
    """At two addresses; a third has nobody."""
    context = zmq.Context()
    simple, counted, named = (context.socket(kind) for kind in (zmq.REP, zmq.REP, zmq.ROUTER))
    simple.bind(a)
    counted.bind(b)
    named.identity = c.encode()
    named.bind(c)
    poller = zmq.Poller()
    for socket in (simple, counted, named):
        poller.register(socket, zmq.POLLIN)
    over = False
    while not over:
        for socket, _ in poller.poll():
            message = socket.recv_multipart()
            if socket is simple:
                socket.send_multipart(message)
            elif socket is counted:
                socket.send_multipart([message[0], b"OK"])
            elif message[1] == b"PING":
                socket.send_multipart([message[0], b"PONG"])
            else:
                socket.send_multipart([message[0], message[1], b"OK"])
                over = True
    context.destroy(linger=1000)


def client(a, b, c):
    context = zmq.Context()
    found = []
    for url in (a + "-nobody", a):      # model 1: the next, if one is silent
        socket = context.socket(zmq.REQ)
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(url)
        socket.send(b"echo")
        if socket.poll(50 if url != a else 5000):
            found.append(socket.recv().decode())
        socket.close()
    socket = context.socket(zmq.DEALER)     # model 2: all at once, the first answer counts
    socket.linger = 0
    socket.connect(b)
    socket.connect(b)
    for _ in range(2):
        socket.send_multipart([b"", b"1"])
    found += [part.decode() for part in socket.recv_multipart()]
    socket.close()
    router = context.socket(zmq.ROUTER)     # model 3: by address, once it has answered a PING
    router.linger = 0
    router.connect(c)
    while True:
        router.send_multipart([c.encode(), b"PING"])
        if router.poll(20):
            break
    endpoint, control = router.recv_multipart()
    router.send_multipart([endpoint, b"7", b"request"])
    reply = router.recv_multipart()
    while reply == [endpoint, b"PONG"]:     # of an earlier PING
        reply = router.recv_multipart()
    router.close()
    context.term()
    return [found, endpoint == c.encode(), control.decode(), [part.decode() for part in reply[1:]]]
