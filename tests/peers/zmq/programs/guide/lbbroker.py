"""Clients' requests to the worker that has waited longest."""
import zmq


def client(a, b):
    context = zmq.Context()
    sockets = [context.socket(zmq.REQ) for _ in range(4)]
    for number, socket in enumerate(sockets):
        socket.identity = b"client-%d" % number
        socket.connect(a)
        socket.send(b"HELLO")
    replies = [socket.recv().decode() for socket in sockets]
    context.destroy()
    return replies


def worker(a, b):
    context = zmq.Context()
    sockets = [context.socket(zmq.REQ) for _ in range(2)]
    poller = zmq.Poller()
    for number, socket in enumerate(sockets):
        socket.identity = b"worker-%d" % number
        socket.connect(b)
        socket.send(b"READY")
        poller.register(socket, zmq.POLLIN)
    done = 0
    while done < 4:
        for socket, _ in poller.poll():
            address, empty, request = socket.recv_multipart()
            socket.send_multipart([address, b"", b"OK to " + address])
            done += 1
    context.destroy()


def broker(a, b):
    context = zmq.Context.instance()
    frontend = context.socket(zmq.ROUTER)
    frontend.bind(a)
    backend = context.socket(zmq.ROUTER)
    backend.bind(b)
    workers, left, served = [], 4, set()
    poller = zmq.Poller()
    poller.register(backend, zmq.POLLIN)
    while left:
        sockets = dict(poller.poll())
        if backend in sockets:
            worker, empty, client, *rest = backend.recv_multipart()
            workers.append(worker)
            served.add(worker.decode())
            if len(served) == 2:        # both are there
                poller.register(frontend, zmq.POLLIN)
            if client != b"READY" and rest:
                empty, reply = rest
                frontend.send_multipart([client, b"", reply])
                left -= 1
        if frontend in sockets:
            client, empty, request = frontend.recv_multipart()
            backend.send_multipart([workers.pop(0), b"", client, b"", request])
            if not workers:
                poller.unregister(frontend)
    frontend.close()
    backend.close()
    return sorted(served)
