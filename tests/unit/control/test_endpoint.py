import threading

import pytest

from mqcore.control.endpoint import READY, TRANSITIONS, Endpoint
from mqcore.errors import ConnectTimeout, HandshakeFailed, PeerError, SocketClosed, StateError

WAYS = [(a, b) for a in TRANSITIONS for b in TRANSITIONS if a != b]


@pytest.mark.parametrize(("old", "new"), WAYS)
def test_every_way_is_the_tables(old, new):
    endpoint = Endpoint("tcp://x:1", "connect", state=old)
    if old == "closed":
        assert not endpoint.move(new)
    elif new in TRANSITIONS[old][1]:
        assert endpoint.move(new) and endpoint.state == new
    else:
        with pytest.raises(StateError, match=f"cannot change from {old} to {new}"):
            endpoint.move(new)
        assert endpoint.state == old


def test_the_table_is_closed_and_every_state_can_end():
    for state, (meaning, follow) in TRANSITIONS.items():
        assert meaning and follow <= set(TRANSITIONS)
        assert "closed" in follow or state == "closed"
    assert READY <= set(TRANSITIONS)


def test_text_and_error():
    endpoint = Endpoint("tcp://x:1", "connect", given="tcp://x:1?prio=2")
    assert str(endpoint) == endpoint.url == "tcp://x:1" and endpoint.given == "tcp://x:1?prio=2"
    endpoint.move("waiting", PeerError("no way"))
    assert "no way" in repr(endpoint) and isinstance(endpoint.error, PeerError)
    endpoint.move("connecting")
    endpoint.move("handshaking")
    assert endpoint.error is not None
    endpoint.move("connected")
    assert endpoint.error is None


def test_wait_returns_when_connected():
    endpoint = Endpoint("tcp://x:1", "connect")
    threads = [threading.Thread(target=endpoint.wait_ready) for _ in range(3)]
    [t.start() for t in threads]
    endpoint.move("handshaking")
    endpoint.move("connected")
    [t.join(10) for t in threads]
    assert not any(t.is_alive() for t in threads)
    endpoint.wait_ready(0)


def test_wait_times_out_with_the_last_error():
    endpoint = Endpoint("tcp://x:1", "connect")
    with pytest.raises(ConnectTimeout, match=r"within 0 s \(connecting\)") as caught:
        endpoint.wait_ready(0)
    assert caught.value.last is None and isinstance(caught.value, TimeoutError)
    last = PeerError("nobody")
    endpoint.move("waiting", last)
    with pytest.raises(ConnectTimeout, match="waiting: nobody") as caught:
        endpoint.wait_ready(0.01)
    assert caught.value.last is last


@pytest.mark.parametrize(("state", "error", "fatal", "raised"), [
    ("waiting", HandshakeFailed("PUSH meets PUB", reason="socket types"), True, HandshakeFailed),
    ("waiting", HandshakeFailed("cut off"), False, ConnectTimeout),
    ("stopped", PeerError("refused"), True, PeerError),
    ("stopped", None, True, StateError),
    ("closed", None, False, SocketClosed),
])
def test_wait_gives_up_where_waiting_is_useless(state, error, fatal, raised):
    endpoint = Endpoint("tcp://x:1", "connect")
    endpoint.move(state, error, fatal=fatal)
    for _ in range(2):
        with pytest.raises(raised) as caught:
            endpoint.wait_ready(0.01)
        assert caught.value is not error
    if raised is HandshakeFailed:
        assert caught.value.reason == "socket types"


def test_close_wakes_waiters_and_calls_the_closer_once():
    calls = []
    endpoint = Endpoint("tcp://x:1", "connect", closer=lambda: calls.append(1))
    raised = []

    def wait():
        try:
            endpoint.wait_ready()
        except SocketClosed as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    endpoint.close()
    endpoint.close()
    thread.join(10)
    assert len(raised) == 1 and calls == [1] and endpoint.state == "closed"


def test_observers_see_every_move_in_order_even_nested():
    endpoint, first, second = Endpoint("tcp://x:1", "connect"), [], []

    def nested(ep, old, new, error):
        first.append((old, new))
        if new == "handshaking":
            ep.move("connected")

    end = endpoint.observe(nested)
    endpoint.observe(lambda ep, old, new, error: second.append((old, new)))
    endpoint.move("handshaking")
    assert first == second == [("connecting", "handshaking"), ("handshaking", "connected")]
    end()
    end()
    endpoint.move("closed")
    assert len(first) == 2 and len(second) == 3


def test_a_raising_observer_does_not_keep_others_from_hearing():
    endpoint, seen = Endpoint("tcp://x:1", "connect"), []
    endpoint.observe(lambda *_: 1 / 0)
    endpoint.observe(lambda *args: seen.append(args[2]))
    with pytest.raises(ZeroDivisionError):
        endpoint.move("handshaking")
    with pytest.raises(ZeroDivisionError):
        endpoint.move("connected")
    assert seen == ["handshaking", "connected"]
