"""A publisher that starts when both subscribers are there; topics are parts of their own."""
import zmq


def publisher(a, b):
    context = zmq.Context()
    socket = context.socket(zmq.PUB)
    socket.sndhwm = 1_100_000
    socket.bind(a)
    service = context.socket(zmq.REP)
    service.bind(b)
    there = 0
    while there < 2:
        socket.send(b"HELLO")
        if service.poll(1):
            service.recv()
            service.send(b"")
            there += 1
    for _ in range(1000):
        socket.send_multipart([b"A", b"we do not want this"])
        socket.send_multipart([b"B", b"rhubarb"])
    socket.send_multipart([b"END", b""])
    socket.close()
    service.close()
    context.term()


def subscriber(a, b):
    context = zmq.Context()
    socket = context.socket(zmq.SUB)
    socket.connect(a)
    socket.subscribe("B")
    socket.subscribe("END")
    socket.subscribe("HELLO")
    client = context.socket(zmq.REQ)
    client.connect(b)
    assert socket.recv_multipart() == [b"HELLO"]
    client.send(b"")
    client.recv()
    count = 0
    while True:
        topic, *body = socket.recv_multipart()
        if topic == b"END":
            break
        count += topic == b"B"
    socket.close()
    client.close()
    context.term()
    return count
