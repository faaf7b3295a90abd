"""A headless Chromium that opens pages and reports what went wrong in them.

It is driven by the DevTools protocol over two pipes: JSON, each message ended by a zero byte.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--disable-dev-shm-usage", "--remote-debugging-pipe"]
LIMIT = 60  # a browser starts slowly on a busy machine


def high(fd: int) -> int:
    """The same pipe end under a number that redirecting to 3 and 4 cannot hit."""
    copy = fcntl.fcntl(fd, fcntl.F_DUPFD, 20)
    os.close(fd)
    return copy


class Browser:
    """One page of one browser. Context manager. hosts: the only ones that it reaches."""

    def __init__(self, folder: Path, width: int = 360, height: int = 740,
                 hosts: tuple[str, ...] = ()) -> None:
        assert CHROMIUM, "no Chromium is installed"
        theirs, self.ours_out = map(high, os.pipe())
        self.ours_in, theirs_out = map(high, os.pipe())
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{theirs_out}', "--", CHROMIUM, *FLAGS,
             "--host-resolver-rules=" + ", EXCLUDE ".join(["MAP * ~NOTFOUND", *hosts]),
             f"--user-data-dir={folder}"], pass_fds=(theirs, theirs_out),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs)
        os.close(theirs_out)
        self.buffer, self.number, self.session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call(
            "Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=True)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.ours_out)
        os.close(self.ours_in)
        self.process.terminate()
        self.process.wait(timeout=LIMIT)

    def receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            if not select.select([self.ours_in], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("the browser is silent")
            data = os.read(self.ours_in, 1 << 20)
            if not data:
                raise EOFError("the browser has ended")
            self.buffer += data
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.ours_out, json.dumps(request).encode() + b"\0")
        deadline = time.monotonic() + LIMIT
        while True:
            message = self.receive(deadline)
            if message.get("id") == self.number:
                assert "error" not in message, message["error"]
                return message["result"]
            self.events.append(message)

    def open(self, url: str) -> list[str]:
        """Load a page and run its scripts; what its console and its requests complain about."""
        self.events.clear()
        assert "errorText" not in self.call("Page.navigate", url=url), url
        deadline = time.monotonic() + LIMIT
        while not any(one["method"] == "Page.loadEventFired" for one in self.events):
            self.events.append(self.receive(deadline))
        self.run("new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))")
        return [text for one in self.events if (text := complaint(one["method"], one["params"]))]

    def leave(self) -> None:
        """End what the page still does, before the next one is opened: it might complain there."""
        self.open("about:blank")

    def run(self, program: str) -> Any:
        """The value of a JavaScript expression; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=program, awaitPromise=True,
                           returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")


def complaint(method: str, params: dict[str, Any]) -> str:
    if method == "Runtime.exceptionThrown":
        details = params["exceptionDetails"]
        return details.get("exception", {}).get("description", details["text"])
    if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
        return " ".join(str(one.get("value", one.get("description"))) for one in params["args"])
    if method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
        return params["entry"]["text"]
    if method == "Network.loadingFailed" and not params.get("canceled"):
        return f"request failed: {params['errorText']}"
    return ""
