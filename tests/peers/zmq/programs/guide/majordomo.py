"""Services by name: clients ask the broker for a service, workers register for one."""
import zmq

CLIENT, WORKER = b"MDPC01", b"MDPW01"
READY, REQUEST, REPLY, HEARTBEAT, DISCONNECT = (bytes([n]) for n in range(1, 6))


def broker(a):
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.linger = 1000
    socket.bind(a)
    services, waiting, names = {}, {}, {}
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    while True:
        if not dict(poller.poll(50)):
            for worker in names:
                socket.send_multipart([worker, b"", WORKER, HEARTBEAT])
            continue
        sender, empty, header, *body = socket.recv_multipart()
        if header == CLIENT:
            service, *request = body
            if service == b"mmi.service":
                code = b"200" if request[0] in services else b"404"
                socket.send_multipart([sender, b"", CLIENT, service, code])
                continue
            if service == b"END":
                for worker in names:
                    socket.send_multipart([worker, b"", WORKER, DISCONNECT])
                break
            waiting.setdefault(service, []).append([sender, *request])
        elif body[0] == READY:
            service = names[sender] = body[1]
            services.setdefault(service, []).append(sender)
        elif body[0] == REPLY:
            service = names[sender]
            client, empty, *reply = body[1:]
            socket.send_multipart([client, b"", CLIENT, service, *reply])
            services[service].append(sender)
        else:
            continue
        while waiting.get(service) and services.get(service):
            client, *request = waiting[service].pop(0)
            worker = services[service].pop(0)
            socket.send_multipart([worker, b"", WORKER, REQUEST, client, b"", *request])
    socket.close()
    context.term()


def worker(a):
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.connect(a)
    socket.send_multipart([b"", WORKER, READY, b"echo"])
    done = 0
    while True:
        empty, header, command, *body = socket.recv_multipart()
        if command == DISCONNECT:
            break
        if command == REQUEST:
            socket.send_multipart([b"", WORKER, REPLY, *body])
            done += 1
        elif command == HEARTBEAT:
            socket.send_multipart([b"", WORKER, HEARTBEAT])
    socket.close()
    context.term()
    return done > 0


def client(a):
    context = zmq.Context()
    socket = context.socket(zmq.REQ)
    socket.connect(a)
    replies = []
    for service, body in ((b"echo", b"Hello"), (b"echo", b"World"), (b"mmi.service", b"echo"),
                          (b"mmi.service", b"none")):
        socket.send_multipart([CLIENT, service, body])
        header, name, reply = socket.recv_multipart()
        assert header == CLIENT and name == service
        replies.append(reply.decode())
    socket.send_multipart([CLIENT, b"END"])
    socket.close()
    context.term()
    return replies
