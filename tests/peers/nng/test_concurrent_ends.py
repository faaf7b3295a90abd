"""Each public call of a socket against close() and fork(), and against other threads' calls: no
call hangs, and what fails fails with pynng's exceptions.

MQCORE_ROUNDS: more random interleavings.
"""

import contextlib
import functools
import os
import random

import pytest
from interleave import attempted, forked, held_elsewhere, rounds
from strikes import at_each_line

import mqcore.nng as nng
from mqcore.api.socket import _LEVELS
from mqcore.nng import pipes

ROUNDS = int(os.environ.get("MQCORE_ROUNDS", "5"))


class Things:
    """Two joined sockets, with callbacks, and a context where the pattern has some."""

    def __init__(self, first, second):
        limits = {"recv_timeout": 20, "send_timeout": 20}
        self.a, self.b = first(**limits), second(**limits)
        for one in (self.a, self.b):
            if isinstance(one, nng.Sub0):
                one.subscribe(b"")
            one.add_pre_pipe_connect_cb(lambda pipe: None)
            one.add_post_pipe_remove_cb(lambda pipe: None)
        self.url = self.a.listen("tcp://127.0.0.1:0").url
        self.b.dial(self.url, block=False)

    def either(self):
        return self.a if random.random() < 0.5 else self.b


def each_pipe(things, act):
    for pipe in things.either().pipes:
        act(pipe)


def in_context(things):
    with things.either().new_context() as context:
        context.send(b"x")
        context.recv()


CALLS = {
    "send": lambda t: t.either().send(b"x"),
    "send now": lambda t: t.either().send(bytes(70_000), block=False),
    "send_msg": lambda t: t.either().send_msg(nng.Message(b"x")),
    "recv": lambda t: t.either().recv(),
    "recv_msg": lambda t: t.either().recv_msg(block=False).pipe,
    "context": in_context,
    "pipes": lambda t: each_pipe(t, lambda pipe: (pipe.id, pipe.url, str(pipe.remote_address))),
    "close a pipe": lambda t: each_pipe(t, lambda pipe: pipe.close()),
    "send to a pipe": lambda t: each_pipe(t, lambda pipe: pipe.send(b"x")),
    "listen": lambda t: t.either().listen("tcp://127.0.0.1:0").close(),
    "dial": lambda t: t.either().dial(t.url, block=False).close(),
    "dial and wait": lambda t: t.b.dial("tcp://127.0.0.1:9", block=True),
    "listeners": lambda t: [one.url for one in (*t.either().listeners, *t.either().dialers)],
    "options": lambda t: (setattr(t.a, "recv_timeout", 10), t.either().send_buffer_size, t.b.name),
    "recv_fd": lambda t: t.either().recv_fd,
    "send_fd": lambda t: t.either().send_fd,
    "callbacks": lambda t: t.either().add_post_pipe_connect_cb(lambda pipe: None),
    "repr": lambda t: repr(t.either()),
}


def close_both(things):
    things.a.close()
    things.b.close()


def fork(things):
    """The child uses what it inherited, which must fail there, and the parent goes on."""
    def child():
        attempted([functools.partial(call, things) for call in CALLS.values()], nng.NNGException)
        close_both(things)
    forked(child)
    close_both(things)


@pytest.mark.parametrize("end", [close_both, fork], ids=lambda end: end.__name__)
@pytest.mark.parametrize("kinds", [(nng.Pair0, nng.Pair0), (nng.Req0, nng.Rep0),
                                   (nng.Pub0, nng.Sub0), (nng.Surveyor0, nng.Respondent0)],
                         ids=["pair", "req-rep", "pub-sub", "survey"])
def test_every_call_against_the_end(kinds, end, seed):
    rounds(lambda: Things(*kinds), CALLS, end, nng.NNGException, range(seed, seed + ROUNDS))


def test_a_child_forked_while_a_thread_holds_every_lock_does_not_hang():
    with nng.Pair0(listen="inproc://locked", recv_timeout=1000) as a:
        assert a.send_fd != a.recv_fd

        def child():
            attempted([lambda: a.send_fd, lambda: a.send(b"x", block=False), a.recv,
                       lambda: a.add_pre_pipe_connect_cb(print), lambda: a.recv_fd, a.close],
                      nng.NNGException)
            with nng.Pair0() as mine:
                assert mine.recv_fd >= 0

        with held_elsewhere(a._lock, a._send_level._lock, _LEVELS):
            forked(child)


def test_a_signal_handler_closes_the_socket_that_dials(seed):
    with nng.Pair0(listen="tcp://127.0.0.1:0") as far:
        url = str(far.listeners[0].url)

        def scene():
            near = nng.Pair0()
            near.add_post_pipe_connect_cb(lambda pipe: None)

            def dial():
                with contextlib.suppress(nng.NNGException):
                    near.dial(url, block=True)
                near.close()
            return dial, near.close
        assert at_each_line([pipes], scene, seed) > 5
