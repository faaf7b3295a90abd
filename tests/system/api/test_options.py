"""Options: each one changes something that can be seen, as keyword, attribute and context
default."""

import inspect
import ssl
import time

import pytest

import mqcore as mq
from mqcore import options as table
from mqcore.api.attributes import LINK_OPTIONS
from mqcore.spi import registry


def test_defaults_are_the_table(ctx):
    push = mq.socket("push", context=mq.Context.default())
    with push:
        for row in table.TABLE:
            if not row.patterns:
                assert getattr(push, row.name) == row.default, row.name
    mq.Context.default().close()


def test_keyword_beats_context_beats_table():
    with mq.Context(linger=5, recv_timeout=7, mandatory=False) as context:
        with context.socket("router", linger=6) as router, context.socket("push") as push:
            assert (router.linger, router.recv_timeout, router.mandatory) == (6, 7, False)
            assert push.linger == 5
            with pytest.raises(AttributeError):
                push.mandatory
            router.send_to(b"nobody", b"x")  # dropped, as mandatory=False says
            assert sum(router.stats().dropped.values()) == 1
            router.mandatory = True
            with pytest.raises(mq.NoSuchPeer):
                router.send_to(b"nobody", b"x")
    with pytest.raises(mq.OptionError):
        mq.Context(nosuch=1)


def test_checks(ctx):
    push = ctx.socket("push")
    for name, bad in (("linger", -1), ("send_hwm", 0), ("send_hwm", "1"), ("prio", 17),
                      ("on_full", "explode"), ("recv_timeout", True), ("keepalive", 1)):
        with pytest.raises(mq.OptionError, match=name):
            setattr(push, name, bad)
        with pytest.raises(mq.OptionError, match=name):
            ctx.socket("push", **{name: bad})
    for name, value in (("routing_id", b"x"), ("metadata", {}), ("conflate", True)):
        with pytest.raises(mq.OptionError, match="cannot be changed on an open socket"):
            setattr(push, name, value)
    with pytest.raises(mq.OptionError, match="strict"):
        ctx.socket("push", strict=True)


@pytest.mark.parametrize("pattern, options", [
    ("req", {"conflate": True}), ("router", {"conflate": True}), ("pull", {"on_full": "drop_new"}),
    ("push", {"on_full": "drop_old"}), ("push", {"on_full": "disconnect"}),
    ("req", {"on_full": "drop_new"})])
def test_what_means_nothing_is_refused(ctx, pattern, options):
    with pytest.raises(mq.OptionError):
        ctx.socket(pattern, **options)
    assert ctx.sockets == ()


def test_timeouts_as_attributes(ctx):
    pull, push = ctx.socket("pull"), ctx.socket("push")
    pull.recv_timeout = push.send_timeout = 0.01
    with pytest.raises(mq.RecvTimeout, match="0.01 s"):
        pull.recv()
    with pytest.raises(mq.SendTimeout, match="0.01 s"):
        push.send(b"")
    pull.recv_timeout = 0
    with pytest.raises(mq.RecvTimeout, match="at once"):
        pull.recv()


def fill(push):
    count = 0
    try:
        while count < 100:
            push.send(b"x" * 100, timeout=0)
            count += 1
    except mq.SendTimeout:
        pass
    return count


def test_marks(ctx):
    for name in ("send_hwm", "recv_hwm"):
        for n in (1, 5):
            push = ctx.socket("push", bind="inproc://marks",
                              **({name: n} if name == "send_hwm" else {"send_hwm": 1}))
            pull = ctx.socket("pull", connect="inproc://marks",
                              **({name: n} if name == "recv_hwm" else {"recv_hwm": 1}))
            push.wait_peers(1, 5)
            assert fill(push) == n + 1
            pull.close(0)
            push.close(0)
    push = ctx.socket("push", bind="inproc://marks", send_hwm_bytes=500, recv_hwm_bytes=1)
    ctx.socket("pull", connect="inproc://marks", recv_hwm_bytes=500)
    push.wait_peers(1, 5)
    assert 5 <= fill(push) <= 12
    later = ctx.socket("push", connect="inproc://nobody")
    later.send_hwm = 3
    assert fill(later) == 3


