"""A socket in a process of its own, for tests in which a peer is killed.

`Process` starts `python -m mqcore.testing.peer`, which makes the socket and then does as it is
told, a line of JSON each: {"op": "recv"} or {"op": "send", "parts": [...]}, parts in hexadecimal.
"""

from __future__ import annotations

import json
import subprocess
import sys
from types import TracebackType
from typing import Any

LIMIT = 20.0


class Process:
    """`with Process("pull", bind=url) as p: p.recv(); p.kill()`. `url` is where it is bound."""

    def __init__(self, pattern: str, *, bind: str = "", connect: str = "",
                 options: dict[str, Any] | None = None) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", "mqcore.testing.peer"],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            self.url: str = self._ask(pattern=pattern, bind=bind, connect=connect,
                                      options=options or {})
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def recv(self) -> list[bytes]:
        return [bytes.fromhex(part) for part in self._ask(op="recv")]

    def send(self, *parts: bytes) -> None:
        self._ask(op="send", parts=[part.hex() for part in parts])

    def kill(self) -> None:
        """SIGKILL, and it is gone. Idempotent."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _ask(self, **what: Any) -> Any:
        out, inn = self._process.stdin, self._process.stdout
        assert out is not None and inn is not None
        out.write(json.dumps(what).encode() + b"\n")
        out.flush()
        line = inn.readline()
        assert line, "the process has ended; its standard error says why"
        return json.loads(line)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.kill()


def answer(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main() -> None:
    import mqcore as mq

    start = json.loads(sys.stdin.readline())
    sock = mq.socket(start["pattern"], linger=0)
    if start["bind"]:
        answer(sock.bind(start["bind"], **start["options"]).url)
    else:
        answer(sock.connect(start["connect"], **start["options"]).url)
    for line in sys.stdin:
        ask = json.loads(line)
        if ask["op"] == "recv":
            answer([part.hex() for part in sock.recv_parts(timeout=LIMIT)])
        else:
            sock.send_parts([bytes.fromhex(part) for part in ask["parts"]], timeout=LIMIT)
            answer(None)
    sock.close(0)


if __name__ == "__main__":
    main()
