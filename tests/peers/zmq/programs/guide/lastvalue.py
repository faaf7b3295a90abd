"""A proxy that keeps each topic's last value and sends it to whoever subscribes."""
import zmq


def publisher(a, b, c):
    context = zmq.Context()
    socket = context.socket(zmq.XPUB)
    socket.bind(a)
    assert socket.recv() == b"\1"       # the cache wants everything
    for number in range(100):
        socket.send_multipart([b"%03d" % (number % 10), b"value %d" % number])
    socket.close()
    context.term()


def cache(a, b, c):
    context = zmq.Context()
    frontend = context.socket(zmq.SUB)
    frontend.connect(a)
    frontend.subscribe("")
    backend = context.socket(zmq.XPUB)
    backend.setsockopt(zmq.XPUB_VERBOSE, 1)
    ready = context.socket(zmq.PUSH)
    ready.bind(c)
    values, told = {}, 0
    while values.get(b"009") != b"value 99":
        topic, value = frontend.recv_multipart()
        values[topic] = value
    backend.bind(b)
    ready.send(b"")
    while told < 2:
        event = backend.recv()
        if event[:1] == b"\1":
            backend.send_multipart([event[1:], values[event[1:]]])
            told += 1
    for socket in (frontend, backend, ready):
        socket.close()
    context.term()
    return len(values)


def subscriber(a, b, c):
    context = zmq.Context()
    ready = context.socket(zmq.PULL)
    ready.connect(c)
    ready.recv()
    found = []
    for _ in range(2):                  # the second of the same topic is told as well
        socket = context.socket(zmq.SUB)
        socket.subscribe("007")
        socket.connect(b)
        found.append([part.decode() for part in socket.recv_multipart()])
        socket.close()
    ready.close()
    context.term()
    return found
