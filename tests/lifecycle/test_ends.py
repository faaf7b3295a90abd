"""Two ends at once: each public call of the control plane beside a close(), a fork, a kill or an
exit. Nothing hangs, nothing is left behind."""

import threading

import pytest

import mqcore as mq


def test_events_and_close_from_two_threads(ctx):
    """A stream that ends and a socket that ends want each other's locks."""
    for _ in range(100):
        sock = ctx.socket("pair")
        stream = sock.events()
        together = threading.Barrier(2)

        def end(close, together=together):
            together.wait()
            close()
        threads = [threading.Thread(target=end, args=(close,))
                   for close in (sock.close, stream.close)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()
        assert [event.kind for event in stream] in ([], ["Closed"])


def test_a_stream_of_a_socket_that_is_closed_meanwhile_ends(ctx, monkeypatch):
    """events() has looked whether the socket is open; close() comes before the stream is made."""
    sock = ctx.socket("pair")
    usable = type(sock)._usable
    monkeypatch.setattr(type(sock), "_usable", lambda self: (usable(self), self.close()))
    with pytest.raises(mq.SocketClosed):
        sock.events()
    assert ctx._hub._watchers == 0
