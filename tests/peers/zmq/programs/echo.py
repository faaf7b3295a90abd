"""A server that echoes, and clients, in tornado's loop. argv: server, or client and its port."""
import sys

import zmq
from tornado.ioloop import IOLoop, PeriodicCallback
from zmq.eventloop.zmqstream import ZMQStream

CLIENTS, TURNS, BIG = 5, 100, 200_000


class Server:
    def __init__(self):
        socket = zmq.Context.instance().socket(zmq.ROUTER)
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        self.seen = self.ticks = 0
        self.stream = ZMQStream(socket)
        self.stream.on_recv_stream(self.echo)
        self.timer = PeriodicCallback(self.tick, 1)
        self.timer.start()
        print(port, flush=True)

    def tick(self):
        self.ticks += 1

    def echo(self, stream, parts):
        if parts[1:] == [b"END"]:
            self.end()
            return
        self.seen += 1
        stream.send_multipart(parts)

    def end(self):
        self.timer.stop()
        self.stream.close()
        IOLoop.current().stop()
        print("echoed", self.seen, self.ticks > 0)


class Client:
    left = CLIENTS

    def __init__(self, number, port):
        socket = zmq.Context.instance().socket(zmq.DEALER)
        socket.connect(f"tcp://127.0.0.1:{port}")
        self.number = number
        self.turn = self.sent = 0
        self.stream = ZMQStream(socket)
        self.stream.on_send(self.count)
        self.stream.on_recv(self.answer)
        self.ask()

    def count(self, parts, status):
        self.sent += 1

    def ask(self):
        self.stream.send_multipart([b"%d" % self.number, b"%d" % self.turn, bytes(BIG)])

    def answer(self, parts):
        assert parts == [b"%d" % self.number, b"%d" % self.turn, bytes(BIG)], parts[:2]
        self.turn += 1
        if self.turn < TURNS:
            self.ask()
            return
        assert self.sent == TURNS
        Client.left -= 1
        if not Client.left:
            self.stream.send(b"END")
            self.stream.flush()
            print("asked", CLIENTS * TURNS)
            IOLoop.current().stop()
        self.stream.close()


async def begin():
    if sys.argv[1] == "server":
        Server()
    else:
        for number in range(CLIENTS):
            Client(number, sys.argv[2])


loop = IOLoop()
loop.add_callback(begin)
loop.start()
loop.close()
zmq.Context.instance().term()
