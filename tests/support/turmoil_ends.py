"""Stress of ends: sockets that close, peers that storm and die, a process that sleeps. Kinds of
tests/support/turmoil.py."""

import contextlib
import faulthandler
import os
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from gang import STALL, Gang, Stuck, a_context, address

import mqcore


def closing(seed, seconds=1.0, kind="tcp"):
    """Sockets and whole contexts close at random moments while threads send, receive and ask."""
    rng = random.Random(seed)
    rounds = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        gang = Gang()
        context = a_context(seed, linger=rng.choice((0, 0.01, 0.2)))
        with address(kind) as where:
            pull = context.socket("pull", recv_hwm=rng.choice((2, 1000)))
            at = str(pull.bind(where))
            pushes = [context.socket("push", connect=at, send_hwm=rng.choice((2, 1000)))
                      for _ in range(3)]

            def pour(push):
                while True:
                    push.send(b"x" * rng.choice((1, 100, 30000)))

            def drink():
                while True:
                    pull.recv(timeout=None)

            def ask():
                while True:
                    pull.stats()
                    pushes[0].stats()
                    mqcore.poll([pull], timeout=0.001)

            for push in pushes:
                gang.start(pour, push)
            gang.start(drink)
            gang.start(drink)
            gang.start(ask)
            time.sleep(rng.random() * 0.03)
            victims = [pull, *pushes]
            rng.shuffle(victims)
            for sock in victims[:rng.randrange(5)]:
                gang.start(sock.close)
                time.sleep(rng.random() * 0.005)
            closer = gang.start(context.close)
            closer.join(STALL + 5)
            if closer.is_alive():
                faulthandler.dump_traceback(all_threads=True)
                raise Stuck("the context does not close")
            gang.join()
            rounds += 1
    return rounds


def storm(seed, seconds=1.0, kind="tcp"):
    """Connect and disconnect, bind and unbind, while messages flow by a link that stays."""
    rng = random.Random(seed)
    gang = Gang()
    with address(kind) as where, address(kind) as other, a_context(
            seed, linger=0, reconnect=0.001, reconnect_max=0.01) as context:
        pull = context.socket("pull")
        at = str(pull.bind(where))
        push = context.socket("push", connect=at)
        second = context.socket("pull")
        there = str(second.bind(other))

        def pour():
            while True:
                push.send(b"x" * 50)

        def drink(sock):
            while True:
                sock.recv()
                gang.steps += 1

        def shake():
            dice = random.Random(seed + 1)
            while True:
                push.connect(there)
                time.sleep(dice.random() * 0.01)
                push.disconnect(there)

        def rebind():
            dice = random.Random(seed + 2)
            while True:
                time.sleep(dice.random() * 0.02)
                second.unbind(there)
                second.bind(there)

        gang.start(pour)
        gang.start(drink, pull)
        gang.start(drink, second)
        gang.start(shake)
        if kind != "inproc":
            gang.start(rebind)
        gang.watch(seconds + rng.random() * 0.1, "storm")
        context.close(0)
        gang.join()
    return gang.steps


PROGRAM = str(Path(__file__).with_name("turmoil.py"))
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + b"\x00" + bytes(31)


def dying(seed, seconds=1.0, kind="tcp"):
    """Peers that are reset, cut off in mid-greeting and killed, beside one that goes on working."""
    rng = random.Random(seed)
    gang = Gang()
    with a_context(seed, linger=0) as context:
        pull = context.socket("pull")
        at = pull.bind("tcp://127.0.0.1:*")
        port = int(str(at).rpartition(":")[2])
        push = context.socket("push", connect=str(at))

        def good():
            while True:
                push.send(b"good")

        def drink():
            while True:
                if pull.recv() == b"good":
                    gang.steps += 1

        def vandal(me):
            dice = random.Random(seed + me)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                with socket.socket() as s:
                    s.settimeout(2)
                    with contextlib.suppress(OSError):
                        s.connect(("127.0.0.1", port))
                        s.sendall(GREETING[:dice.randrange(65)] if dice.random() < 0.5 else GREETING
                                  + b"\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH"
                                  + b"\x00\x05evil!"[:dice.randrange(8)] * dice.randrange(5))
                        if dice.random() < 0.7:
                            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1,
                                                                                          0))
                time.sleep(dice.random() * 0.005)

        child = subprocess.Popen([sys.executable, PROGRAM, "--pour", str(at)])
        gang.start(good)
        gang.start(drink)
        for me in range(3):
            gang.start(vandal, me)
        try:
            gang.watch(seconds * 0.6 + rng.random() * 0.2, "dying")
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
        gang.watch(seconds * 0.4, "dying")
        context.close(0)
        gang.join()
    return gang.steps


def pour(url):
    push = mqcore.Push(connect=url)
    while True:
        push.send(b"from afar" * 100)


def waking(seed, seconds=1.0, kind="tcp"):
    """Threads poll sockets all the time, each with an eventfd that comes and goes; nobody may write
    to a descriptor that has become another's."""
    gang = Gang()
    with address(kind) as where, a_context(seed, linger=0) as context:
        pull = context.socket("pull")
        push = context.socket("push", connect=str(pull.bind(where)))
        wrong = []

        def send():
            while True:
                push.send(b"x")
                gang.steps += 1

        def look(me):
            while not pull.closed:
                mqcore.poll([pull], timeout=0.0005)
                with contextlib.suppress(mqcore.RecvTimeout):
                    pull.recv_many(1000, timeout=0)

        def canary():
            while not pull.closed:
                read, write = os.pipe()
                mine = os.memfd_create("canary")
                select.select([read], [], [], 0.0005)
                if os.fstat(mine).st_size or select.select([read], [], [], 0)[0]:
                    wrong.append(os.pread(mine, 100, 0))
                for fd in (mine, read, write):
                    os.close(fd)

        gang.start(send)
        for me in range(4):
            gang.start(look, me)
        gang.start(canary)
        gang.watch(seconds, "waking")
        context.close(0)
        gang.join()
        if wrong:
            raise AssertionError(f"somebody else's descriptor was written: {wrong}")
    return gang.steps
