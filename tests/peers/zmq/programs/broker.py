"""Requests through a broker to whoever is free."""
import threading

import zmq

CLIENTS, WORKERS = 3, 2


def client(number):
    socket = zmq.Context.instance().socket(zmq.REQ)
    socket.identity = b"client-%d" % number
    socket.connect("inproc://frontend")
    socket.send(b"HELLO")
    answers.append(socket.recv().decode())
    socket.close()


def worker(number):
    socket = zmq.Context.instance().socket(zmq.REQ)
    socket.identity = b"worker-%d" % number
    socket.connect("inproc://backend")
    socket.send(b"READY")
    while True:
        address, empty, request = socket.recv_multipart()
        if request == b"END":
            break
        socket.send_multipart([address, b"", request + b" OK to " + address])
    socket.close()


answers = []
context = zmq.Context.instance()
frontend = context.socket(zmq.ROUTER)
frontend.bind("inproc://frontend")
backend = context.socket(zmq.ROUTER)
backend.bind("inproc://backend")
threads = [threading.Thread(target=client, args=(n,)) for n in range(CLIENTS)]
threads += [threading.Thread(target=worker, args=(n,)) for n in range(WORKERS)]
for thread in threads:
    thread.start()

left, free, poller = CLIENTS, [], zmq.Poller()
poller.register(backend, zmq.POLLIN)
while left:
    ready = dict(poller.poll())
    if backend in ready:
        who, empty, client_id, *rest = backend.recv_multipart()
        if not free:
            poller.register(frontend, zmq.POLLIN)
        free.append(who)
        if client_id != b"READY":
            frontend.send_multipart([client_id, b"", rest[1]])
            left -= 1
    if frontend in ready:
        client_id, empty, request = frontend.recv_multipart()
        backend.send_multipart([free.pop(0), b"", client_id, b"", request])
        if not free:
            poller.unregister(frontend)
while len(free) < WORKERS:
    free.append(backend.recv_multipart()[0])
for who in free:
    backend.send_multipart([who, b"", b"", b"", b"END"])
for thread in threads:
    thread.join()
frontend.close()
backend.close()
context.term()
print(sorted(answers))
