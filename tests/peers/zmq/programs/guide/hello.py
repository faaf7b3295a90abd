"""A client asks, a server answers."""
import zmq


def server(a):
    with zmq.Context() as context, context.socket(zmq.REP) as socket:
        socket.bind(a)
        for _ in range(10):
            message = socket.recv()
            socket.send(message.replace(b"Hello", b"World"))


def client(a):
    with zmq.Context() as context, context.socket(zmq.REQ) as socket:
        socket.connect(a)
        replies = []
        for request in range(10):
            socket.send(b"Hello %d" % request)
            replies.append(socket.recv().decode())
        return replies
