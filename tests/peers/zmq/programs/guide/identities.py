"""A ROUTER sees identities; it sends to REQ workers and to DEALER workers by them."""
import zmq


def router(a):
    context = zmq.Context()
    sink = context.socket(zmq.ROUTER)
    sink.bind(a)
    names = []
    for _ in range(2):
        identity, empty, body = sink.recv_multipart()
        names.append([len(identity), identity[:1] == b"\0", body.decode()])
        sink.send_multipart([identity, b"", b"seen"])
    count, ended = 0, 0
    while ended < 2:                    # REQ workers ask for work
        address, empty, ready = sink.recv_multipart()
        if count < 10:
            sink.send_multipart([address, b"", b"Work harder"])
            count += 1
        else:
            sink.send_multipart([address, b"", b"Fired!"])
            ended += 1
    addresses = sorted(sink.recv_multipart()[0] for _ in range(2))
    for number in range(10):            # DEALER workers are sent to
        sink.send_multipart([addresses[number % 2], b"workload"])
    for address in addresses:
        sink.send_multipart([address, b"END"])
    sink.close()
    context.term()
    return sorted(names)


def anonymous(a):
    context = zmq.Context()
    first = context.socket(zmq.REQ)
    first.connect(a)
    first.send(b"ROUTER uses a generated id")
    assert first.recv() == b"seen"
    second = context.socket(zmq.REQ)
    second.setsockopt(zmq.IDENTITY, b"PEER2")
    second.connect(a)
    second.send(b"ROUTER uses ours")
    assert second.recv() == b"seen"
    done = []
    for socket in (first, second):      # they turn workers, both at once
        socket.send(b"Hi Boss")
    counts = {first: 0, second: 0}
    while len(done) < 2:
        ready, _, _ = zmq.select([s for s in counts if s not in done], [], [])
        for socket in ready:
            if socket.recv() == b"Fired!":
                done.append(socket)
            else:
                counts[socket] += 1
                socket.send(b"Hi Boss")
    dealers = [context.socket(zmq.DEALER) for _ in range(2)]
    for dealer, name in zip(dealers, "AB", strict=True):
        dealer.setsockopt_string(zmq.IDENTITY, name)
        dealer.connect(a)
        dealer.send(b"here")
    got = []
    for dealer in dealers:
        count = 0
        while dealer.recv() != b"END":
            count += 1
        got.append(count)
    context.destroy()
    return [sum(counts.values()), got]
