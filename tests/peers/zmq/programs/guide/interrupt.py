"""^C ends a program that waits, cleanly."""
import sys

import zmq

if __name__ == "__main__":
    context = zmq.Context()
    socket = context.socket(zmq.REP)
    socket.bind("inproc://nobody")
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    waits = {"recv": socket.recv, "poll": poller.poll, "socket": socket.poll}
    try:
        print("waits", flush=True)
        waits[sys.argv[1]]()
    except KeyboardInterrupt:
        print("W: interrupt received, stopping")
    finally:
        socket.close()
        context.term()
    print(zmq.__name__)
