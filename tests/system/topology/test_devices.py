"""Devices: what they refuse, where circles of them end, and bridges between the two families."""

import contextlib

import pytest
import zmq

import mqcore as mq
from mqcore.testing import until


@contextlib.contextmanager
def queue(ctx, back, **options):
    """A router and a dealer with a device between; gives (its front's URL, the device)."""
    router = ctx.socket("router", bind="tcp://127.0.0.1:0", mandatory=False, **options)
    dealer = ctx.socket("dealer", connect=back, **options)
    with mq.device(router, dealer) as device:
        yield router.endpoints[0].url, device


def serve(rep, count):
    for _ in range(count):
        message = rep.recv_msg()
        message.reply(b"re: " + bytes(message.parts[0]))


# -- what fits together ----------------------------------------------------------------------------

@pytest.mark.parametrize("patterns", [("req", "rep"), ("router", "rep"), ("req", "dealer")])
def test_cooked_request_patterns_name_their_raw_forms(ctx, patterns):
    ends = [ctx.socket(name) for name in patterns]
    with pytest.raises(mq.UsageError, match="Router where requests come in, Dealer where"):
        mq.device(*ends)
    assert ends[0].stats().sent == 0          # and they are still the caller's


@pytest.mark.parametrize("patterns", [
    ("surveyor", "dealer"), ("router", "respondent"), ("bus", "pub"), ("pair1", "pair"),
    ("surveyor", "surveyor")])
def test_what_does_not_fit_is_refused(ctx, patterns):
    with pytest.raises(mq.UsageError, match="at the other, not a"):
        mq.device(*[ctx.socket(name) for name in patterns])


def test_buses_are_not_joined_unless_told_to(ctx):
    left, right = (ctx.socket("bus", bind="tcp://127.0.0.1:0") for _ in range(2))
    for ends in ((left, right), (left,)):
        with pytest.raises(mq.UsageError, match="loop.*for ever.*allow_bus=True"):
            mq.device(*ends)
    a, b = (ctx.socket("bus", connect=end.endpoints[0]) for end in (left, left))
    c = ctx.socket("bus", connect=right.endpoints[0])
    for one, peers in ((a, 1), (b, 1), (c, 1), (left, 2), (right, 1)):
        one.wait_peers(peers, 10)
    with mq.device(left, right, allow_bus=True):
        a.send(b"from a")
        assert c.recv() == b"from a"          # over the device, and to nobody else: bus is no hub
        c.send(b"from c")
        assert (a.recv(), b.recv()) == (b"from c", b"from c")
        for one in (a, c):
            with pytest.raises(mq.Timeout):   # nothing comes back to who said it
                one.recv(timeout=0.05)


def test_one_bus_repeats_to_the_others(ctx):
    hub = ctx.socket("bus", bind="tcp://127.0.0.1:0")
    members = [ctx.socket("bus", connect=hub.endpoints[0]) for _ in range(3)]
    for member in members:
        member.wait_peers(1, 10)
    hub.wait_peers(3, 10)
    with mq.device(hub, allow_bus=True) as device:
        for member in members:
            member.send(b"hello")
        for member in members:
            assert [member.recv() for _ in range(2)] == [b"hello"] * 2
            with pytest.raises(mq.Timeout):
                member.recv(timeout=0.05)
        assert device.stats().forth == 3


def test_only_a_bus_is_repeated(ctx):
    with pytest.raises(mq.UsageError, match="different sockets"):
        mq.device(ctx.socket("dealer"))
    with pytest.raises(mq.UsageError, match="must be sockets, not str"):
        mq.device("tcp://127.0.0.1:1", ctx.socket("dealer"))


# -- circles ---------------------------------------------------------------------------------------

