"""zmq.green, of both modules: what waits lets other greenlets run. In processes of their own:
gevent keeps a hub and threads for as long as a process lives."""

import subprocess
import sys
import tempfile
import textwrap
from importlib.util import find_spec

import pytest

pytest.importorskip("gevent")
HOW = ["ours", pytest.param("real", marks=pytest.mark.skipif(find_spec("zmq") is None,
                                                             reason="no pyzmq"))]
BEGIN = """
import os, sys, time
import gevent
from gevent.event import Event
import zmq.green as zmq
"""
PATCHED = "from gevent import monkey; monkey.patch_all()\n" + BEGIN


def run(program, how="ours", begin=BEGIN):
    """Its output. Descriptors and threads of mqcore must be gone at its end."""
    command = [sys.executable, "-X", "dev", "-W", "error", "-W", "ignore:Monkey-patching",
               *(["-m", "mqcore.zmq"] if how == "ours" else [])]
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(begin + textwrap.dedent(program))
        file.flush()
        answer = subprocess.run([*command, file.name], capture_output=True, text=True, timeout=200)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "Traceback" not in answer.stderr, answer.stderr
    return answer.stdout


TALK = """
ticks = []
def tick():
    while True:
        gevent.sleep(0.005)
        ticks.append(1)
ticker = gevent.spawn(tick)
context = zmq.Context()
rep, req, pull, push = (context.socket(k) for k in (zmq.REP, zmq.REQ, zmq.PULL, zmq.PUSH))
port = rep.bind_to_random_port("tcp://127.0.0.1")
req.connect(f"tcp://127.0.0.1:{port}")
pull.bind("inproc://a")
push.connect("inproc://a")

def serve():
    for _ in range(3):
        message = rep.recv_multipart()
        gevent.sleep(0.03)
        rep.send_multipart([b"re", *message])
server = gevent.spawn(serve)
for n in range(3):
    before = len(ticks)
    req.send_json(n)
    print(req.recv_multipart(), len(ticks) > before)

waits = {
    "recv": pull.recv, "recv_string": pull.recv_string,
    "frame": lambda: pull.recv(copy=False).bytes, "multipart": pull.recv_multipart,
    "socket.poll": pull.poll,
    "poller": lambda: [(s is pull, e) for s, e in poller.poll()],
}
poller = zmq.Poller()
poller.register(pull, zmq.POLLIN)
for name, wait in waits.items():
    green = gevent.spawn_later(0.02, push.send, b"x")
    before = len(ticks)
    print(name, wait(), len(ticks) > before)
    green.join()
    if "poll" in name:
        pull.recv()

print(pull.poll(20), poller.poll(20), pull.poll(0))
r, w = os.pipe()
poller.register(r, zmq.POLLIN)
gevent.spawn_later(0.02, os.write, w, b"z")
print([(fd == r, events) for fd, events in poller.poll(5000)])
poller.unregister(r)

with gevent.Timeout(0.03, False):
    pull.recv()
    print("never")
waiting = gevent.spawn(pull.recv)
gevent.sleep(0.01)
waiting.kill()
push.send(b"for whoever comes next")
print(pull.recv())

proxied = [context.socket(k) for k in (zmq.ROUTER, zmq.DEALER)]
for s, name in zip(proxied, "fb"):
    s.bind(f"inproc://{name}")
device = gevent.spawn(zmq.device, zmq.QUEUE, *proxied)
asks, answers = context.socket(zmq.REQ), context.socket(zmq.REP)
asks.connect("inproc://f")
answers.connect("inproc://b")
gevent.spawn(lambda: answers.send(answers.recv() + b" answered"))
asks.send(b"through")
print(asks.recv())
device.kill()
ticker.kill()
for s in (rep, req, pull, push, asks, answers, *proxied):
    s.close(0)
context.term()
gevent.wait()
for fd in (r, w):
    os.close(fd)
"""


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("begin", [BEGIN, PATCHED], ids=["plain", "patched"])
def test_what_waits_lets_others_run(how, begin):
    said = run(TALK, how, begin)
    assert said == textwrap.dedent("""\
        [b're', b'0'] True
        [b're', b'1'] True
        [b're', b'2'] True
        recv b'x' True
        recv_string x True
        frame b'x' True
        multipart [b'x'] True
        socket.poll 1 True
        poller [(True, 1)] True
        0 [] 0
        [(True, 1)]
        b'for whoever comes next'
        b'through answered'
        """)


