"""How long a quiet peer waits beside noisy ones of the same context.

    python perf/quiet.py flood          200 connections that flood another socket
    python perf/quiet.py tls            50 busy TLS peers, and a Python thread that computes

Run it with another build's interpreter to compare builds.

The quiet peer sends ZMTP's PING and waits for the PONG. The I/O thread answers that by itself, so
the figure holds what connections do to each other and nothing of the application. The measured
process serves both sockets; the quiet peer and the noisy ones are processes of their own. The noisy
peers run at idle priority, so that on a small machine the figure shows the engine and not the
scheduler; where there are two cores or more, the measured process has one, and the others share the
rest. "alone" is the same without the noise; with `tls` the Python thread computes in both.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

GREETING = (b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + b"NULL".ljust(20, b"\0") + b"\0"
            + bytes(31))
PING = b"\x04\x07\x04PING\0\0"
PONG = b"\x04\x05\x04PONG"
PAUSE = 0.002
FLOODERS, TLS_PEERS = 200, 50
BURST = (b"\0\x10" + bytes(16)) * 4000
PIECE = (b"\0\x10" + bytes(16)) * 200


def ready(kind: str) -> bytes:
    body = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind.encode()
    return bytes((4, len(body))) + body


def shaken(sock: socket.socket, kind: str) -> socket.socket:
    sock.sendall(GREETING + ready(kind))
    held = b""
    while b"READY" not in held:
        held += sock.recv(4096)
    return sock


# -- the processes beside ours ---------------------------------------------------------------------

def dial(where: str) -> socket.socket:
    if where.startswith("tcp://"):
        sock = socket.create_connection(("127.0.0.1", int(where.rpartition(":")[2])))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(where.removeprefix("ipc://"))
    return sock


def ask(where: str, seconds: float) -> None:
    """The quiet peer: prints its round trips, in microseconds."""
    if "QUIET_REALTIME" in os.environ:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    sock = shaken(dial(where), "PUSH")
    sock.settimeout(10)
    found = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        before = time.perf_counter()
        sock.sendall(PING)
        held = b""
        while len(held) < len(PONG):
            held += sock.recv(64)
        found.append(round((time.perf_counter() - before) * 1e6, 1))
        time.sleep(PAUSE)
    print(json.dumps(found), flush=True)


def be_idle() -> None:
    """Idle priority; beside a quiet peer with real-time priority any other is low enough."""
    if "QUIET_REALTIME" not in os.environ:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def flood(port: int, count: int) -> None:
    """Never-ending messages on many connections, without reading."""
    import selectors
    be_idle()
    poll = selectors.DefaultSelector()
    at = {}
    for _ in range(count):
        sock = shaken(socket.create_connection(("127.0.0.1", port)), "PUSH")
        sock.setblocking(False)
        poll.register(sock, selectors.EVENT_WRITE)
        at[sock] = 0
    print("ready", flush=True)
    while True:
        for key, _ in poll.select():
            sock = key.fileobj
            try:
                at[sock] = (at[sock] + sock.send(memoryview(BURST)[at[sock]:])) % len(BURST)
            except BlockingIOError:
                pass


def crypt(port: int, count: int) -> None:
    """TLS peers, each of which sends a small piece at a time, as fast as they can together."""
    be_idle()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    socks = [shaken(context.wrap_socket(socket.create_connection(("127.0.0.1", port))), "PUSH")
             for _ in range(count)]
    print("ready", flush=True)
    while True:
        for sock in socks:
            sock.sendall(PIECE)


# -- the measured process --------------------------------------------------------------------------

def certificate(folder: Path) -> tuple[str, str]:
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj",
                    "/CN=localhost", "-keyout", key, "-out", cert], check=True,
                   capture_output=True)
    return cert, key


def beside(what: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, "--part", what, *map(str, arguments)],
                            stdout=subprocess.PIPE, text=True)


def discard(sock: object, stop: threading.Event) -> None:
    """The application of the noisy socket: takes what comes in large pieces."""
    import mqcore as mq
    while not stop.is_set():
        try:
            sock.recv_batch(timeout=0.2, max=100_000)  # type: ignore[attr-defined]
        except mq.RecvTimeout:
            pass


def serve(kind: str, noisy: bool, seconds: float, drained: bool, over_ipc: bool) -> list[float]:
    import mqcore as mq
    stop = threading.Event()
    noise: list[subprocess.Popen[str]] = []
    with tempfile.TemporaryDirectory() as folder, mq.Context() as ctx:
        quiet = ctx.socket("pull")
        where = quiet.bind(f"ipc://{folder}/s" if over_ipc else "tcp://127.0.0.1:0").url
        if kind == "flood":
            loud = ctx.socket("pull", recv_buffer=8192, recv_hwm=None, recv_hwm_bytes=None)
            url = loud.bind("tcp://127.0.0.1:0").url
        else:
            cert, key = certificate(Path(folder))
            loud = ctx.socket("pull", tls_cert=cert, tls_key=key)
            url = loud.bind("tls+tcp://127.0.0.1:0").url
        threads = [threading.Thread(target=discard, args=(loud, stop))] if drained else []
        if kind == "tls":
            threads.append(threading.Thread(target=compute, args=(stop,)))
        for thread in threads:
            thread.start()
        if noisy:
            loud_port = url.rpartition(":")[2]
            noise.append(beside("flood", loud_port, FLOODERS) if kind == "flood"
                         else beside("crypt", loud_port, TLS_PEERS))
            assert noise[0].stdout is not None
            noise[0].stdout.readline()
        if "QUIET_REALTIME" in os.environ:
            hurry()
        try:
            time.sleep(0.5)
            asker = beside("ask", where, seconds)
            return list(json.loads(asker.communicate()[0]))
        finally:
            taken = sum(peer.read for peer in loud.stats().peers.values())
            for process in noise:
                process.kill()
                process.wait()
            stop.set()
            for thread in threads:
                thread.join()
            print(f"         the noisy peers' messages: {taken:,}", flush=True)
            loud.close(linger=0)
            quiet.close(linger=0)


def compute(stop: threading.Event) -> None:
    n = 0
    while not stop.is_set():
        for _ in range(1000):
            n = (n * 31 + 7) % 1000003


def show(name: str, found: list[float]) -> float:
    ordered = sorted(found)
    p99 = ordered[int(len(ordered) * 0.99)]
    print(f"{name:8} {len(found):6} round trips   p50 {statistics.median(ordered):8.1f}   "
          f"p90 {ordered[int(len(ordered) * 0.9)]:8.1f}   p99 {p99:8.1f}   "
          f"max {ordered[-1]:9.1f} us", flush=True)
    return p99


def pin(ours: bool) -> None:
    """The measured process on a core of its own."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        os.sched_setaffinity(0, cores[-1:] if ours else cores[:-1])


