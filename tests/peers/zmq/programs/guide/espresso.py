"""A proxy with a listener that sees all that goes through, subscriptions too."""
import threading

import zmq


def publisher(a, b, c):
    context = zmq.Context()
    socket = context.socket(zmq.XPUB)
    socket.bind(a)
    wanted = {socket.recv()[1:].decode(), socket.recv()[1:].decode()}
    for number in range(4):
        for topic in (b"A", b"B", b"C"):
            socket.send(topic + b"-%d" % number)
    gone = {socket.recv(), socket.recv()}
    socket.close()
    context.term()
    return [sorted(wanted), gone == {b"\0A", b"\0B"}]


def subscriber(a, b, c):
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.connect(b)
        socket.setsockopt(zmq.SUBSCRIBE, b"A")
        socket.setsockopt(zmq.SUBSCRIBE, b"B")
        found = [socket.recv().decode() for _ in range(8)]
    with zmq.Context() as context, context.socket(zmq.PUSH) as done:
        done.connect(c)
        done.send(b"")
    return found


def proxy(a, b, c):
    context = zmq.Context()
    pipe, listener = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    pipe.bind("inproc://pipe")
    listener.connect("inproc://pipe")
    heard = []
    done = context.socket(zmq.PULL)
    done.bind(c)

    def listen():
        while sum(not word.startswith(("\0", "\1")) for word in heard) < 8 or \
                sum(word.startswith("\0") for word in heard) < 2:
            heard.append(listener.recv().decode())
        done.recv()
        done.close()
        listener.close()
        context.term()

    thread = threading.Thread(target=listen)
    thread.start()
    subscriber = context.socket(zmq.XSUB)
    subscriber.connect(a)
    publisher = context.socket(zmq.XPUB)
    publisher.bind(b)
    try:
        zmq.proxy(subscriber, publisher, pipe)
    except zmq.ContextTerminated:
        for socket in (subscriber, publisher, pipe):
            socket.close(linger=0)
    thread.join()
    return sorted(heard)