def test_many_greenlets_and_hubs():
    """Every one of many that wait gets its own; two threads, each with a hub, share a socket; and
    nothing is left."""
    assert run("""
        import threading
        def kept():
            return sorted(os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")
                          if n != "3" and os.path.exists(f"/proc/self/fd/{n}"))
        gevent.sleep(0.001)
        before = [one for one in kept() if "event" in one]
        context = zmq.Context()
        pull, push = context.socket(zmq.PULL), context.socket(zmq.PUSH)
        push.connect(f"tcp://127.0.0.1:{pull.bind_to_random_port('tcp://127.0.0.1')}")
        got = []
        greenlets = [gevent.spawn(lambda: got.append(int(pull.recv()))) for _ in range(200)]
        gevent.sleep(0.01)
        for n in range(200):
            push.send(b"%d" % n)
        gevent.joinall(greenlets)
        assert sorted(got) == list(range(200))
        ready = threading.Barrier(3)
        got.clear()
        def body():
            ready.wait()
            gevent.joinall([gevent.spawn(lambda: got.append(int(pull.recv()))) for _ in range(50)])
            gevent.get_hub().destroy(destroy_loop=True)
        threads = [threading.Thread(target=body) for _ in range(2)]
        for thread in threads:
            thread.start()
        ready.wait()
        for n in range(100):
            push.send(b"%d" % n)
        for thread in threads:
            thread.join()
        assert sorted(got) == list(range(100))
        # term() while others close
        gevent.spawn_later(0.02, lambda: (pull.close(0), push.close(0)))
        context.term()
        after = [one for one in kept() if "event" in one]
        print(len(after) - len(before), threading.active_count())
        """) == "0 1\n"


def test_what_pyzmq_has_not():
    """Time-outs; select() and proxy() that let others run; a send that another greenlet's connect()
    ends."""
    assert run("""
        context = zmq.Context()
        ends = [context.socket(kind) for kind in (zmq.PULL, zmq.PUSH, zmq.PUSH, zmq.PULL, zmq.PAIR,
                                                  zmq.PAIR)]
        for end, url in zip(ends, "abABcC"):
            (end.connect if url.isupper() else end.bind)(f"inproc://{url.lower()}")
        front, back, push, pull, capture, listener = ends
        def move():
            try:
                zmq.proxy(front, back, capture)
            except zmq.ZMQError as error:
                return error.errno in (zmq.ETERM, zmq.ENOTSOCK)
        moving = gevent.spawn(move)
        gevent.spawn_later(0.02, push.send_multipart, [b"one", b"two"])
        ready = zmq.select([pull, listener], [push], [], 5)
        print([len(found) for found in ready])
        print(zmq.select([pull], [], [])[0] == [pull], pull.recv_multipart(),
              listener.recv_multipart(), zmq.select([pull], [], [], 0.02))
        full = context.socket(zmq.PUSH)
        for ms in (30, 0):
            pull.rcvtimeo = full.sndtimeo = ms
            buffer = bytearray(3)
            for call in (pull.recv, pull.recv_multipart, lambda: pull.recv_into(buffer),
                         lambda: full.send(b"nobody"), lambda: full.send_multipart([b"no", b""])):
                begun = time.monotonic()
                try:
                    call()
                except zmq.Again:
                    print(0.02 < time.monotonic() - begun < 5 if ms else ms, end=" ")
        pull.rcvtimeo = -1
        gevent.spawn_later(0.01, push.send, b"into")
        print(pull.recv_into(buffer), buffer)
        full.sndtimeo = -1
        sender = gevent.spawn(full.send_multipart, [b"to", b"come"])
        gevent.sleep(0.01)
        full.connect("inproc://a")
        print(pull.recv_multipart(), sender.join())
        context.destroy(linger=0)
        print(moving.get())
        """) == ("[0, 1, 0]\nTrue [b'one', b'two'] [b'one', b'two'] ([], [], [])\n"
                 + "True " * 5 + "0 " * 5 + "4 bytearray(b'int')\n"
                 "[b'to', b'come'] None\nTrue\n")


