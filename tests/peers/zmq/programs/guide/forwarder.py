"""Publishers and subscribers on both sides of a proxy."""
import threading

import zmq


def publisher(a, b, c):
    with zmq.Context() as context:
        socket, done = context.socket(zmq.PUB), context.socket(zmq.PULL)
        socket.connect(a)
        done.bind(c)
        while not done.poll(5):
            socket.send_multipart([b"A", b"not wanted"])
            socket.send_multipart([b"B", b"wanted"])
        socket.close(linger=0)
        done.close()


def proxy(a, b, c):
    context = zmq.Context()
    frontend = context.socket(zmq.XSUB)
    frontend.bind(a)
    backend = context.socket(zmq.XPUB)
    backend.bind(b)
    watcher = context.socket(zmq.REQ)
    watcher.connect(c + "end")

    def end():
        watcher.send(b"")
        watcher.recv()
        watcher.close()
        context.term()

    thread = threading.Thread(target=end)
    thread.start()
    try:
        zmq.proxy(frontend, backend)
    except zmq.ContextTerminated:
        frontend.close(linger=0)
        backend.close(linger=0)
    thread.join()
    return "ended"


def subscriber(a, b, c):
    context = zmq.Context()
    socket = context.socket(zmq.SUB)
    socket.connect(b)
    socket.subscribe("B")
    found = [[part.decode() for part in socket.recv_multipart()] for _ in range(3)]
    done = context.socket(zmq.PUSH)
    done.connect(c)
    done.send(b"")
    end = context.socket(zmq.REP)
    end.bind(c + "end")
    end.recv()
    end.send(b"")
    context.destroy()
    return found