@pytest.mark.parametrize(("hops", "name"), [(8, b""), (3, b""), (3, b"dealer")])
def test_a_queue_that_asks_itself_ends(ctx, hops, name):
    """By mistake its back is connected to its own front."""
    router = ctx.socket("router", bind="tcp://127.0.0.1:0", mandatory=False, max_hops=hops)
    dealer = ctx.socket("dealer", connect=router.endpoints[0], routing_id=name)
    events = router.events()
    dealer.wait_peers(1, 10)
    with (mq.device(router, dealer) as device,
          ctx.socket("req", connect=router.endpoints[0]) as req):
        req.send(b"who?")
        dropped = next(event for event in iter(lambda: events.get(20), None)
                       if event.kind == "Dropped")
        assert dropped.reason == "hop_limit" and dropped.peer.pattern == "dealer"
        stats = device.stats()
        assert (stats.forth, stats.back, stats.hop_limit) == (hops + 1, 0, 1)


def test_two_queues_in_a_circle_end(ctx, beside):
    """Each takes the other for one of its workers; the real worker is asked all the same."""
    fronts = [ctx.socket("router", bind="tcp://127.0.0.1:0", mandatory=False) for _ in range(2)]
    backs = [ctx.socket("dealer", connect=front.endpoints[0]) for front in reversed(fronts)]
    rep = ctx.socket("rep", bind="tcp://127.0.0.1:0")
    backs[0].connect(rep.endpoints[0])
    backs[0].wait_peers(2, 10)
    backs[1].wait_peers(1, 10)
    with (mq.device(fronts[0], backs[0]) as one, mq.device(fronts[1], backs[1]) as two,
          ctx.socket("req", connect=fronts[1].endpoints[0]) as req):
        beside(serve, rep, 6)
        for i in range(6):                    # half of each round go round once more, then to rep
            assert req.request(b"%d" % i) == b"re: %d" % i
        assert one.stats().hop_limit + two.stats().hop_limit == 0
        rep.close()
        req.send(b"round and round")
        until(lambda: one.stats().hop_limit + two.stats().hop_limit == 1)


def test_a_long_way_is_no_circle(ctx, beside):
    """As many devices as max_hops allows, one more is too many."""
    rep = ctx.socket("rep", bind="tcp://127.0.0.1:0")
    with contextlib.ExitStack() as stack:
        url, devices = rep.endpoints[0].url, []
        for _ in range(4):
            url, device = stack.enter_context(queue(ctx, url, max_hops=3))
            devices.append(device)
        beside(serve, rep, 1)
        with ctx.socket("req", connect=url) as req:
            assert req.request(b"far") == b"re: far"
        url, _ = stack.enter_context(queue(ctx, url, max_hops=3))
        with ctx.socket("req", connect=url) as req:
            req.send(b"too far")
            until(lambda: devices[0].stats().hop_limit == 1)
        assert devices[0].stats().forth == 1


def test_context_numbers_do_not_pass(ctx):
    """What a message knows of the socket it came from means nothing to the next one."""
    pull = ctx.socket("pull", bind="tcp://127.0.0.1:0")
    out = ctx.socket("push", bind="tcp://127.0.0.1:0")
    end = ctx.socket("pull", connect=out.endpoints[0])
    with mq.device(pull, out) as device, ctx.socket("push", connect=pull.endpoints[0]) as push:
        push.send_parts([b"a", bytes(1000), b""])
        push.send(b"b")
        assert [bytes(part) for part in end.recv_msg().parts] == [b"a", bytes(1000), b""]
        assert end.recv() == b"b"
        assert (device.stats().forth, device.stats().hop_limit) == (2, 0)


# -- circles and chains on SP ----------------------------------------------------------------------

def test_a_circle_of_sp_queues_ends(ctx):
    router = ctx.socket("router", bind="tcp://127.0.0.1:0", mandatory=False, max_hops=3)
    dealer = ctx.socket("dealer", connect=router.endpoints[0].url + "?wire=sp")
    dealer.wait_peers(1, 10)
    with (mq.device(router, dealer) as device,
          ctx.socket("req", connect=router.endpoints[0].url + "?wire=sp") as req):
        req.send(b"x")
        until(lambda: device.stats().hop_limit == 1)
        assert device.stats().forth == 3    # words: the id and two hops


