"""Tasks to workers, results to a sink, which ends the workers when it has all."""
import zmq

TASKS = 60


def ventilator(a, b, c):
    context = zmq.Context()
    sender = context.socket(zmq.PUSH)
    sender.bind(a)
    sink = context.socket(zmq.PUSH)
    sink.connect(b)
    sink.send(b"0")
    for task in range(TASKS):
        sender.send_string(str(task))
    sender.close()
    sink.close()
    context.term()


def worker(a, b, c):
    context = zmq.Context()
    receiver = context.socket(zmq.PULL)
    receiver.connect(a)
    sender = context.socket(zmq.PUSH)
    sender.connect(b)
    controller = context.socket(zmq.SUB)
    controller.connect(c)
    controller.setsockopt(zmq.SUBSCRIBE, b"")
    poller = zmq.Poller()
    poller.register(receiver, zmq.POLLIN)
    poller.register(controller, zmq.POLLIN)
    while True:
        socks = dict(poller.poll())
        if socks.get(receiver) == zmq.POLLIN:
            sender.send_string(str(int(receiver.recv_string()) ** 2))
        if socks.get(controller) == zmq.POLLIN:
            break
    context.destroy()
    return "killed"


def sink(a, b, c):
    context = zmq.Context()
    receiver = context.socket(zmq.PULL)
    receiver.bind(b)
    controller = context.socket(zmq.XPUB)
    controller.setsockopt(zmq.XPUB_VERBOSE, 1)
    controller.bind(c)
    total = sum(int(receiver.recv()) for _ in range(TASKS + 1))
    for _ in range(2):
        assert controller.recv() == b"\1"
    controller.send(b"KILL")
    receiver.close()
    controller.close()
    context.term()
    return total
