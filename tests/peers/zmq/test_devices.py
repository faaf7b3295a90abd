"""proxy(), devices in threads and processes, monitored queues, of both modules."""

import socket
import struct
import subprocess
import sys
import threading

import pytest
from machine import has_ipv6

import mqcore.zmq as ours


def run(z, function, *args):
    """In a thread, until the context ends: what it returned or raised."""
    found = []

    def body():
        try:
            found.append(function(*args))
        except z.ContextTerminated:
            found.append("terminated")
        for one in args:
            if hasattr(one, "close"):
                one.close(0)

    thread = threading.Thread(target=body)
    thread.start()
    return thread, found


@pytest.mark.parametrize("kinds", [("ROUTER", "DEALER"), ("PULL", "PUSH"), ("PULL", "PUB")])
@pytest.mark.parametrize("captured", [False, True])
def test_proxy(z, kinds, captured):
    context = z.Context()
    ends = [context.socket(getattr(z, kind)) for kind in kinds]
    for end, name in zip(ends, ("front", "back"), strict=True):
        end.linger = 0
        end.bind(f"inproc://{name}")
    asking = context.socket(z.REQ if kinds[0] == "ROUTER" else z.PUSH)
    asking.connect("inproc://front")
    answering = context.socket({"DEALER": z.REP, "PUSH": z.PULL, "PUB": z.SUB}[kinds[1]])
    answering.rcvtimeo = asking.rcvtimeo = 5000
    if kinds[1] == "PUB":
        answering.subscribe("")
    answering.connect("inproc://back")
    args = list(ends)
    if captured:
        watching = context.socket(z.PULL)
        watching.rcvtimeo = 5000
        watching.bind("inproc://capture")
        args.append(context.socket(z.PUSH))
        args[-1].connect("inproc://capture")
    thread, found = run(z, z.proxy, *args)
    if kinds[1] == "PUB":
        while not answering.poll(20):
            asking.send(b"first")
        answering.recv()
        while answering.poll(50):
            answering.recv()
        while captured and watching.poll(50):
            watching.recv()
    asking.send_multipart([b"a", b"b"])
    assert answering.recv_multipart() == [b"a", b"b"]
    if captured:
        assert watching.recv_multipart()[-2:] == [b"a", b"b"]
    if kinds[0] == "ROUTER":
        answering.send(b"back")
        assert asking.recv() == b"back"
        if captured:
            assert watching.recv_multipart()[-1] == b"back"
    for one in (asking, answering, *([watching] if captured else [])):
        one.close(0)
    context.term()
    thread.join()
    assert found == ["terminated"]


def test_a_capture_that_comes_late(z):
    """A PUSH keeps libzmq's proxy waiting until somebody reads the copies. Ours goes on."""
    context = z.Context()
    front, back, capture, asking, answering, watching = (
        context.socket(getattr(z, kind)) for kind in ("PULL", "PUSH", "PUSH", "PUSH", "PULL",
                                                      "PULL"))
    for end, name in ((front, "front"), (back, "back"), (capture, "capture")):
        end.bind(f"inproc://{name}")
    asking.connect("inproc://front")
    answering.connect("inproc://back")
    thread, found = run(z, z.proxy, front, back, capture)
    asking.send(b"x")
    if z is ours:
        assert answering.recv() == b"x"
        watching.connect("inproc://capture")
        asking.send(b"y")
        assert (answering.recv(), watching.recv()) == (b"y", b"y")
    else:
        assert not answering.poll(20)
        watching.connect("inproc://capture")
        assert (answering.recv(), watching.recv()) == (b"x", b"x")
    for one in (asking, answering, watching):
        one.close(0)
    context.term()
    thread.join()
    assert found == ["terminated"]