def test_on_full_drop_new(ctx):
    push = ctx.socket("push", bind="inproc://full", send_hwm=1, on_full="drop_new")
    pull = ctx.socket("pull", connect="inproc://full", recv_hwm=1)
    push.wait_peers(1, 5)
    for i in range(5):
        push.send(b"%d" % i)
    assert push.send_many([b"%d" % i for i in range(5, 10)]) == 5
    assert push.stats().dropped == {"full": 8}
    assert pull.recv_many(timeout=5) == [b"0", b"1"]
    push.on_full = "pattern"
    push.send_many([b"x"] * 2)
    with pytest.raises(mq.SendTimeout):
        push.send(b"x", timeout=0)


def test_on_full_of_a_publisher(ctx):
    pub = ctx.socket("pub", bind="inproc://full", send_hwm=1)
    sub = ctx.socket("sub", connect="inproc://full", topics=b"", recv_hwm=1)
    pub.wait_subscribers(timeout=5)
    for _ in range(10):
        pub.send(b"x")
    assert len(sub.recv_many(timeout=5)) == 2
    pub.on_full = "block"
    pub.send_many([b"x"] * 2)
    with pytest.raises(mq.SendTimeout):
        pub.send(b"x", timeout=0)


def test_conflate(ctx):
    push = ctx.socket("push", bind="inproc://c", conflate=True)
    pull = ctx.socket("pull", connect="inproc://c")
    push.wait_peers(1, 5)
    for i in range(10):
        push.send(b"%d" % i)
    assert pull.recv(timeout=5) == b"9"
    with pytest.raises(mq.RecvTimeout):
        pull.recv(timeout=0)


def test_immediate(ctx):
    push = ctx.socket("push", connect="inproc://nobody", immediate=True)
    with pytest.raises(mq.SendTimeout, match="no peer"):
        push.send(b"", timeout=0)
    push.immediate = False
    push.send(b"", timeout=0)


def test_linger(ctx):
    for linger, least in ((0, 0), (0.2, 0.15)):
        push = ctx.socket("push", connect="inproc://nobody", linger=None)
        push.send(b"")
        push.linger = linger
        started = time.monotonic()
        assert push.close().undelivered == 1
        assert least <= time.monotonic() - started


def test_strict_and_max_message_size(ctx):
    rep = ctx.socket("rep", bind="tcp://127.0.0.1:0", max_message_size=100)
    req = ctx.socket("req", connect=rep.endpoints[0], strict=True)
    req.wait_peers(1, 5)
    req.send(b"1")
    with pytest.raises(mq.StateError, match="strict"):
        req.send(b"2")
    req.close()
    stream = rep.events()
    dealer = ctx.socket("req", connect=rep.endpoints[0])
    dealer.send(b"x" * 101)
    kinds = []
    while "Disconnected" not in kinds:
        kinds.append(stream.get(5).kind)


def test_endpoint_options(ctx):
    pull = ctx.socket("pull", bind="tcp://127.0.0.1:0")
    push = ctx.socket("push")
    push.connect(pull.endpoints[0], prio=3, wait=5)
    assert push.peers()[0].prio == 3
    push.connect(pull.endpoints[0].url + "?prio=5", wait=5)
    assert sorted(p.prio for p in push.peers()) == [3, 5]
    with pytest.raises(mq.OptionError):
        push.connect(pull.endpoints[0], linger=1)


def test_a_wire_that_does_not_know_the_pattern_is_refused(ctx):
    dish = ctx.socket("dish")
    with pytest.raises(mq.OptionError, match="wire='sp' does not support the pattern dish"):
        dish.bind("tcp://127.0.0.1:0", wire="sp")
    with pytest.raises(mq.OptionError, match="wire='sp' does not support"):
        dish.connect("tcp://127.0.0.1:1?wire=sp")
    assert dish.endpoints == ()


