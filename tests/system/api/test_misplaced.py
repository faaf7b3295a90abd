"""Options and addresses where they do not belong: the error names the right place, or what the user
may have meant."""

import pytest

import mqcore as mq

AT = "tcp://127.0.0.1:5555"


@pytest.fixture(autouse=True)
def no_context_stays():
    """Some of these get as far as the default context."""
    yield
    mq.Context.default().close()


@pytest.mark.parametrize(("make", "says"), [
    (lambda: mq.Sub(retain=1), "'retain' does not apply to sub; it belongs to pub, xpub"),
    (lambda: mq.Push(strict=True), "'strict' does not apply to push; it belongs to req"),
    (lambda: mq.Push(peer_id=b"x"), "'peer_id' cannot be set per socket"),
    (lambda: mq.Push(connect=AT + "?resend=3"),
     r"'resend' cannot be set per endpoint or in a URL; it belongs to the socket \(req\)"),
    (lambda: mq.Req(connect=AT + "?linger=3"), "'linger' cannot be set per endpoint or in a URL"),
    (lambda: mq.Req(connect=AT + "?ring=4096"), "'ring' does not apply to this address.*shm"),
    (lambda: mq.Req(timeout=1), r"'timeout'; give timeout= to the call, as in recv\(timeout=1\)"),
    (lambda: mq.Req(connect=AT, wait=3), r"'wait'; wait= belongs to connect\(\)"),
    (lambda: mq.Context(wait=3), r"'wait'; wait= belongs to connect\(\)"),
    (lambda: mq.Push(topics=["a"]), "'topics'; topics= belongs to sub"),
    (lambda: mq.Push(groups=["a"]), "'groups'; groups= belongs to dish"),
    (lambda: mq.Push(sndhwm=1), "did you mean 'send_hwm'"),
    (lambda: mq.Push(nosuch=1), "known ones: backlog, "),
])
def test_options(make, says):
    with pytest.raises(mq.OptionError, match=says):
        make()


def test_options_of_an_endpoint(ctx):
    push = ctx.socket("push")
    with pytest.raises(mq.OptionError, match=r"'resend' cannot be set per endpoint; .*\(req\)"):
        push.connect(AT, resend=3)
    with pytest.raises(mq.OptionError, match="'recv_hwm' cannot be set per endpoint; .*attribute"):
        push.bind("tcp://127.0.0.1:0", recv_hwm=3)
    with pytest.raises(mq.OptionError, match=r"wait= belongs to connect\(\)"):
        push.bind("tcp://127.0.0.1:0", wait=3)


@pytest.mark.parametrize(("url", "says"), [
    ("tls://h:1", r"'tls' is installed; .*write tls\+tcp://"), ("http://h:1", "write ws://"),
    ("https://h:1", "write wss://"), ("tpc://h:1", "did you mean tcp?"),
    ("unix:///run/x", "write ipc://"), ("tsl+tcp://h:1", "no filter 'tsl'.*did you mean tls?"),
    ("quite-another://h:1", r"installed: .*tcp.*tls\+tcp://")])
def test_schemes(ctx, url, says):
    for call in (ctx.socket("push").connect, ctx.socket("pull").bind):
        with pytest.raises(mq.AddressError, match=says):
            call(url)


@pytest.mark.parametrize("address", [b"tcp://127.0.0.1:5555", bytearray(b"x"), memoryview(b"x"), 5,
                                     None])
def test_addresses_that_are_no_text(ctx, address):
    says = "an address must be text.*" + (
        "tcp://127" if address in (5, None) else "decode it first")
    for call in (ctx.socket("push").connect, ctx.socket("push").bind,
                 lambda at: mq.Push(connect=at), lambda at: mq.Push(bind=[at])):
        with pytest.raises(TypeError, match=says) as caught:
            call(address)
        assert isinstance(caught.value, mq.UsageError)