def test_a_socket_that_is_closed_or_terminated():
    assert run("""
        context = zmq.Context()
        socket = context.socket(zmq.PULL)
        def wait(call):
            try:
                call()
            except zmq.ZMQError as error:
                return error.errno
        waiting = [gevent.spawn(wait, call) for call in (socket.recv, socket.poll)]
        gevent.sleep(0.01)
        socket.close()
        gevent.joinall(waiting)
        print([w.value == zmq.ENOTSOCK for w in waiting])
        socket = context.socket(zmq.PULL)
        waiting = gevent.spawn(wait, socket.recv)
        gevent.sleep(0.01)
        waiting.link(lambda _: socket.close())
        context.term()
        print(waiting.value == zmq.ETERM, socket.closed)
        """) == "[True, True]\nTrue True\n"


@pytest.mark.parametrize("how", HOW)
def test_plain_sockets_of_a_patched_program(how):
    """They block the thread, as libzmq's do, and work: nothing of mqcore's is a greenlet. What is
    patched after mqcore was imported is no trouble either (`-m mqcore.zmq` imports it before)."""
    assert run("""
        import threading, zmq as plain
        from zmq.utils.monitor import recv_monitor_message
        context = plain.Context()
        push, pull = context.socket(plain.PUSH), context.socket(plain.PULL)
        monitor = push.get_monitor_socket(plain.EVENT_HANDSHAKE_SUCCEEDED)
        push.connect(f"tcp://localhost:{pull.bind_to_random_port('tcp://127.0.0.1')}")
        push.send(b"x" * 100_000)
        print(len(pull.recv()), pull.poll(20), recv_monitor_message(monitor)["event"].name)
        green = zmq.Context.shadow(context)
        told = []
        def serve(rep):
            rep.send(rep.recv() + b"!")
        rep, req = green.socket(zmq.REP), green.socket(zmq.REQ)
        req.connect(f"tcp://localhost:{rep.bind_to_random_port('tcp://127.0.0.1')}")
        thread = threading.Thread(target=serve, args=(rep,))
        thread.start()
        req.send(b"asked")
        print(req.recv())
        thread.join()
        push.send(b"on its way")
        for s in (push, monitor, rep, req):
            s.close()
        print(pull.recv())
        pull.close()
        context.term()
        """, how, PATCHED) == ("100000 0 HANDSHAKE_SUCCEEDED\nb'asked!'\nb'on its way'\n")


def test_without_gevent():
    answer = subprocess.run(
        [sys.executable, "-c", "import sys; sys.modules['gevent'] = None\n"
         "import mqcore.zmq.green"], capture_output=True, text=True)
    assert "ImportError: zmq.green needs gevent: pip install gevent" in answer.stderr


THREADS = """
import threading
from gevent import monkey
if "before" in sys.argv: monkey.patch_all()
import zmq
from zmq.auth.thread import ThreadAuthenticator
from zmq.devices import ThreadDevice
if "before" not in sys.argv: monkey.patch_all()
context = zmq.Context.instance()
auth = ThreadAuthenticator(context)
auth.start()
auth.allow("127.0.0.1")
print(auth.is_alive(), auth.thread.is_alive())
device = ThreadDevice(zmq.QUEUE, zmq.ROUTER, zmq.DEALER)
front, back = device.bind_in_to_random_port("tcp://127.0.0.1"), \
    device.bind_out_to_random_port("tcp://127.0.0.1")
device.start()
rep, req = context.socket(zmq.REP), context.socket(zmq.REQ)
rep.connect(f"tcp://127.0.0.1:{back}")
req.zap_domain = b"global"
req.connect(f"tcp://127.0.0.1:{front}")
req.send(b"question")
print(rep.recv())
tracker = rep.send(b"answer" * 100_000, copy=False, track=True)
print(req.recv() == b"answer" * 100_000)
tracker.wait(5)
print(tracker.done)
auth.stop()
print(auth.is_alive())
context.destroy(0)
device.join(5)
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_threads_of_the_alias_are_the_systems(when):
    """They block in C: as greenlets they would stop the whole program."""
    begin = f"import sys\nsys.argv.append({when!r})\n"
    assert run(THREADS, begin=begin).split() == [
        "True", "True", "b'question'", "True", "True", "False"]
