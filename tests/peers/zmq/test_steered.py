"""A steerable proxy that is stuck: its capture does not hold it up, one full way does not stop the
other, and TERMINATE ends it."""

import threading

import pytest

import mqcore.zmq as ours

HWM = 20


class Steered:
    """A proxy in a thread, with a client, a worker and a control socket."""

    def __init__(self, make, kind, capture=None):
        def new(name):
            return make(ours, name, sndhwm=HWM, rcvhwm=HWM)
        front, back, steer = new(kind), new("DEALER"), new("REP")
        tap = None if capture is None else new(capture)
        self.client, self.worker, self.control = new("DEALER"), new("DEALER"), new("REQ")
        for one, name in ((front, "front"), (back, "back"), (steer, "steer"), (tap, "tap")):
            if one is not None:
                one.bind(f"inproc://{name}")
        self.client.connect("inproc://front")
        self.control.connect("inproc://steer")
        self.found = []
        self.thread = threading.Thread(target=lambda: self.found.append(
            ours.proxy_steerable(front, back, tap, steer)))
        self.thread.start()

    def ask(self, word):
        self.control.send(word)
        return self.control.recv_multipart()

    def end(self):
        assert self.ask(b"TERMINATE") == [b""]
        self.thread.join()
        assert self.found == [0]

    def forth(self, n):
        for number in range(n):
            self.client.send(b"%d" % number)
        assert [self.worker.recv_multipart()[-1] for _ in range(n)] == [b"%d" % m for m in range(n)]


@pytest.mark.parametrize("kind", ["ROUTER", "DEALER"])
@pytest.mark.parametrize("capture", ["PAIR", "PUSH", "PUB"])
def test_a_capture_that_nobody_reads(make, kind, capture):
    steered = Steered(make, kind, capture)
    steered.worker.connect("inproc://back")
    for _ in range(3):
        steered.forth(HWM)
    assert len(steered.ask(b"STATISTICS")) == 8
    assert steered.ask(b"PAUSE") == [b""]
    for _ in range(5):
        steered.client.send(b"paused")
    assert not steered.worker.poll(50)
    assert steered.ask(b"RESUME") == [b""]
    assert [steered.worker.recv_multipart()[-1] for _ in range(5)] == [b"paused"] * 5
    steered.end()


def test_a_full_way_does_not_stop_the_other(make):
    steered = Steered(make, "DEALER")
    steered.worker.connect("inproc://back")
    full = 0
    while full < 3:     # the proxy takes what its front has space for, and no more
        try:
            steered.worker.send(b"x", ours.NOBLOCK)
            full = 0
        except ours.Again:
            full += 1
            steered.worker.poll(20, ours.POLLOUT)
    steered.forth(HWM)
    assert len(steered.ask(b"STATISTICS")) == 8
    steered.end()
    n = 0
    while steered.client.poll(50):
        assert steered.client.recv() == b"x"
        n += 1
    assert n >= HWM


def test_nobody_behind(make):
    steered = Steered(make, "DEALER")
    for _ in range(5):
        steered.client.send(b"x")
    steered.end()


@pytest.mark.parametrize("kinds", [("PULL", "PUSH"), ("DEALER", "DEALER"), ("PAIR", "PAIR")])
def test_nothing_is_taken_for_a_sink_without_space(make, kinds):
    """What the proxy has not taken can be received from its source when it has ended."""
    front, back, steer, control = (make(ours, kind) for kind in (*kinds, "PAIR", "PAIR"))
    source = make(ours, "PUSH" if kinds[0] == "PULL" else kinds[0])
    for one, name in ((front, "front"), (back, "back"), (steer, "steer")):
        one.bind(f"inproc://{name}")
    source.connect("inproc://front")
    control.connect("inproc://steer")
    thread = threading.Thread(target=ours.proxy_steerable, args=(front, back, None, steer))
    thread.start()
    for number in range(5):
        source.send(b"%d" % number)
    control.send(b"STATISTICS")
    assert len(control.recv_multipart()) == 8
    control.send(b"TERMINATE")
    thread.join()
    assert [front.recv() for _ in range(5)] == [b"%d" % number for number in range(5)]


def test_a_monitored_queue_whose_monitor_nobody_reads(make):
    ends = [make(ours, kind, sndhwm=2) for kind in ("PULL", "PUSH", "PUSH")]
    asking, answering = make(ours, "PUSH"), make(ours, "PULL")
    for end, name in zip(ends, ("in", "out", "monitor"), strict=True):
        end.bind(f"inproc://{name}")
    asking.connect("inproc://in")
    answering.connect("inproc://out")

    def body():
        with pytest.raises(ours.ContextTerminated):
            ours.devices.monitored_queue(*ends)
        for end in ends:
            end.close(0)
    thread = threading.Thread(target=body)
    thread.start()
    for number in range(50):
        asking.send(b"%d" % number)
        assert answering.recv() == b"%d" % number
    for one in (asking, answering):
        one.close(0)
    make.context(ours).term()
    thread.join()
