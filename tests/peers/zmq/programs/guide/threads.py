"""A server with threads for workers, and a relay from thread to thread."""
import threading

import zmq


def work(context, url):
    socket = context.socket(zmq.REP)
    socket.connect(url)
    try:
        while True:
            socket.send(socket.recv() + b" World")
    except zmq.ContextTerminated:
        socket.close()


def server(a):
    context = zmq.Context()
    clients = context.socket(zmq.ROUTER)
    clients.bind(a)
    workers = context.socket(zmq.DEALER)
    workers.bind("inproc://workers")
    threads = [threading.Thread(target=work, args=(context, "inproc://workers")) for _ in range(3)]
    for thread in threads:
        thread.start()
    poller = zmq.Poller()
    poller.register(clients)
    poller.register(workers)
    poller.modify(clients, zmq.POLLIN)
    poller.modify(workers, zmq.POLLIN)
    replies = 0
    while replies < 12:
        for socket, _ in poller.poll():
            other = workers if socket is clients else clients
            other.send_multipart(socket.recv_multipart())
            replies += socket is workers
    clients.close()
    workers.close()
    context.term()
    for thread in threads:
        thread.join()
    return replies


def client(a):
    context = zmq.Context()
    sockets = [context.socket(zmq.REQ) for _ in range(4)]
    replies = set()
    for round_ in range(3):
        for socket in sockets:
            if round_ == 0:
                socket.connect(a)
            socket.send(b"%d" % round_)
        replies.update(socket.recv().decode() for socket in sockets)
    context.destroy()
    return sorted(replies)


def relay(a):
    context = zmq.Context.instance()

    def step1():
        sender = context.socket(zmq.PAIR)
        sender.connect("inproc://step2")
        sender.send(b"ready 1")
        sender.close()

    def step2():
        receiver = context.socket(zmq.PAIR)
        receiver.bind("inproc://step2")
        threading.Thread(target=step1).start()
        signal = receiver.recv()
        sender = context.socket(zmq.PAIR)
        sender.connect("inproc://step3")
        sender.send(signal + b" 2")
        receiver.close()
        sender.close()

    receiver = context.socket(zmq.PAIR)
    receiver.bind("inproc://step3")
    threading.Thread(target=step2).start()
    signal = receiver.recv()
    receiver.close()
    return signal.decode()
