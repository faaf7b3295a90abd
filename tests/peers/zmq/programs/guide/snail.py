"""A subscriber that is too late ends itself."""
import time

import zmq

LATE = 0.2      # seconds


def publisher(a, b):
    context = zmq.Context()
    socket = context.socket(zmq.PUB)
    socket.bind(a)
    end = context.socket(zmq.PULL)
    end.bind(b)
    while not end.poll(1):
        socket.send_string(str(time.monotonic()))
    context.destroy(linger=0)
    return "ended"


def subscriber(a, b):
    context = zmq.Context()
    socket = context.socket(zmq.SUB)
    socket.subscribe("")
    socket.connect(a)
    in_time = 0
    while True:
        clock = float(socket.recv_string())
        if time.monotonic() - clock > LATE:
            break
        in_time += 1
        if in_time == 20:
            time.sleep(2 * LATE)        # what it does with this one takes long
    end = context.socket(zmq.PUSH)
    end.connect(b)
    end.send(b"gone")
    socket.close(linger=0)
    end.close()
    context.term()
    return "subscriber cannot keep up, aborting"