def hurry() -> None:
    """I/O threads alone: the application's threads run anywhere."""
    for thread in Path("/proc/self/task").iterdir():
        if (thread / "comm").read_text().strip() == "mqcore-io":
            os.sched_setaffinity(int(thread.name), [max(os.sched_getaffinity(0))])
            os.sched_setscheduler(int(thread.name), os.SCHED_FIFO, os.sched_param(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kind", choices=["flood", "tls"])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--drained", action="store_true",
                        help="a thread of the application receives what the flooding peers send; "
                             "what TLS peers send is always received")
    parser.add_argument("--ipc", action="store_true",
                        help="the quiet peer comes by ipc: under a flood the kernel delays "
                             "packets of loopback tcp by itself")
    parser.add_argument("--realtime", action="store_true",
                        help="the quiet peer and the I/O thread run at real-time priority (needs "
                             "root): for a machine that is busy with other things. The kernel then "
                             "stops a thread that never sleeps for 50 ms a second, which the "
                             "maximum shows")
    arguments = parser.parse_args()
    if arguments.realtime:
        os.environ["QUIET_REALTIME"] = "1"
    drained = arguments.drained or arguments.kind == "tls"
    how = (arguments.seconds, drained, arguments.ipc)
    ratios = []
    everywhere = os.sched_getaffinity(0)
    os.environ["QUIET_CORES"] = ",".join(map(str, sorted(everywhere)))
    if not arguments.realtime:
        pin(True)
    for _ in range(arguments.rounds):
        alone = show("alone", serve(arguments.kind, False, *how))
        noisy = show("beside", serve(arguments.kind, True, *how))
        ratios.append(noisy / alone)
        print(f"p99 beside / alone: {ratios[-1]:.2f}", flush=True)
    print(f"median of {len(ratios)}: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--part"]:
        name, port, amount = sys.argv[2:]
        os.sched_setaffinity(0, [int(core) for core in os.environ["QUIET_CORES"].split(",")])
        pin(False)
        if name == "ask":
            ask(port, float(amount))
        else:
            {"flood": flood, "crypt": crypt}[name](int(port), int(amount))
    else:
        main()