@pytest.mark.parametrize("kinds", [("ROUTER", "DEALER"), ("PAIR", "PAIR")])
def test_proxy_steerable(z, kinds):
    context = z.Context()
    front, back, control = (context.socket(getattr(z, kind)) for kind in (*kinds, "PAIR"))
    for end, name in ((front, "front"), (back, "back"), (control, "control")):
        end.bind(f"inproc://{name}")
    left, right, steering = (context.socket(kind) for kind in
                             (z.REQ if kinds[0] == "ROUTER" else z.PAIR,
                              z.REP if kinds[0] == "ROUTER" else z.PAIR, z.PAIR))
    for end, name in ((left, "front"), (right, "back"), (steering, "control")):
        end.rcvtimeo = 5000
        end.connect(f"inproc://{name}")
    thread, found = run(z, z.proxy_steerable, front, back, None, control)
    left.send(b"there")
    assert right.recv() == b"there"
    right.send(b"back")
    assert left.recv() == b"back"
    steering.send(b"STATISTICS")
    numbers = [struct.unpack("=Q", part)[0] for part in steering.recv_multipart()]
    assert len(numbers) == 8
    assert (numbers[0] > 0, numbers[2] > 0, numbers[4] > 0, numbers[6] > 0) == (True,) * 4
    if z is ours:       # libzmq 4.3.5 stops for good after one RESUME in a hundred
        steering.send(b"PAUSE")
        steering.send(b"STATISTICS")
        steering.recv_multipart()
        left.send(b"waits")
        assert right.poll(50) == 0
        steering.send(b"RESUME")
        assert right.recv() == b"waits"
    steering.send(b"TERMINATE")
    thread.join()
    assert found == [0]
    for end in (left, right, steering):
        end.close(0)
    context.term()


@pytest.mark.parametrize("kinds", [("ROUTER", "DEALER"), ("PULL", "PUSH")])
def test_monitored_queue(z, kinds):
    context = z.Context()
    ends = [context.socket(getattr(z, kind)) for kind in (*kinds, "PUSH")]
    for end, name in zip(ends, ("in", "out", "mon"), strict=True):
        end.bind(f"inproc://{name}")
    asking, answering, watching = (context.socket(kind) for kind in (
        (z.REQ, z.REP, z.PULL) if kinds[0] == "ROUTER" else (z.PUSH, z.PULL, z.PULL)))
    for end, name in ((asking, "in"), (answering, "out"), (watching, "mon")):
        end.rcvtimeo = 5000
        end.connect(f"inproc://{name}")
    from importlib import import_module

    queue = import_module(f"{z.__name__}.devices").monitored_queue
    thread, found = run(z, queue, *ends, b"forth", b"back")
    asking.send(b"q")
    assert answering.recv() == b"q"
    told = watching.recv_multipart()
    assert (told[0], told[-1]) == (b"forth", b"q")
    if kinds[0] == "ROUTER":
        answering.send(b"a")
        assert asking.recv() == b"a"
        told = watching.recv_multipart()
        assert (told[0], told[-1]) == (b"back", b"a")
    for one in (asking, answering, watching):
        one.close(0)
    context.term()
    thread.join()
    assert found == ["terminated"]


@pytest.mark.parametrize("where", ["Thread", "Process"])
@pytest.mark.parametrize("what", ["Device", "Proxy", "MonitoredQueue", "ProxySteerable"])
def test_devices(new, z, part, where, what):
    devices = part("devices")
    kind = getattr(devices, f"{where}{what}")
    args = (z.QUEUE, z.ROUTER, z.DEALER) if what == "Device" else (z.ROUTER, z.DEALER, z.PUB)
    if what == "ProxySteerable":
        args += (z.PAIR,)
    device = kind(*args)
    if where == "Thread":
        context = z.Context()
        device.context_factory = lambda: context
    # pyzmq lets go of a reserved port: these are none that an outgoing connection gets meanwhile
    where_to = ("tcp://127.0.0.1", 27_000, 32_000)
    if what != "Device":
        device.bind_mon_to_random_port(*where_to)
    if what == "ProxySteerable":
        steer = device.bind_ctrl_to_random_port(*where_to)
    front = device.bind_in_to_random_port(*where_to)
    back = device.bind_out_to_random_port(*where_to)
    device.setsockopt_in(z.LINGER, 0)
    device.setsockopt_out(z.LINGER, 0)
    device.start()
    try:
        req, rep = new("REQ"), new("REP")
        req.connect(f"tcp://127.0.0.1:{front}")
        rep.connect(f"tcp://127.0.0.1:{back}")
        req.send(b"through")
        assert rep.recv() == b"through"
        rep.send(b"and back")
        assert req.recv() == b"and back"
        if what == "ProxySteerable":
            control = new("PAIR")
            control.connect(f"tcp://127.0.0.1:{steer}")
            control.send(b"TERMINATE")
            device.join(5)
            assert where == "Process" or device.done
    finally:
        if where == "Process":
            device.launcher.terminate()
            device.launcher.join()
        else:
            context.term()
            device.join(5)


