"""Sockets that a program has dropped with an event stream that it did not read."""

import gc
import threading
import weakref

import pytest

import mqcore as mq
from mqcore.testing import until


def drop():
    """A reference to a socket that is garbage, with unread events that name it."""
    context = mq.Context(linger=0.01)
    pull = context.socket("pull")
    stream = pull.events()
    end = pull.bind("tcp://127.0.0.1:*")
    push = context.socket("push", connect=end.url)
    push.wait_peers(1, timeout=20)
    push.close()
    until(lambda: len(stream) >= 3)
    return weakref.ref(pull)


def control_threads():
    return [thread for thread in threading.enumerate() if thread.name == "mqcore-control"]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_unread_events_do_not_keep_their_socket():
    others = set(control_threads())
    gone = drop()

    def collected():
        gc.collect()
        return gone() is None and not set(control_threads()) - others
    until(collected)


def test_a_dropped_stream_is_forgotten_with_the_next_event(ctx):
    pull = ctx.socket("pull")
    one, other = pull.events(), pull.events()
    assert len(pull._links.watchers) == 2
    del one
    gc.collect()
    pull.bind("tcp://127.0.0.1:*")
    assert other.get(20).kind == "Listening"
    assert len(pull._links.watchers) == 1
    assert pull._links.watched
    other.close()
    assert not pull._links.watched
