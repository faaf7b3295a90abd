"""A client that asks again; a server that dies; a queue whose workers die."""
import zmq

TIMEOUT = 150   # ms


def ask(context, url, requests, others):
    """The lazy pirate's client: a socket that got no answer is closed, another asks. At the end it
    tells the others."""
    client, retries, replies = context.socket(zmq.REQ), 0, []
    client.connect(url)
    for request in requests:
        client.send(request)
        while not client.poll(TIMEOUT) & zmq.POLLIN:
            retries += 1
            client.setsockopt(zmq.LINGER, 0)
            client.close()
            client = context.socket(zmq.REQ)
            client.connect(url)
            client.send(request)
        replies.append(client.recv().decode())
    client.setsockopt(zmq.LINGER, 0)
    client.close()
    for other in others:
        done = context.socket(zmq.PUSH)
        done.connect(other)
        done.send(b"")
        done.close()
    return replies, retries


def polled(context, url, *sockets):
    """A socket that hears the end, and a poller of it and these."""
    done, poller = context.socket(zmq.PULL), zmq.Poller()
    done.bind(url)
    for socket in (done, *sockets):
        poller.register(socket, zmq.POLLIN)
    return done, poller


def lazy(a, b):
    with zmq.Context() as context:
        replies, retries = ask(context, a, [b"1", b"2", b"3"], [b])
        return [replies, retries > 0]


def server(a, b):
    """It dies at the second request, and comes back."""
    for dies in (b"2", None):
        context = zmq.Context()
        socket = context.socket(zmq.REP)
        socket.bind(a)
        done, poller = polled(context, b, socket)
        while done not in dict(poller.poll()):
            request = socket.recv()
            if request == dies:
                break
            socket.send(request)
        context.destroy(linger=0)


def simple(a, b, c, d):
    """A client of the queue: one of the two workers takes its second request and dies."""
    with zmq.Context() as context:
        replies, retries = ask(context, a, [b"1", b"2", b"3"], [c, d])
        return [replies, retries > 0]


def queue(a, b, c, d):
    context = zmq.Context()
    frontend = context.socket(zmq.ROUTER)
    backend = context.socket(zmq.ROUTER)
    frontend.bind(a)
    backend.bind(b)
    done, poller = polled(context, c, backend)
    workers = []
    while True:
        poller.register(frontend, zmq.POLLIN if workers else 0)
        socks = dict(poller.poll())
        if done in socks:
            break
        if backend in socks:
            address, empty, *rest = backend.recv_multipart()
            workers.append(address)
            if rest[0] != b"\x01":
                frontend.send_multipart(rest)
        if frontend in socks:
            backend.send_multipart([workers.pop(0), b"", *frontend.recv_multipart()])
    context.destroy(linger=0)


def worker(a, b, c, d):
    context = zmq.Context()
    sockets = [context.socket(zmq.REQ) for _ in range(2)]
    done, poller = polled(context, d, *sockets)
    for socket in sockets:
        socket.connect(b)
        socket.send(b"\x01")
    dead = False
    while True:
        ready = [socket for socket, _ in poller.poll()]
        if done in ready:
            break
        for socket in ready:
            client, empty, request = socket.recv_multipart()
            if request == b"2" and not dead:
                dead = True
                poller.unregister(socket)
                socket.close(linger=0)
            else:
                socket.send_multipart([client, b"", request])
    context.destroy(linger=0)
