"""Clients that do not wait for an answer before they ask again; a server with worker threads."""
import threading

import zmq


def client(a, b):
    context = zmq.Context()
    sockets = [context.socket(zmq.DEALER) for _ in range(3)]
    counts = {}
    poll = zmq.Poller()
    for number, socket in enumerate(sockets):
        socket.identity = b"worker-%d" % number
        socket.connect(a)
        poll.register(socket, zmq.POLLIN)
        counts[socket] = 0
    for request in range(5):
        for socket in sockets:
            socket.send_string(f"request #{request}")
    while sum(counts.values()) < 30:
        for socket, _ in poll.poll():
            text, identity = socket.recv_multipart()
            assert text.startswith(b"request #") and identity == socket.identity
            counts[socket] += 1
    done = context.socket(zmq.PUSH)
    done.connect(b)
    done.send(b"")
    context.destroy()
    return list(counts.values())


def server(a, b):
    context = zmq.Context()
    frontend = context.socket(zmq.ROUTER)
    frontend.bind(a)
    backend = context.socket(zmq.DEALER)
    backend.bind("inproc://backend")
    control = context.socket(zmq.PULL)
    control.bind(b)
    workers = [threading.Thread(target=work, args=(context,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    stopper = threading.Thread(target=stop, args=(context, control))
    stopper.start()
    try:
        zmq.proxy(frontend, backend)
    except zmq.ContextTerminated:
        frontend.close()
        backend.close()
    for thread in (*workers, stopper):
        thread.join()
    return "terminated"


def work(context):
    worker = context.socket(zmq.DEALER)
    worker.connect("inproc://backend")
    try:
        while True:
            identity, message = worker.recv_multipart()
            for _ in range(2):
                worker.send_multipart([identity, message, identity])
    except zmq.ContextTerminated:
        worker.close()


def stop(context, control):
    control.recv()
    control.close()
    context.term()
