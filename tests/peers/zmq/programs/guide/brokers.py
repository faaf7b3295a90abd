"""Requests through a broker that is a loop with a poller, then through zmq.proxy()."""
import threading

import zmq


def client(a, b, c, d):
    context = zmq.Context()
    replies = []
    for url in (a, c):
        socket = context.socket(zmq.REQ)
        socket.connect(url)
        for request in range(5):
            socket.send_multipart([b"Hello", b"%d" % request])
            replies.append(b" ".join(socket.recv_multipart()).decode())
        socket.close()
    context.term()
    return replies


def worker(a, b, c, d):
    context = zmq.Context()
    for url in (b, d):
        socket = context.socket(zmq.REP)
        socket.connect(url)
        for _ in range(5):
            socket.send_multipart([b"World", *socket.recv_multipart()[1:]])
        socket.close()
    context.term()


def broker(a, b, c, d):
    context = zmq.Context()
    frontend = context.socket(zmq.ROUTER)
    backend = context.socket(zmq.DEALER)
    frontend.bind(a)
    backend.bind(b)
    poller = zmq.Poller()
    poller.register(frontend, zmq.POLLIN)
    poller.register(backend, zmq.POLLIN)
    replies = 0
    while replies < 5:
        socks = dict(poller.poll())
        if socks.get(frontend) == zmq.POLLIN:
            message = frontend.recv()
            more = frontend.getsockopt(zmq.RCVMORE)
            while more:
                backend.send(message, zmq.SNDMORE)
                message = frontend.recv()
                more = frontend.getsockopt(zmq.RCVMORE)
            backend.send(message)
        if socks.get(backend) == zmq.POLLIN:
            frontend.send_multipart(backend.recv_multipart())
            replies += 1
    frontend.close()
    backend.close()
    context.term()


def queue(a, b, c, d):
    context = zmq.Context()
    frontend = context.socket(zmq.ROUTER)
    backend = context.socket(zmq.DEALER)
    done = context.socket(zmq.PAIR)
    frontend.bind(c)
    backend.bind(d)
    done.bind("inproc://capture")
    capture = context.socket(zmq.PAIR)
    capture.connect("inproc://capture")
    threading.Thread(target=stop, args=(context, done)).start()
    try:
        zmq.proxy(frontend, backend, capture)
    except zmq.ContextTerminated:
        frontend.close()
        backend.close()
        capture.close()
        return "terminated"


def stop(context, done):
    for _ in range(10):
        done.recv_multipart()
    done.close()
    context.term()