def test_one_socket(new, z, part):
    """An out_type of -1: what comes in goes out by the same socket."""
    device = part("devices").ThreadDevice(z.QUEUE, z.REP, -1)
    context = z.Context()
    device.context_factory = lambda: context
    port = device.bind_out_to_random_port("tcp://127.0.0.1")
    device.setsockopt_in(z.LINGER, 0)
    device.start()
    req = new("REQ")
    req.connect(f"tcp://127.0.0.1:{port}")
    for word in (b"one", b"two"):
        req.send(word)
        assert req.recv() == word
    context.term()
    device.join(5)


def test_ports_are_reserved_once(z, part):
    device = part("devices").Device(z.QUEUE, z.ROUTER, z.DEALER)
    found, free = set(), range(21000, 21003)
    both = (device.bind_in_to_random_port, device.bind_out_to_random_port)
    with pytest.raises(z.ZMQBindError):
        while True:
            port = both[len(found) % 2]("tcp://127.0.0.1", min_port=free.start, max_port=free.stop)
            assert port in free and port not in found
            found.add(port)
    assert found


KEPT = """
import multiprocessing, socket, sys
import mqcore.zmq as zmq
from mqcore.zmq.devices import ProcessDevice

def take():
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))

if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    device = ProcessDevice(zmq.QUEUE, zmq.REP, -1)
    port = device.bind_in_to_random_port("tcp://127.0.0.1")
    device.start()
    try:
        take()
    except OSError as error:
        print("kept:", error)
    device.launcher.terminate()
    device.join()
    take()
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_port_is_kept_while_the_process_starts(method, tmp_path):
    program = tmp_path / "kept.py"      # a spawned process reads it again
    program.write_text(KEPT)
    done = subprocess.run([sys.executable, program, method], capture_output=True, text=True,
                          timeout=60, check=True)
    assert "kept: " in done.stdout


@pytest.mark.parametrize(("first", "second", "overlap"), [
    ("127.0.0.1", "127.0.0.1", True), ("127.0.0.1", "*", True), ("*", "127.0.0.1", True),
    ("127.0.0.1", "127.0.0.2", False)])
def test_two_ends_do_not_reserve_one_port_by_two_names(first, second, overlap):
    from mqcore.zmq.devices import Device

    device = Device(ours.QUEUE, ours.ROUTER, ours.DEALER)
    port = device.bind_in_to_random_port(f"tcp://{first}")
    only = {"min_port": port, "max_port": port + 1}
    if overlap:
        with pytest.raises(ours.ZMQBindError):
            device.bind_out_to_random_port(f"tcp://{second}", **only)
    else:
        assert device.bind_out_to_random_port(f"tcp://{second}", **only) == port


@pytest.mark.parametrize("host", ["127.0.0.1", "*", pytest.param("[::1]", marks=pytest.mark.skipif(
    not has_ipv6(), reason="no IPv6 on this machine"))])
def test_a_reserved_port_is_kept_from_others(host):
    """Outgoing connections and sockets that ask for any port do not get it, and the device does."""
    from mqcore.zmq.devices.basedevice import End

    end = End(ours.PULL)
    port = end.reserve(f"tcp://{host}", set())
    family = socket.AF_INET6 if host == "[::1]" else socket.AF_INET
    with socket.socket(family) as other:
        with pytest.raises(OSError):
            other.bind((host.strip("[]*"), port))
    with ours.Context() as context:
        end.make(context).close(0)
    with socket.socket(family) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((host.strip("[]*"), port))
