"""A socket in a process of its own, driven over its standard input: what can be killed and stopped.

`Child("zmq", "PULL", bind=url)` is pyzmq's, `Child("mqcore", "pull", bind=url)` is ours. Ran as a
program, this file is the child.
"""

import base64
import json
import os
import selectors
import signal
import subprocess
import sys
import time


class Child:
    def __init__(self, library: str, pattern: str, limit: float = 20.0, **setup) -> None:
        self.limit = limit
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=False,
            bufsize=0)
        self.held = b""
        try:
            self.url = self("open", library=library, pattern=pattern, **setup)
        except BaseException:
            self.kill()
            raise

    def __call__(self, op: str, **kw):
        self.start(op, **kw)
        return self.result()

    def start(self, op: str, **kw) -> None:
        """Ask without waiting for the answer, which result() gives."""
        self.process.stdin.write(json.dumps({"op": op, **kw}).encode() + b"\n")

    def result(self):
        end = time.monotonic() + self.limit
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.held:
                if not selector.select(max(0.0, end - time.monotonic())):
                    raise TimeoutError("the child does not answer")
                got = os.read(self.process.stdout.fileno(), 1 << 20)
                if not got:
                    raise EOFError("the child has ended")
                self.held += got
        line, self.held = self.held.split(b"\n", 1)
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["value"]

    def send(self, *parts: bytes, n: int = 1) -> None:
        self("send", parts=[base64.b64encode(p).decode() for p in parts], n=n)

    def recv(self, timeout: float = 10.0) -> list[bytes] | None:
        got = self("recv", timeout=timeout)
        return None if got is None else [base64.b64decode(p) for p in got]

    def stop(self) -> None:
        """SIGSTOP, and wait until it holds."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_) -> None:
        self.kill()


class Zmq:
    def __init__(self, pattern, bind=None, connect=None, options=None) -> None:
        import zmq
        self.zmq = zmq
        self.socket = zmq.Context.instance().socket(getattr(zmq, pattern))
        self.socket.setsockopt(zmq.LINGER, 0)
        for name, value in (options or {}).items():
            self.socket.setsockopt(getattr(zmq, name),
                                   value.encode() if isinstance(value, str) else value)
        self.url = connect
        if bind:
            self.socket.bind(bind)
            self.url = self.socket.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()
        else:
            self.socket.connect(connect)

    def send(self, parts):
        self.socket.send_multipart(parts)

    def recv(self, timeout):
        return self.socket.recv_multipart() if self.socket.poll(int(timeout * 1000)) else None


class Mqcore:
    def __init__(self, pattern, bind=None, connect=None, options=None) -> None:
        import mqcore
        self.mqcore = mqcore
        topics = (options or {}).pop("topics", None)
        self.socket = mqcore.socket(pattern, linger=0, **(options or {}))
        if topics is not None:
            self.socket.subscribe(*topics)
        self.url = (self.socket.bind(bind) if bind else self.socket.connect(connect)).url

    def send(self, parts):
        self.socket.send_parts(parts)

    def recv(self, timeout):
        try:
            return self.socket.recv_parts(timeout=timeout)
        except self.mqcore.RecvTimeout:
            return None


def serve() -> None:
    face = None
    for line in sys.stdin.buffer:
        ask = json.loads(line)
        op = ask.pop("op")
        try:
            if op == "open":
                face = {"zmq": Zmq, "mqcore": Mqcore}[ask.pop("library")](**ask)
                value = face.url
            elif op == "send":
                for _ in range(ask["n"]):
                    face.send([base64.b64decode(p) for p in ask["parts"]])
                value = None
            elif op == "recv":
                got = face.recv(ask["timeout"])
                value = None if got is None else [base64.b64encode(p).decode() for p in got]
            elif op == "count":         # reads n messages, says how many bytes they were
                value = sum(sum(map(len, face.recv(30) or ())) for _ in range(ask["n"]))
            elif op == "echo":          # answers n times (for ever: None), then says so
                n = ask["n"]
                while n is None or n > 0:
                    parts = face.recv(3600)
                    face.send(parts)
                    n = None if n is None else n - 1
                value = None
            answer = {"value": value}
        except BaseException as error:
            answer = {"error": repr(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
