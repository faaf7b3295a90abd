"""What `mq cat` does with a socket, by pattern.

The pattern's name decides: some patterns only send, some only receive, REQ and SURVEYOR ask, REP
and RESPONDENT answer. All others send and receive at once: a thread receives while the main thread
reads the input. Patterns of plug-ins, which this file does not know, are treated like these.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import mqcore as mq
from mqcore.cli.format import Format, Incoming, Outgoing
from mqcore.errors import RecvTimeout, SocketClosed

SENDS = {"push", "pub", "radio", "scatter"}
RECEIVES = {"pull", "sub", "dish", "gather"}


class Job(NamedTuple):
    """The arguments of a run."""

    socket: Any
    messages: Iterator[Outgoing]
    answer: list[bytes] | None  # REP, RESPONDENT: None echoes the request
    shows: Format
    most: int | None  # messages; None: no limit
    pause: float
    timeout: float | None
    quiet: bool
    given: bool  # the messages are --data and --file, not standard input
    group: str | None = None  # RADIO: the group to send to


# -- out -----------------------------------------------------------------------------------------


def paced(messages: Iterable[Outgoing], pause: float) -> Iterator[Outgoing]:
    """Yield one every `pause` seconds on a fixed grid: a late one does not delay its successors."""
    due = time.monotonic()
    for message in messages:
        if pause:
            time.sleep(max(0.0, due - time.monotonic()))
            due += pause
        yield message


def send(job: Job, message: Outgoing) -> None:
    if message.to is not None:
        job.socket.send_to(message.to, *message.parts, timeout=job.timeout)
    elif job.group is not None:
        job.socket.send_parts(message.parts, group=job.group, timeout=job.timeout)
    else:
        job.socket.send_parts(message.parts, timeout=job.timeout)


def send_all(job: Job, limit: int | None) -> int:
    sent = 0
    for message in paced(itertools.islice(job.messages, limit), job.pause):
        send(job, message)
        sent += 1
    return sent


# -- in ------------------------------------------------------------------------------------------


def incoming(message: mq.Message) -> Incoming:
    return Incoming(
        [bytes(part) for part in message.parts],
        message.peer.address,
        message.routing_id,
        message.received_at,
    )


def show(job: Job, message: Incoming, out: BinaryIO) -> None:
    if not job.quiet:
        out.write(job.shows.show(message))


def receive_all(job: Job, use: Callable[[mq.Message], None]) -> int:
    """Receive until --count, --timeout or the end of the socket. Flushes the output when no message
    waits: a pipe gets single messages at once and bursts in large pieces."""
    got = 0
    while job.most is None or got < job.most:
        try:
            message = job.socket.recv_msg(timeout=0)
        except RecvTimeout:
            sys.stdout.buffer.flush()
            message = job.socket.recv_msg(timeout=job.timeout)
        use(message)
        got += 1
    sys.stdout.buffer.flush()
    return got


# -- the five kinds of exchange ------------------------------------------------------------------


def run_sender(job: Job) -> str:
    return f"sent {send_all(job, job.most)}"


def run_receiver(job: Job) -> str:
    out = sys.stdout.buffer
    return f"received {receive_all(job, lambda message: show(job, incoming(message), out))}"


def run_req(job: Job) -> str:
    done = 0
    for message in paced(itertools.islice(job.messages, job.most), job.pause):
        answer = job.socket.request_msg(message.parts, timeout=job.timeout)
        show(job, incoming(answer), sys.stdout.buffer)
        sys.stdout.buffer.flush()
        done += 1
    return f"asked {done}"


def run_surveyor(job: Job) -> str:
    asked = heard = 0
    for message in paced(itertools.islice(job.messages, job.most), job.pause):
        deadline = {} if job.timeout is None else {"deadline": job.timeout}
        for answer in job.socket.survey_msg(message.parts, **deadline):
            show(job, incoming(answer), sys.stdout.buffer)
            sys.stdout.buffer.flush()
            heard += 1
        asked += 1
    return f"asked {asked}, heard {heard}"


def run_rep(job: Job) -> str:
    def serve(message: mq.Message) -> None:
        seen = incoming(message)
        show(job, seen, sys.stdout.buffer)
        message.reply(*(seen.parts if job.answer is None else job.answer))

    return f"answered {receive_all(job, serve)}"


def run_both(job: Job) -> str:
    """Send and receive. The receiving side decides when to stop; the end of the input does not stop
    it. The input has its own thread, because nothing wakes a thread that reads from a terminal."""
    failed: list[Exception] = []
    sent, got = [0], [0]

    def send_input() -> None:
        try:
            for message in paced(itertools.islice(job.messages, job.most), job.pause):
                send(job, message)
                sent[0] += 1
        except SocketClosed:
            pass
        except Exception as error:
            failed.append(error)
            job.socket.close(linger=0)  # wakes the receiver

    def use(message: mq.Message) -> None:
        show(job, incoming(message), sys.stdout.buffer)
        got[0] += 1

    sender = threading.Thread(target=send_input, daemon=True)
    sender.start()
    try:
        receive_all(job, use)
        if job.given and job.most:
            sender.join()  # send all N messages, even if all of ours have arrived
    except SocketClosed:
        pass
    if failed:
        raise failed[0]
    return f"sent {sent[0]}, received {got[0]}"


def way_of(pattern: str) -> Callable[[Job], str]:
    if pattern in SENDS:
        return run_sender
    if pattern in RECEIVES:
        return run_receiver
    ways = {"req": run_req, "rep": run_rep, "surveyor": run_surveyor, "respondent": run_rep}
    return ways.get(pattern, run_both)
