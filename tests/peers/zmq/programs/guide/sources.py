"""Reading two sockets: without waiting, and with a poller."""
import time

import zmq


def tasks(a, b):
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.bind(a)
        for number in range(10):
            socket.send(b"task %d" % number)


def weather(a, b):
    with zmq.Context() as context, context.socket(zmq.XPUB) as socket:
        socket.bind(b)
        socket.recv()
        for number in range(10):
            socket.send(b"10001 %d" % number)


def reader(a, b):
    context = zmq.Context()
    receiver = context.socket(zmq.PULL)
    receiver.connect(a)
    subscriber = context.socket(zmq.SUB)
    subscriber.connect(b)
    subscriber.setsockopt(zmq.SUBSCRIBE, b"10001")
    found = {receiver: [], subscriber: []}
    while any(len(got) < 5 for got in found.values()):
        for socket, got in found.items():
            try:
                while len(got) < 5:
                    got.append(socket.recv(zmq.DONTWAIT).decode())
            except zmq.Again:
                pass
        time.sleep(0.001)
    poller = zmq.Poller()
    poller.register(receiver, zmq.POLLIN)
    poller.register(subscriber, zmq.POLLIN)
    while any(len(got) < 10 for got in found.values()):
        for socket, _ in poller.poll():
            found[socket].append(socket.recv().decode())
    context.destroy()
    return [found[receiver][::9], found[subscriber][::9]]