def test_surveys_pass_a_device_and_end_in_a_circle(ctx, beside):
    front = ctx.socket("respondent", bind="tcp://127.0.0.1:0", max_hops=3)
    back = ctx.socket("surveyor", bind="tcp://127.0.0.1:0")
    ends = [ctx.socket("respondent", connect=back.endpoints[0]) for _ in range(2)]
    asks = ctx.socket("surveyor", connect=front.endpoints[0])
    for one, peers in ((front, 1), (back, 2), (asks, 1), *((end, 1) for end in ends)):
        one.wait_peers(peers, 10)
    with mq.device(front, back) as device:
        for end in ends:
            beside(serve, end, 2)
        for _ in range(2):
            answers = asks.survey(b"who?", deadline=20)
            assert [next(answers) for _ in range(2)] == [b"re: who?"] * 2
            answers.close()
        assert device.stats().hop_limit == 0
        circle = ctx.socket("respondent", bind="tcp://127.0.0.1:0", max_hops=3)
        again = ctx.socket("surveyor", connect=circle.endpoints[0])
        again.wait_peers(1, 10)
        circle.wait_peers(1, 10)
        with mq.device(circle, again) as round_and_round:
            lost = ctx.socket("surveyor", connect=circle.endpoints[0])
            lost.wait_peers(1, 10)
            lost.send(b"x")
            until(lambda: round_and_round.stats().hop_limit == 1)


def test_pair1_counts_its_hops(ctx):
    """Through two devices, then into one that allows one link only."""
    def link(max_hops, back):
        ends = ctx.socket("pair1", bind="tcp://127.0.0.1:0", max_hops=max_hops), \
            ctx.socket("pair1", connect=back)
        return ends[0].endpoints[0], mq.device(*ends)

    last = ctx.socket("pair1", bind="tcp://127.0.0.1:0", max_hops=3)
    with contextlib.ExitStack() as stack:
        url = last.endpoints[0]
        for _ in range(2):
            url, device = link(8, url)
            stack.enter_context(device)
        first = ctx.socket("pair1", connect=url)
        first.send(b"three links")
        assert last.recv() == b"three links"
        last.send(b"back")
        assert first.recv() == b"back"
    strict = ctx.socket("pair1", bind="tcp://127.0.0.1:0", max_hops=1)
    url, device = link(8, strict.endpoints[0])
    with device:
        first = ctx.socket("pair1", connect=url)
        first.send(b"too far")
        until(lambda: any(peer.dropped_in.get("hop_limit") for peer in
                          strict.stats().peers.values()))


# -- bridges: a ZMTP side and an SP side -----------------------------------------------------------

def test_zmtp_clients_of_an_sp_provider(ctx, beside):
    """Their envelopes (a name, a number, nothing) cannot be said in SP; they come back all the
    same."""
    pynng = pytest.importorskip("pynng")
    router = ctx.socket("router", bind="tcp://127.0.0.1:0", mandatory=False)
    with (pynng.Rep0(listen="tcp://127.0.0.1:0", recv_timeout=20_000) as rep,
          zmq.Context() as context):
        dealer = ctx.socket("dealer",
                            connect=f"tcp://{rep.listeners[0].local_address}?wire=sp")
        dealer.wait_peers(1, 10)

        def answer():
            for _ in range(6):
                rep.send(b"re: " + rep.recv())

        beside(answer)
        with mq.device(router, dealer):
            url = router.endpoints[0].url
            for name, number in ((b"", 0), (b"", 1), (b"name", 1)):
                with context.socket(zmq.REQ) as req:
                    req.linger, req.rcvtimeo = 0, 20_000
                    if name:
                        req.routing_id = name
                    req.setsockopt(zmq.REQ_CORRELATE, number)
                    req.connect(url)
                    req.send_multipart([b"a", b"b"])
                    assert req.recv_multipart() == [b"re: ab"]       # parts are joined on SP
            with ctx.socket("req", connect=url) as req:
                assert req.request(b"x") == b"re: x"
            with ctx.socket("req", connect=url, correlate=True) as req:
                assert req.request(b"y") == b"re: y"
            with ctx.socket("req", connect=url + "?wire=sp") as req:
                assert req.request(b"z") == b"re: z"


