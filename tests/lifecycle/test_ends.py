"""Two ends at once: each public call of the control plane beside a close(), a fork, a kill or an
exit. Nothing hangs, nothing is left behind."""

import contextlib
import faulthandler
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback

import pytest

import mqcore as mq


def test_events_and_close_from_two_threads(ctx):
    """A stream that ends and a socket that ends want each other's locks."""
    for _ in range(100):
        sock = ctx.socket("pair")
        stream = sock.events()
        together = threading.Barrier(2)

        def end(close, together=together):
            together.wait()
            close()
        threads = [threading.Thread(target=end, args=(close,))
                   for close in (sock.close, stream.close)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
        assert [event.kind for event in stream] in ([], ["Closed"])


def test_a_stream_of_a_socket_that_is_closed_meanwhile_ends(ctx, monkeypatch):
    """events() has looked whether the socket is open; close() comes before the stream is made."""
    sock = ctx.socket("pair")
    usable = type(sock)._usable
    monkeypatch.setattr(type(sock), "_usable", lambda self: (usable(self), self.close()))
    with pytest.raises(mq.SocketClosed):
        sock.events()
    assert ctx._hub._watchers == 0


# -- random interleavings --------------------------------------------------------------------------

ROUNDS = int(os.environ.get("MQCORE_END_ROUNDS", "12"))
PATTERNS = [("push", "pull"), ("pub", "sub"), ("req", "rep"), ("pair", "pair"), ("bus", "bus")]
URLS = ["tcp://127.0.0.1:0", "ipc://*", "inproc://ends", "ws://127.0.0.1:0", "shm://*"]


class Crew:
    """Some sockets of one context, and every public call of the control plane on them."""

    def __init__(self, context, rng, connectable=()):
        self.context = context
        self.rng = rng
        left, right = rng.choice(PATTERNS)
        # no wire but SP for a bus, and shm carries none of it
        self.urls = [url for url in URLS if left != "bus" or not url.startswith("shm")]
        self.socks = [context.socket(name, reconnect=0.01, linger=0) for name in (left, right) * 2]
        self.bound = list(connectable)
        self.calls = [getattr(self, name) for name in dir(self) if name.startswith("do_")]

    def any(self):
        return self.rng.choice(self.socks)

    def endpoint(self, sock):
        return self.rng.choice(sock.endpoints or ("tcp://127.0.0.1:9",))

    def do_bind(self):
        self.bound.append(self.any().bind(self.rng.choice(self.urls)).url)

    def do_connect(self):
        if self.bound:
            self.any().connect(self.rng.choice(self.bound))

    def do_connect_and_wait(self):
        if self.bound:
            self.any().connect(self.rng.choice(self.bound), wait=0.02)

    def do_unbind(self):
        sock = self.any()
        sock.unbind(self.endpoint(sock))

    def do_disconnect(self):
        sock = self.any()
        sock.disconnect(self.endpoint(sock))

    def do_end_an_endpoint(self):
        endpoint = self.endpoint(self.any())
        if not isinstance(endpoint, str):
            endpoint.close()

    def do_events(self):
        with self.any().events(backlog=5) as events:
            for _ in range(3):
                events.get(0.005)

    def do_wait_peers(self):
        self.any().wait_peers(1, 0.01)

    def do_look(self):
        sock = self.any()
        sock.stats()
        sock.explain()
        sock.peers()
        repr(sock)

    def do_options(self):
        sock = self.any()
        sock.idle_after = 0.01
        assert sock.keepalive and sock.ring

    def do_fileno(self):
        self.any().fileno()

    def do_open(self):
        sock = self.context.socket("pair", linger=0)
        try:
            sock.bind("tcp://127.0.0.1:0")
        finally:
            sock.close()

    def work(self, until, failed):
        while not until.is_set():
            try:
                self.rng.choice(self.calls)()
            except (mq.Error, TimeoutError):
                pass
            except BaseException as error:
                failed.append(error)
                raise


    @contextlib.contextmanager
    def at_work(self, threads):
        """So many threads that call, until the block ends. They end then, and nothing failed."""
        until, failed = threading.Event(), []
        workers = [threading.Thread(target=self.work, args=(until, failed), daemon=True)
                   for _ in range(threads)]
        for worker in workers:
            worker.start()
        try:
            yield
        finally:
            until.set()
            for worker in workers:
                worker.join(20)
        if any(worker.is_alive() for worker in workers):
            faulthandler.dump_traceback(all_threads=True)
            pytest.fail("a call does not return")
        assert not failed, failed


def crew_of(context, seed, **kw):
    return Crew(context, random.Random(seed), **kw)


@pytest.mark.parametrize("end", ["sockets", "context"])
def test_every_call_beside_a_close(rng, end):
    for _ in range(ROUNDS):
        with mq.Context() as context:
            crew = crew_of(context, rng.random())
            with crew.at_work(4):
                time.sleep(rng.random() * 0.1)
                if end == "context":
                    context.close()
                else:
                    for sock in rng.sample(crew.socks, len(crew.socks)):
                        sock.close()


def in_the_child(crew, things):
    """Every call of the parent's sockets returns, and new ones work."""
    signal.alarm(20)
    for call in crew.calls:
        with contextlib.suppress(mq.Error):
            call()
    for thing in things:
        thing.close()
    with mq.Context() as own, own.socket("pair") as sock:
        sock.bind("tcp://127.0.0.1:0")


def test_every_call_in_a_forked_child_returns(rng):
    """Threads of the parent may hold any lock at the moment of the fork."""
    for _ in range(ROUNDS):
        with mq.Context() as context:
            crew = crew_of(context, rng.random())
            with crew.at_work(2):
                time.sleep(rng.random() * 0.05)
                streams = [sock.events() for sock in crew.socks]
                endpoints = [endpoint for sock in crew.socks for endpoint in sock.endpoints]
                pid = os.fork()
                if pid == 0:
                    status = 1
                    try:
                        in_the_child(crew, (*streams, *endpoints, *crew.socks))
                        status = 0
                    except BaseException:
                        traceback.print_exc()
                        sys.stderr.flush()
                    finally:
                        os._exit(status)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
            for stream in streams:
                stream.close()


PEER = """
    import sys, threading
    sys.path[:0] = {path!r}
    import test_ends, mqcore as mq
    context = mq.Context()
    crew = test_ends.crew_of(context, {seed!r}, connectable={urls!r})
    over, failed = threading.Event(), []
    threads = [threading.Thread(target=crew.work, args=(over, failed), daemon=True)
               for _ in range(3)]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    {then}
"""


def peer(seed, urls, then):
    path = [os.path.dirname(__file__)]
    body = "\n".join(line[4:] for line in PEER.format(path=path, seed=seed, urls=urls,
                                                      then=then).splitlines())
    return subprocess.Popen([sys.executable, "-c", body], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def test_every_call_beside_peers_that_are_killed(rng):
    with mq.Context() as context:
        crew = crew_of(context, rng.random())
        crew.bound = [sock.bind(url).url for sock in crew.socks[:2]
                      for url in ("tcp://127.0.0.1:0", "ipc://*")]
        urls = list(crew.bound)
        with crew.at_work(2):
            for _ in range(3):
                child = peer(rng.random(), urls, "threading.Event().wait()")
                try:
                    assert child.stdout.readline() == "ready\n"
                    time.sleep(rng.random() * 0.2)
                finally:
                    child.kill()
                    child.communicate()
        context.close(0)


@pytest.mark.parametrize("then", ["import time; time.sleep(0.05)", "context.close()",
                                  "import time; time.sleep(0.05); raise SystemExit(0)"])
def test_every_call_beside_the_end_of_the_program(rng, then):
    child = peer(rng.random(), [], then)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0 and out == "ready\n", err
    assert "Fatal" not in err, err
