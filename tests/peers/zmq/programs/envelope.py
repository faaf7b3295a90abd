"""A publisher whose topic is a part of its own; a subscriber that takes one of two."""
import zmq
import zmq.devices
from zmq.utils import z85

with zmq.Context() as context, context.socket(zmq.XPUB) as publisher, \
        context.socket(zmq.SUB) as subscriber:
    port = publisher.bind_to_random_port("tcp://127.0.0.1")
    subscriber.setsockopt(zmq.SUBSCRIBE, b"B")
    subscriber.setsockopt_string(zmq.SUBSCRIBE, "")
    subscriber.unsubscribe("")
    subscriber.connect(f"tcp://127.0.0.1:{port}")
    print(publisher.recv())
    for number in range(3):
        publisher.send_multipart([b"A", b"not wanted"])
        publisher.send_multipart([b"B", b"wanted %d" % number])
    for _ in range(3):
        address, contents = subscriber.recv_multipart()
        print(f"[{address.decode()}] {contents.decode()}")
    try:
        subscriber.recv(flags=zmq.NOBLOCK)
    except zmq.ZMQError as error:
        print(error.errno == zmq.EAGAIN, error)
    print(z85.decode(z85.encode(b"12345678")), zmq.devices.ThreadDevice.__name__)
