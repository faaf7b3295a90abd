"""Ctrl-C at each place where CPython looks for signals, one after the other.

CPython runs signal handlers on the main thread: when a call has returned, at a jump backwards, at
the begin of a function. `each(turn)` calls `turn` again and again, and raises KeyboardInterrupt at
the first of those places in mqcore's Python code, then at the second, and so on. After each one,
`turn` must work. Run it as a program: `interrupts.py SCENE [FIRST [STEP]]`.

A place is left out where the exception would get another handler than CPython gives it: the trace
function raises at the instruction after the call.
"""

from __future__ import annotations

import asyncio
import dis
import faulthandler
import gc
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import mqcore
from mqcore import nng, zmq
from mqcore.api import context

LOOKS = {"CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD", "RESUME"}
STUCK = 60          # seconds, for a turn of milliseconds


class Places:
    """Of one code object: the instructions after which CPython looks for signals."""

    known: dict[CodeType, Places] = {}

    def __init__(self, code: CodeType) -> None:
        self.looks = {one.offset for one in dis.get_instructions(code)
                      if one.opname in LOOKS or one.opname.startswith("POP_JUMP_BACKWARD")}
        self._table = dis._parse_exception_table(code)      # type: ignore[attr-defined]

    @classmethod
    def of(cls, code: CodeType) -> Places:
        if code not in cls.known:
            cls.known[code] = cls(code)
        return cls.known[code]

    def handler(self, at: int) -> int | None:
        return next((one.target for one in self._table if one.start <= at < one.end), None)

    def between(self, before: int, now: int) -> bool:
        return before in self.looks and self.handler(before) == self.handler(now)


def finalising(frame: FrameType | None) -> bool:
    """A finaliser cannot raise: CPython prints the exception, and what was not done stays so."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


class Interrupt:
    """A trace function that raises at the place number `left`."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.where = ""

    def __call__(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        if "/mqcore/" not in frame.f_code.co_filename or self.where or finalising(frame):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        before = -1
        places = Places.of(frame.f_code)

        def step(frame: FrameType, event: str, _arg: Any) -> Any:
            nonlocal before
            if event == "opcode" and not self.where:
                if places.between(before, frame.f_lasti):
                    self.left -= 1
                    if self.left < 0:
                        self.where = "".join(traceback.format_stack(frame)[-4:])
                        sys.settrace(None)
                        raise KeyboardInterrupt
                before = frame.f_lasti
            return step

        return step


def each(turn: Callable[[], Any], first: int, step: int) -> int:
    """The number of places tried. Ends the process if a turn hangs, raises if one fails or leaves
    this thread deaf to a signal."""
    at = first
    context.MADE = 10 * STUCK   # what was left half made is not waited for: it is an error
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    while True:
        one = Interrupt(at)
        faulthandler.dump_traceback_later(STUCK, exit=True)
        sys.settrace(one)
        try:
            turn()
        except KeyboardInterrupt:
            pass
        except BaseException as error:
            raise AssertionError(f"place {at}: {error!r} instead of KeyboardInterrupt\n"
                                 f"{one.where}") from error
        finally:
            sys.settrace(None)
        if not one.where:
            return (at - first) // step
        print(f"place {at}\n{one.where}", end="", file=sys.stderr)
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == mask, f"place {at}: signals blocked"
        turn()
        at += step


def open_and_close() -> None:
    with mqcore.Context(linger=0.01) as context:
        pull = context.socket("pull")
        at = str(pull.bind("tcp://127.0.0.1:*"))
        push = context.socket("push", connect=at)
        push.send(b"x")
        assert pull.recv(timeout=20) == b"x"


def request() -> None:
    with mqcore.Context(linger=0.01) as context:
        rep = context.socket("rep", bind="inproc://x")
        req = context.socket("req", connect="inproc://x")
        req.send(b"question")
        assert rep.recv(timeout=20) == b"question"
        rep.send(b"answer")
        assert req.recv(timeout=20) == b"answer"


def watch() -> None:
    with mqcore.Context(linger=0.01) as context:
        pull = context.socket("pull")
        events = pull.events()
        end = pull.bind("tcp://127.0.0.1:*")
        push = context.socket("push", connect=end.url)
        push.wait_peers(1, timeout=20)
        poller = mqcore.Poller()
        poller.register(pull)
        push.send(b"x")
        assert poller.poll(20)
        assert pull.recv_msg(timeout=20).peer is not None
        push.close()
        while events.get(20).kind != "Disconnected":
            pass
        end.close()


def awaited() -> None:
    async def main() -> None:
        async with mqcore.Context(linger=0.01) as context:
            pull = context.socket("pull")
            push = context.socket("push", connect=pull.bind("tcp://127.0.0.1:*").url)
            await push.asend(b"x")
            assert await asyncio.wait_for(pull.arecv(), 20) == b"x"

    asyncio.run(main())


def as_zmq() -> None:
    with zmq.Context() as context:
        context.linger = 0
        with context.socket(zmq.REP) as rep, context.socket(zmq.REQ) as req:
            port = rep.bind_to_random_port("tcp://127.0.0.1")
            req.rcvtimeo = rep.rcvtimeo = 20_000
            req.connect(f"tcp://127.0.0.1:{port}")
            req.send(b"question")
            assert rep.recv() == b"question"


def as_nng() -> None:
    with nng.Pair0(listen="tcp://127.0.0.1:0", recv_timeout=20_000) as one:
        at = f"tcp://{one.listeners[0].local_address}"
        with nng.Pair0(dial=at, recv_timeout=20_000) as other:
            other.send(b"x")
            assert one.recv() == b"x"


SCENES = {turn.__name__: turn for turn in
          (open_and_close, request, watch, awaited, as_zmq, as_nng)}


def main(name: str, first: str = "0", step: str = "1") -> None:
    turn = SCENES[name]
    for _ in range(2):      # what is imported late is there now
        turn()
    gc.collect()
    count = each(turn, int(first), int(step))
    mqcore.Context.default().close(0)
    end = time.monotonic() + 20
    while (left := [thread.name for thread in threading.enumerate()
                    if thread.name.startswith("mqcore-")]) and time.monotonic() < end:
        gc.collect()    # a socket that a thread was just looking at is garbage later
        time.sleep(0.01)
    print(count, "places;", "left:", *left, flush=True)
    faulthandler.cancel_dump_traceback_later()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