def test_sp_is_refused_where_its_wire_is_not(ctx, tmp_path):
    push = ctx.socket("push", wire="sp")
    for call in (push.bind, push.connect):
        with pytest.raises(mq.OptionError, match="protocol of its own"):
            call(f"shm://{tmp_path}/s")
    with pytest.raises(mq.OptionError, match="protocol of its own"):
        ctx.socket("push").bind(f"shm://{tmp_path}/s?wire=sp")
    push.bind("inproc://no-wire-at-all")
    push.bind(f"shm://{tmp_path}/s", wire=None)
    assert len(push.endpoints) == 2


@pytest.mark.parametrize("options", [
    {"metadata": {"a": 3}}, {"metadata": {"a": None}}, {"reconnect_stop": 3}])
def test_values_of_the_wrong_kind(ctx, options):
    with pytest.raises(mq.OptionError, match=next(iter(options))):
        ctx.socket("push", **options)


def test_addresses_and_threads_of_the_wrong_kind(ctx):
    for wrong in (5, None):
        with pytest.raises(mq.UsageError, match="an address must be text"):
            ctx.socket("push", connect=wrong)
    for wrong in ("2", 2.0, True, 0):
        with pytest.raises(mq.UsageError, match="io_threads must be 1 to 64"):
            mq.Context(io_threads=wrong)
        with pytest.raises(mq.UsageError, match="max_sockets must be"):
            mq.Context(max_sockets=0 if wrong == 2.0 else wrong)
    assert ctx.sockets == ()


def taken(stream):
    return [event for event in iter_ready(stream) if event.kind in ("Dropped", "TooSlow")]


def iter_ready(stream):
    while True:
        try:
            yield stream.get(0.2)
        except mq.WaitTimeout:
            return


@pytest.mark.parametrize("url", ["inproc://dropped", "tcp://127.0.0.1:0"])
def test_the_first_of_a_run_of_drops_is_told(ctx, url):
    pub = ctx.socket("pub", bind=url, send_hwm=5, send_buffer=4096)
    stream = pub.events()
    sub = ctx.socket("sub", connect=pub.endpoints[0], topics=b"", recv_hwm=5, recv_buffer=4096)
    pub.wait_subscribers(timeout=5)
    for _ in range(2):
        pub.send_many([b"x" * 100_000] * 1000)
        first, *more = taken(stream)  # more: tcp takes some, and there is room again
        assert (first.kind, first.reason, first.peer) == ("Dropped", "full", pub.peers()[0])
        assert len(more) < 100
        while True:  # to the end: there is room again, and the run is over
            try:
                sub.recv(timeout=0.3)
            except mq.RecvTimeout:
                break


def test_a_run_of_a_socket_that_drops_new_ones(ctx):
    push = ctx.socket("push", bind="inproc://run", send_hwm=1, on_full="drop_new")
    pull = ctx.socket("pull", connect="inproc://run", recv_hwm=1)
    push.wait_peers(1, 5)
    stream = push.events()
    for _ in range(2):
        push.send_many([b"x"] * 20)
        event, = taken(stream)
        assert (event.kind, event.reason, event.peer) == ("Dropped", "full", None)
        assert len(pull.recv_many(timeout=5)) == 2


@pytest.mark.parametrize("url", ["inproc://cut", "tcp://127.0.0.1:0"])
def test_on_full_disconnect(ctx, url):
    pub = ctx.socket("pub", bind=url, send_hwm=5, on_full="disconnect", send_buffer=4096)
    stream = pub.events()
    slow = ctx.socket("sub", connect=pub.endpoints[0], topics=b"a", recv_hwm=5, recv_buffer=4096,
                      reconnect=None)
    pub.wait_subscribers(b"a", timeout=5)
    first = pub.peers()[0]
    while first in pub.peers():
        pub.send(b"a" * 100_000)
    told = [(event.kind, event.peer) for event in iter_ready(stream)]
    assert told.count(("TooSlow", first)) == 1
    assert ("Disconnected", first) in told
    counts = pub.stats().peers[first]
    assert counts.offered == counts.written + sum(counts.dropped.values())
    slow.close(0)
    pub.on_full = "pattern"
    again = ctx.socket("sub", connect=pub.endpoints[0], topics=b"b", recv_hwm=5)
    pub.wait_subscribers(b"b", timeout=5)
    pub.send_many([b"b" * 100_000] * 1000)
    assert len(pub.peers()) == 1 and again.recv(timeout=5)
    assert "TooSlow" not in [event.kind for event in taken(stream)]