def test_sp_clients_of_a_zmtp_provider(ctx, beside):
    pynng = pytest.importorskip("pynng")
    router = ctx.socket("router", bind="tcp://127.0.0.1:0", mandatory=False)
    dealer = ctx.socket("dealer", bind="tcp://127.0.0.1:0")
    with zmq.Context() as context, context.socket(zmq.REP) as rep:
        rep.linger, rep.rcvtimeo = 0, 20_000
        rep.connect(dealer.endpoints[0].url)

        def answer():
            for _ in range(4):
                rep.send_multipart([b"re: ", *rep.recv_multipart()])

        beside(answer)
        with (mq.device(router, dealer),
              pynng.Req0(dial=router.endpoints[0].url, recv_timeout=20_000) as req,
              pynng.Req0(dial=router.endpoints[0].url, recv_timeout=20_000) as other):
            for i in range(2):
                req.send(b"%d" % i)
                other.send(b"other")
                assert (req.recv(), other.recv()) == (b"re: %d" % i, b"re: other")


@pytest.mark.parametrize("upstream", ["zmtp", "sp"])
def test_a_forwarder_between_the_families(ctx, upstream):
    """An SP subscriber says nothing of what he wants, so as long as one is there everything comes
    from upstream; ZMTP's subscribe through it as ever."""
    pynng = pytest.importorskip("pynng")
    pub = ctx.socket("pub", bind="tcp://127.0.0.1:0")
    front = ctx.socket("xsub", connect=f"{pub.endpoints[0].url}?wire={upstream}")
    back = ctx.socket("xpub", bind="tcp://127.0.0.1:0")
    events = pub.events()
    with mq.device(front, back):
        sub = ctx.socket("sub", connect=back.endpoints[0], topics=[b"a"])
        heard = [next(e for e in iter(lambda: events.get(20), None) if e.kind == "Subscribed")]
        with pynng.Sub0(dial=back.endpoints[0].url, topics=[b"b"], recv_timeout=20_000) as nng:
            if upstream == "zmtp":            # to a, then to everything
                heard += [next(e for e in iter(lambda: events.get(20), None)
                               if e.kind == "Subscribed")]
                assert [e.reason for e in heard] == ["a", ""]
            back_peers = until(lambda: len(back._accounts()["live"]) == 2)
            assert back_peers
            for topic in (b"c", b"b", b"a"):
                pub.send(topic + b" news")
            assert nng.recv() == b"b news"
            assert sub.recv() == b"a news"
        if upstream == "zmtp":                # it is gone, and so is its subscription
            gone = next(e for e in iter(lambda: events.get(20), None) if e.kind == "Unsubscribed")
            assert gone.reason == ""


def test_a_streamer_between_the_families(ctx):
    pynng = pytest.importorskip("pynng")
    front, back = (ctx.socket("pull", bind="tcp://127.0.0.1:0"),
                   ctx.socket("push", bind="tcp://127.0.0.1:0"))
    with mq.device(front, back), zmq.Context() as context:
        with (pynng.Pull0(dial=back.endpoints[0].url, recv_timeout=20_000) as sink,
              context.socket(zmq.PUSH) as source):
            source.linger = 0
            source.connect(front.endpoints[0].url)
            source.send_multipart([b"two ", b"parts"])
            assert sink.recv() == b"two parts"
        with (context.socket(zmq.PULL) as sink,
              pynng.Push0(dial=front.endpoints[0].url, send_timeout=20_000) as source):
            sink.linger, sink.rcvtimeo = 0, 20_000
            sink.connect(back.endpoints[0].url)
            source.send(b"one part")
            assert sink.recv() == b"one part"
