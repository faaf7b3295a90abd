"""A client that asks again; a server that dies; a queue whose workers die."""
import zmq

TIMEOUT = 150   # ms


def ask(context, url, requests):
    """The lazy pirate's client: a socket that got no answer is closed, another asks."""
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
    return replies, retries


def lazy(a, b):
    with zmq.Context() as context:
        replies, retries = ask(context, a, [b"1", b"2", b"3"])
        return [replies, retries > 0]


def server(a, b):
    """It dies at the second request, and comes back."""
    for dies in (b"2", None):
        context = zmq.Context()
        socket = context.socket(zmq.REP)
        socket.bind(a)
        while True:
            request = socket.recv()
            if request == dies:
                break
            socket.send(request)
            if request == b"3":
                break
        socket.close(linger=None if dies is None else 0)
        context.term()


def simple(a, b):
    """A client of the queue: one of the two workers takes its second request and dies."""
    with zmq.Context() as context:
        replies, retries = ask(context, a, [b"1", b"2", b"3", b"END"])
        return [replies, retries > 0]


def queue(a, b):
    context = zmq.Context()
    frontend = context.socket(zmq.ROUTER)
    backend = context.socket(zmq.ROUTER)
    frontend.bind(a)
    backend.bind(b)
    backend_poller, both = zmq.Poller(), zmq.Poller()
    backend_poller.register(backend, zmq.POLLIN)
    both.register(frontend, zmq.POLLIN)
    both.register(backend, zmq.POLLIN)
    workers, over = [], False
    while not over:
        socks = dict((both if workers else backend_poller).poll())
        if backend in socks:
            address, empty, *rest = backend.recv_multipart()
            workers.append(address)
            if rest[0] != b"\x01":
                frontend.send_multipart(rest)
                over = rest[-1] == b"END"
        if frontend in socks:
            backend.send_multipart([workers.pop(0), b"", *frontend.recv_multipart()])
    frontend.close()
    backend.close(linger=0)
    context.term()


def worker(a, b):
    context = zmq.Context()
    sockets = [context.socket(zmq.REQ) for _ in range(2)]
    poller = zmq.Poller()
    for socket in sockets:
        socket.connect(b)
        socket.send(b"\x01")
        poller.register(socket, zmq.POLLIN)
    dead, request = False, b""
    while request != b"END":
        for socket, _ in poller.poll():
            client, empty, request = socket.recv_multipart()
            if request == b"2" and not dead:
                dead = True
                poller.unregister(socket)
                socket.close(linger=0)
                continue
            socket.send_multipart([client, b"", request])
            if request == b"END":
                break
    context.destroy()
