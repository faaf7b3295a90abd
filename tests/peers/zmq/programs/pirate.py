"""A client that gives up a server that went away, and asks it anew when it is back."""
import itertools
import threading

import zmq

context = zmq.Context()


def serve(port, crashes, ready):
    server = context.socket(zmq.REP)
    while True:
        try:
            server.bind(f"tcp://127.0.0.1:{port}")
            break
        except zmq.ZMQError as error:
            if error.errno != zmq.EADDRINUSE:
                raise
    ports.append(server.getsockopt(zmq.LAST_ENDPOINT).decode().rsplit(":", 1)[1])
    ready.set()
    while True:
        request = server.recv()
        if request == b"3" and crashes:
            break                        # it crashes in the middle of this one
        server.send(request)
        if request == b"6":
            break
    server.close(linger=1000)


ports, ready = [], threading.Event()
first = threading.Thread(target=serve, args=("*", True, ready))
first.start()
ready.wait()
url = f"tcp://127.0.0.1:{ports[0]}"
client = context.socket(zmq.REQ)
client.connect(url)
second = threading.Thread(target=serve, args=(ports[0], False, ready))
for sequence in itertools.islice(itertools.count(1), 6):
    request = str(sequence).encode()
    client.send(request)
    while True:
        if client.poll(300) & zmq.POLLIN:
            reply = client.recv()
            print("server replied", int(reply))
            break
        if not second.ident:
            print("no response from server")
        client.setsockopt(zmq.LINGER, 0)
        client.close()
        if not second.ident:
            first.join()
            ready.clear()
            second.start()
            ready.wait()
        client = context.socket(zmq.REQ)
        client.connect(url)
        client.send(request)
second.join()
client.close(0)
context.term()