def test_context_defaults_reach_the_patterns_they_are_for():
    with mq.Context(on_full="drop_new", conflate=True) as context:
        push, pull, req = (context.socket(name) for name in ("push", "pull", "req"))
        assert push.on_full == "drop_new" and pull.on_full == req.on_full == "pattern"
        assert push.conflate and pull.conflate and not req.conflate


# -- every option, as the table has it -------------------------------------------------------------

ROWS = table.table(registry.all_options())
CASES = [(name, pattern) for name, row in ROWS.items() for pattern in row.patterns or ("dealer",)]
#: cannot change once the socket is open
BORN_WITH = {"routing_id", "metadata", "conflate"}


def another(row):
    """A value that is allowed and not the default."""
    if row.type == "choices":
        return row.range
    if row.type == "choice":
        return next(word for word in row.range if word not in (row.default, "drop_old"))
    if row.type == "seconds":
        return min(5.0, float(row.range[1]))
    values = {"int": 3, "size": 1 << 20, "bool": not row.default, "bytes": b"abc",
              "text": "least_loaded" if row.name == "strategy" else "text", "secret": "s3cret",
              "metadata": {"a": b"b"}, "security": mq.security.Null(),
              "object": None if row.type != "object" else row.range[0]}
    value = values[row.type]
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if value is ssl.SSLContext else value


@pytest.mark.parametrize(("name", "pattern"), CASES)
def test_every_option_is_an_attribute(name, pattern):
    row = ROWS[name]
    with mq.Context() as context, context.socket(pattern) as sock:
        assert getattr(sock, name) == row.default
        assert inspect.getdoc(getattr(type(sock), name))
        value = another(row)
        assert value != row.default
        if "socket" not in row.scope:
            with pytest.raises(mq.OptionError, match=f"{name}.*(cannot be set per socket|belongs)"):
                setattr(sock, name, value)
        elif name in BORN_WITH:
            with pytest.raises(mq.OptionError, match=f"{name}.*cannot be changed on an open"):
                setattr(sock, name, value)
        else:
            setattr(sock, name, value)
            assert getattr(sock, name) == value
            return
        assert getattr(sock, name) == row.default


@pytest.mark.parametrize(("name", "pattern"),
                         [case for case in CASES if "socket" in ROWS[case[0]].scope])
def test_every_option_as_keyword_and_context_default(name, pattern):
    value = another(ROWS[name])
    if name == "conflate":
        pattern = "push"
    with mq.Context(**{name: value}) as context, context.socket(pattern) as sock:
        assert getattr(sock, name) == value
    with mq.Context() as context, context.socket(pattern, **{name: value}) as sock:
        assert getattr(sock, name) == value


def test_our_own_link_options_are_known_without_loading_their_plugins():
    assert set(LINK_OPTIONS) == {row.name for row in registry.link_options()}


def test_what_belongs_to_a_transport_is_looked_at_by_what_connects_later(ctx):
    dealer = ctx.socket("dealer")
    with pytest.raises(mq.OptionError, match="ring"):
        dealer.ring = "large"
    dealer.tls_min_version = "1.3"
    with pytest.raises(mq.OptionError, match="tls"):
        dealer.bind("tls+tcp://127.0.0.1:0")
    dealer.tls_ca = "/nowhere/ca.pem"
    with pytest.raises(mq.Error, match="/nowhere/ca.pem"):
        dealer.connect("tls+tcp://127.0.0.1:5555")
