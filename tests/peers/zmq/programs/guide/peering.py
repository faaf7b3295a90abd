"""Two clusters: a broker whose workers are busy sends work to the other's broker."""
import zmq


def client(a, b, c):
    context = zmq.Context()
    socket = context.socket(zmq.REQ)
    socket.connect(a)
    replies = []
    for task in range(4):
        socket.send(b"task %d" % task)
        replies.append(socket.recv().decode())
    socket.close()
    context.term()
    return replies


def busy(a, b, c):
    """The client's broker: it has no workers, and waits until the other says that it has."""
    context = zmq.Context()
    frontend = context.socket(zmq.ROUTER)
    frontend.bind(a)
    cloud = context.socket(zmq.ROUTER)
    cloud.identity = b"DC1"
    cloud.setsockopt(zmq.ROUTER_MANDATORY, 1)
    cloud.connect(b)
    state = context.socket(zmq.SUB)
    state.subscribe("")
    state.connect(c)
    poller = zmq.Poller()
    poller.register(cloud, zmq.POLLIN)
    poller.register(state, zmq.POLLIN)
    peer, capacity, replies = None, 0, 0
    while replies < 4:
        events = dict(poller.poll())
        if state in events:
            peer, free = state.recv_multipart()
            try:
                cloud.send_multipart([peer, b"", b"HELLO"])
                capacity = int(free)
            except zmq.ZMQError as error:       # it will say so again
                assert error.errno == zmq.EHOSTUNREACH
        if cloud in events:
            peer_name, client_name, reply = cloud.recv_multipart()
            frontend.send_multipart([client_name, b"", reply])
            replies += 1
        if capacity and frontend.poll(0):
            client_name, empty, request = frontend.recv_multipart()
            cloud.send_multipart([peer, client_name, request])
            capacity -= 1
        poller.register(frontend, zmq.POLLIN if capacity else 0)
    cloud.send_multipart([peer, b"", b"END"])
    for socket in (frontend, cloud, state):
        socket.close()
    context.term()
    return replies


def idle(a, b, c):
    """The other broker, whose worker is a REQ socket in this process."""
    context = zmq.Context()
    cloud = context.socket(zmq.ROUTER)
    cloud.identity = b"DC2"
    cloud.bind(b)
    state = context.socket(zmq.PUB)
    state.bind(c)
    local = context.socket(zmq.ROUTER)
    local.bind("inproc://local")
    worker = context.socket(zmq.REQ)
    worker.connect("inproc://local")
    worker.send(b"READY")
    name, empty, ready = local.recv_multipart()
    done = 0
    while True:
        if not cloud.poll(10):
            state.send_multipart([b"DC2", b"1"])
            continue
        peer, client_name, request = cloud.recv_multipart()
        if request == b"END":
            break
        if request == b"HELLO":
            continue
        local.send_multipart([name, b"", client_name, b"", request])
        worker_client, empty, work = worker.recv_multipart()
        worker.send_multipart([worker_client, b"", work + b" done in DC2"])
        name, empty, client_name, empty, reply = local.recv_multipart()
        cloud.send_multipart([peer, client_name, reply])
        done += 1
    context.destroy(linger=0)
    return done
