"""Puts the programs of the market on a stage: each a process, its lines with its name in front."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from mqcore import cluster

HERE = Path(__file__).parent


class Actor:
    """A running program."""

    def __init__(self, name: str, program: str, args: Any, env: dict[str, object]) -> None:
        self.name = name
        self.lines: list[str] = []
        self.heard = 0
        self.ended = False
        self.url = ""  # of a server
        self.news = threading.Condition()
        self.process = subprocess.Popen(
            [sys.executable, HERE / f"{program}.py", *map(str, args)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **{key: str(value) for key, value in env.items()}},
        )
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                sys.stdout.write(f"{self.name:>10} | {line.rstrip()}\n")  # one piece, unlike print
                sys.stdout.flush()
                with self.news:
                    self.lines.append(line.rstrip())
                    self.news.notify_all()
        with self.news:
            self.ended = True
            self.news.notify_all()

    def says(self, text: str) -> str:
        """Wait for a line that contains this text, after the last line waited for."""

        def found() -> bool:
            while self.heard < len(self.lines):
                self.heard += 1
                if text in self.lines[self.heard - 1]:
                    return True
            return False

        with self.news:
            if self.news.wait_for(lambda: found() or (self.ended and "ended"), 30.0) is not True:
                raise SystemExit(f"{self.name} has not said {text!r}")
            return self.lines[self.heard - 1]

    def end(self, how: int = signal.SIGTERM) -> str:
        """Stops it: its last line."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.process.wait(30.0)
        self.reader.join()
        return self.lines[-1] if self.lines else ""


class Stage:
    """`with Stage() as stage`: all that were started are ended with the block."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="market-")
        self.actors: list[Actor] = []

    def __getitem__(self, name: str) -> Actor:
        return next(actor for actor in self.actors if actor.name == name)

    def url(self, name: str) -> str:
        return f"ipc://{self.folder.name}/{name}"

    def start(self, name: str, program: str, *args: object, **env: object) -> Actor:
        self.actors.append(Actor(name, program, args, env))
        return self.actors[-1]

    def open(self, name: str, program: str, *args: object, **env: object) -> Actor:
        """Starts a server, and waits until it is open."""
        actor = self.start(name, program, *args, **env)
        actor.url = actor.says("open: ").removeprefix("open: ")
        return actor

    def provider(self, name: str, price: int, how: str, at: str, kind: str = "",
                 **env: object) -> Actor:
        env = {"LEDGER": self.url("ledger"), "WORK": 0.002, **env}
        return self.open(name, f"provider{kind}", name, price, how, self.url(at), **env)

    def member(self, name: str, price: int, *seeds: str) -> Actor:
        """A member of the market's cluster."""
        key = Path(self.folder.name, "market.key")
        if not key.exists():
            cluster.Key.generate().save(key)
        return self.open(name, "member", name, price, key, *seeds, LEDGER=self.url("ledger"),
                         WORK=0.002)

    def customer(self, name: str, *at: str, kind: str = "", orders: int = 0,
                 **env: object) -> Actor:
        env = {"RESEND": 0.5, **env}
        return self.start(name, f"client{kind}", name, orders, *map(self.url, at), **env)

    def __enter__(self) -> "Stage":
        self.open("ledger", "ledger", self.url("ledger"))
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self.actors:
            actor.end(signal.SIGKILL)
        self.folder.cleanup()

    def close(self, *customers: Actor) -> None:
        """The market closes: customers say what they have bought, the ledger what was executed."""
        for actor in (*customers, *self.actors[1:], self["ledger"]):
            actor.end()
        assert not any(customer.process.returncode for customer in customers)
