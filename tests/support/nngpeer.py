"""Real nng sockets in a process of their own, for what is said over WebSocket.

nng 1.11 uses memory that it has freed when both ends of a WebSocket connection close at about the
same time, and aborts once in some thousand times ("panic: pthread_mutex_lock: Invalid argument", or
malloc's own check); it does so in a process that knows nothing but pynng, and nng's issue 2238
describes it. There it fails one test, or none, and not the process that runs them all.
"""

import os
import subprocess
import sys
import threading
from multiprocessing.managers import BaseManager
from pathlib import Path

KEY_SIZE = 16


class NngError(Exception):
    """What pynng raised, as text: its own cannot be pickled."""


def _passed_on(name):
    def call(self, *args, **kw):
        import pynng
        try:
            got = getattr(self.socket, name)(*args, **kw)
        except pynng.NNGException as error:
            raise NngError(repr(error)) from None
        return got if isinstance(got, bytes) else None
    return call


class Peer:
    """A socket of pynng's, in that process."""

    def __init__(self, name, tls=None, **options):
        import pynng
        if tls:
            options["tls_config"] = pynng.TLSConfig(pynng.TLSConfig.MODE_CLIENT, **tls)
        listen, dial = options.pop("listen", None), options.pop("dial", None)
        self.socket = getattr(pynng, name)(**options)
        self.socket.recv_max_size = 0
        self.pipe_is_there = threading.Event()
        self.socket.add_post_pipe_connect_cb(lambda pipe: self.pipe_is_there.set())
        if listen:
            self.listen(listen)
        if dial:
            self.dial(dial)

    def meets(self, timeout):
        """Does it send to a peer by now? pynng's .pipes names one earlier."""
        return self.pipe_is_there.wait(timeout)

    send, recv, dial, listen, subscribe, close = map(
        _passed_on, ("send", "recv", "dial", "listen", "subscribe", "close"))


class Home(BaseManager):
    """Hands them out, over a port of this machine. Not started by multiprocessing, whose tracker of
    resources would then live as long as this."""


Home.register("Peer", Peer)
GONE = EOFError, ConnectionError    # what is raised here when nng has ended that process


def serve():
    """The process: ends with its standard input."""
    key = sys.stdin.buffer.read(KEY_SIZE)
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    server = Home(("127.0.0.1", 0), key).get_server()
    print(server.address[1], flush=True)
    server.serve_forever()


class Peers:
    """Makes them, in a process that is started anew when it has died."""

    def __init__(self):
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", "import nngpeer; nngpeer.serve()"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, cwd=Path(__file__).parent)
        key = os.urandom(KEY_SIZE)
        self.process.stdin.write(key)
        self.process.stdin.flush()
        self.home = Home(("127.0.0.1", int(self.process.stdout.readline())), key)
        self.home.connect()

    def make(self, name, **options):
        try:
            return self.home.Peer(name, **options)
        except GONE:
            self.restart()
            return self.home.Peer(name, **options)

    def stop(self):
        """The exit status: 0, unless nng has ended the process."""
        with self.process as process:
            process.stdin.close()
        return process.returncode

    def restart(self):
        """The exit status of the one that was."""
        status = self.stop()
        self.start()
        return status
