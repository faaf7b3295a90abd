"""Hooks of a device: what each does with a message, what it counts, and how it fails."""

import threading
from functools import partial

import pytest
from programs import run

import mqcore as mq
from mqcore.testing import until

LONG = 60


@pytest.fixture
def streamer(ctx):
    """streamer(hooks) gives (a push, a pull, the device between); they count the same messages."""
    def make(*hooks, **options):
        front = ctx.socket("pull", bind="inproc://hooks-front")
        back = ctx.socket("push", bind="inproc://hooks-back")
        push = ctx.socket("push", connect="inproc://hooks-front")
        pull = ctx.socket("pull", connect="inproc://hooks-back")
        device = mq.device(front, back, hooks=list(hooks), **options)
        started.append(device)
        return push, pull, device
    started = []
    yield make
    for device in started:
        device.stop(0)


def seen(device, place=0):
    """How many messages a hook has seen."""
    stats = device.stats().hooks[place]
    return stats.passed + stats.changed + stats.dropped + stats.sampled_out + stats.failed


# -- filter and transform --------------------------------------------------------------------------

def test_a_filter_drops_and_counts(streamer):
    push, pull, device = streamer(mq.Hook.filter(lambda m: m.body != b"no", name="wanted"))
    for body in (b"a", b"no", b"b", b"no", b"c"):
        push.send(body)
    assert [pull.recv(timeout=LONG) for _ in range(3)] == [b"a", b"b", b"c"]
    until(lambda: seen(device) == 5, LONG)
    stats = device.stats()
    assert stats.hooks == (mq.HookStats("wanted", "filter", passed=3, dropped=2),)
    assert (stats.forth, stats.forth_bytes) == (3, 3)


@pytest.mark.parametrize(("result", "parts"), [
    (b"new", [b"new"]), ([b"1", b"", bytearray(b"3")], [b"1", b"", b"3"]), ((b"",), [b""]),
    (b"x" * 3000, [b"x" * 3000]), (memoryview(b"y" * 100_000), [b"y" * 100_000])])
def test_a_transform_replaces_the_body(streamer, result, parts):
    push, pull, device = streamer(lambda m: result)
    push.send_parts([b"old", b"parts"])
    assert pull.recv_parts(timeout=LONG) == parts
    assert device.stats().hooks[0].changed == 1


def test_a_transform_passes_drops_and_keeps_what_it_was_shown(streamer):
    kept = []

    def look(message):
        kept.append(message)
        return message if len(message) > 5 else None

    push, pull, device = streamer(look)
    push.send(b"small")
    push.send_parts([b"topic", b"z" * 10_000])
    assert pull.recv_parts(timeout=LONG) == [b"topic", b"z" * 10_000]
    assert device.stats().hooks == (
        mq.HookStats(device.hooks[0].name, "transform", passed=1, dropped=1),)
    device.stop(0)
    small, large = kept
    assert (small.body, small.topic, small.direction) == (b"small", None, "forth")
    assert (large.topic, large.body, bytes(large)) == (b"topic", b"z" * 10_000,
                                                       b"topic" + b"z" * 10_000)
    assert isinstance(large.parts[1], memoryview) and small.peer_id > 0


def test_hooks_run_in_order_and_one_burst_passes_them_all(streamer):
    push, pull, device = streamer(
        lambda m: m.body + b"1", mq.Hook.filter(lambda m: not m.body.startswith(b"7")),
        lambda m: m.body + b"2")
    count = 3000
    sender = threading.Thread(target=lambda: [push.send(b"%d:" % i) for i in range(count)])
    sender.start()
    wanted = [b"%d:12" % i for i in range(count) if not str(i).startswith("7")]
    assert [pull.recv(timeout=LONG) for _ in wanted] == wanted
    sender.join(LONG)
    first, second, third = device.stats().hooks
    assert (first.changed, second.passed, third.changed) == (count, len(wanted), len(wanted))
    assert second.dropped == count - len(wanted)


# -- envelopes -------------------------------------------------------------------------------------

@pytest.mark.parametrize("ends", [("req", "router", "dealer", "rep"),
                                  ("surveyor", "respondent", "surveyor", "respondent")])
def test_a_hook_sees_the_body_and_the_envelope_stays(ctx, ends):
    asker, front, back, answerer = (ctx.socket(name) for name in ends)
    front.bind("inproc://h-front")
    back.bind("inproc://h-back")
    asker.connect("inproc://h-front")
    answerer.connect("inproc://h-back")
    shown = []

    def look(message):
        shown.append((message.direction, list(message.parts), len(message.envelope) > 0))
        return message.body.upper()

    for end in (front, back):
        end.wait_peers(1, LONG)
    with mq.device(front, back, hooks=[mq.Hook.transform(look, direction="both")]):
        asker.send(b"ask")
        message = answerer.recv_msg(timeout=LONG)
        assert message.body == b"ASK"
        message.reply(b"answer")
        assert asker.recv(timeout=LONG) == b"ANSWER"
    assert shown == [("forth", [b"ask"], True), ("back", [b"answer"], True)]


def test_a_dealer_without_an_empty_part_keeps_its_address(ctx):
    with mq.device(ctx.socket("router", bind="inproc://h-r"),
                   ctx.socket("dealer", bind="inproc://h-d"),
                   hooks=[mq.Hook.transform(lambda m: [*m.parts, b"+"], direction="both")]):
        client = ctx.socket("dealer", connect="inproc://h-r")
        worker = ctx.socket("router", connect="inproc://h-d")
        client.send(b"only a body")
        *address, body, plus = worker.recv_parts(timeout=LONG)
        assert (len(address), body, plus) == (2, b"only a body", b"+")
        worker.send_parts([*address, b"back"])
        assert client.recv_parts(timeout=LONG) == [b"back", b"+"]


def test_subscriptions_are_not_shown_to_hooks(ctx):
    front, back = ctx.socket("xsub", bind="inproc://h-p"), ctx.socket("xpub", bind="inproc://h-s")
    for direction in ("back", "both"):
        with pytest.raises(mq.UsageError, match="would see subscriptions.*direction='forth'"):
            mq.device(front, back, hooks=[mq.Hook.sample(0.5, direction=direction)])
    with mq.device(front, back, hooks=[mq.Hook.filter(lambda m: m.body != b"a no")]) as device:
        pub, sub = ctx.socket("pub", connect="inproc://h-p"), ctx.socket("sub")
        sub.subscribe("a")
        sub.connect("inproc://h-s")
        pub.wait_subscribers("a", timeout=LONG)
        pub.send(b"a no")
        pub.send(b"a yes")
        assert sub.recv(timeout=LONG) == b"a yes"
        assert device.stats().hooks[0].dropped == 1


# -- sampling and taps -----------------------------------------------------------------------------

def test_a_sample_is_repeatable_and_counted(streamer):
    push, pull, device = streamer(mq.Hook.sample(0.25, seed=7))
    count = 4000
    sender = threading.Thread(target=lambda: [push.send(b"%d" % i) for i in range(count)])
    sender.start()
    until(lambda: seen(device) == count, LONG)
    sender.join(LONG)
    stats = device.stats().hooks[0]
    assert 850 < stats.passed < 1150 and stats.passed + stats.sampled_out == count
    first = [pull.recv(timeout=LONG) for _ in range(20)]
    device.stop(0)
    push, pull, device = streamer(mq.Hook.sample(0.25, seed=7))
    for i in range(200):
        push.send(b"%d" % i)
    assert [pull.recv(timeout=LONG) for _ in range(20)] == first


def test_a_rate_of_one_takes_everything(streamer):
    push, pull, device = streamer(mq.Hook.sample(1))
    for i in range(500):
        push.send(b"%d" % i)
    assert [pull.recv(timeout=LONG) for _ in range(500)] == [b"%d" % i for i in range(500)]
    assert device.stats().hooks[0].sampled_out == 0


def test_a_tap_copies_the_body_to_a_socket_and_counts_what_does_not_fit(ctx, streamer):
    tap = ctx.socket("push", bind="inproc://h-tap", send_hwm=5)
    watcher = ctx.socket("pull", connect="inproc://h-tap", recv_hwm=5)
    tap.wait_peers(1, LONG)
    push, pull, device = streamer(mq.Hook.tap(tap), mq.Hook.filter(lambda m: m.body != b"0"))
    for i in range(100):
        push.send_parts([b"t", b"%d" % i])
    for i in range(1, 100):
        assert pull.recv_parts(timeout=LONG) == [b"t", b"%d" % i]     # a full tap delays nothing
    stats = device.stats().hooks[0]
    assert (stats.passed, stats.tapped + stats.tap_dropped) == (100, 100)
    assert stats.tap_dropped > 0
    assert [watcher.recv_parts(timeout=LONG) for _ in range(2)] == [[b"t", b"0"], [b"t", b"1"]]
    with pytest.raises(mq.UsageError, match="a device owns this socket"):
        tap.send(b"x")
    assert len(device.stop(0)) == 3 and tap.closed


def test_a_tap_of_a_queue_has_no_envelope(ctx):
    tap = ctx.socket("pair", bind="inproc://h-tap")
    watcher = ctx.socket("pair", connect="inproc://h-tap")
    tap.wait_peers(1, LONG)
    with mq.device(ctx.socket("router", bind="inproc://h-r"),
                   ctx.socket("dealer", bind="inproc://h-d"), hooks=[mq.Hook.tap(tap)]):
        rep, req = ctx.socket("rep", connect="inproc://h-d"), ctx.socket(
            "req", connect="inproc://h-r")
        req.send(b"question")
        assert rep.recv_msg(timeout=LONG).body == b"question"
        assert watcher.recv_parts(timeout=LONG) == [b"question"]


def test_a_tap_may_be_a_function_and_its_errors_delay_nothing(streamer):
    heard = []

    def tap(message):
        heard.append(message.body)
        if message.body == b"b":
            raise ValueError("ink is out")

    push, pull, device = streamer(mq.Hook.tap(tap, name="log"))
    for body in (b"a", b"b", b"c"):
        push.send(body)
    assert [pull.recv(timeout=LONG) for _ in range(3)] == [b"a", b"b", b"c"] == heard
    assert device.stats().hooks[0] == mq.HookStats(
        "log", "tap", passed=2, failed=1, tapped=2, last_error="ValueError: ink is out")


def test_an_error_that_has_no_text_hides_nothing(streamer):
    class Mute(Exception):
        def __str__(self):
            raise OSError

    def tap(message):
        raise Mute

    push, pull, device = streamer(mq.Hook.tap(tap))
    push.send(b"a")
    assert pull.recv(timeout=LONG) == b"a"
    assert device.stats().hooks[0].last_error == \
        "Mute: its text is unknown, since __str__() raised OSError"


def test_one_part_taps_refuse_what_they_cannot_carry(ctx, streamer):
    tap = ctx.socket("scatter", bind="inproc://h-tap")
    watcher = ctx.socket("gather", connect="inproc://h-tap")
    tap.wait_peers(1, LONG)
    push, pull, device = streamer(mq.Hook.tap(tap))
    for parts in ([b"1"], [b"2", b"2"], [b"3"]):
        push.send_parts(parts)
    for parts in ([b"1"], [b"2", b"2"], [b"3"]):
        assert pull.recv_parts(timeout=LONG) == parts
    assert [watcher.recv(timeout=LONG) for _ in range(2)] == [b"1", b"3"]
    stats = device.stats().hooks[0]
    assert (stats.tapped, stats.tap_dropped) == (2, 1)


# -- compiled hooks --------------------------------------------------------------------------------

def test_a_compiled_hook_from_an_object_a_capsule_and_a_name(streamer):
    native = pytest.importorskip("mqcore.testing.native.hook_samples")
    push, pull, device = streamer(mq.Hook.compiled(native.Upper(), name="upper"),
                                  mq.Hook.compiled(native.upper),
                                  mq.Hook.compiled("mqcore.testing.native.hook_samples:upper"))
    for parts in ([b"abc"], [b""], [b"two", b"parts"], [b"ABC"], [b"d" * 5000]):
        push.send_parts(parts)
    assert [pull.recv_parts(timeout=LONG) for _ in range(3)] == [
        [b"ABC"], [b"ABC"], [b"D" * 5000]]
    first, second, third = device.stats().hooks
    assert first == mq.HookStats("upper", "compiled", passed=1, changed=2, dropped=1, failed=1,
                                 last_error="it takes bodies of one part")
    assert (second.passed, third.passed, third.name) == (
        3, 3, "mqcore.testing.native.hook_samples:upper")


def test_the_text_of_a_compiled_hook_is_that_of_its_last_failure(streamer):
    native = pytest.importorskip("mqcore.testing.native.hook_samples")
    push, pull, device = streamer(mq.Hook.compiled(native.picky, name="picky"),
                                  mq.Hook.compiled(native.upper))
    for body in (b"ABC", b"!", b"ABC"):
        push.send(body)
    assert [pull.recv(timeout=LONG) for _ in range(2)] == [b"ABC", b"ABC"]
    picky, upper = device.stats().hooks
    assert picky == mq.HookStats("picky", "compiled", passed=2, failed=1, last_error="!")
    assert (upper.failed, upper.last_error) == (0, "")


def test_a_compiled_hook_that_changes_a_message_needs_a_new_body(streamer):
    """Its failure has a text of its own, not that of the failure before."""
    native = pytest.importorskip("mqcore.testing.native.hook_samples")
    push, pull, device = streamer(mq.Hook.compiled(native.picky, name="picky"))
    for body in (b"!", b"?", b"ABC"):
        push.send(body)
    assert pull.recv(timeout=LONG) == b"ABC"
    picky, = device.stats().hooks
    assert (picky.passed, picky.failed) == (1, 2)
    assert picky.last_error.startswith("it changed a message and pushed no new body")


def test_a_compiled_hook_for_another_version_is_refused(ctx):
    native = pytest.importorskip("mqcore.testing.native.hook_samples")
    with pytest.raises(mq.PluginError, match="made for another version.*build it again"):
        mq.device(ctx.socket("pull"), ctx.socket("push"),
                  hooks=[mq.Hook.compiled(native.foreign)])


# -- failures --------------------------------------------------------------------------------------

@pytest.mark.parametrize(("result", "text"), [
    ("text", "UsageError: a message is bytes, not str"), ([], "message without parts"),
    (5, "cannot send int"), ([b"a", "b"], "not str")])
def test_what_is_no_message_is_a_failure(streamer, result, text):
    push, pull, device = streamer(lambda m: result if m.body == b"bad" else m)
    push.send(b"bad")
    push.send(b"good")
    assert pull.recv(timeout=LONG) == b"good"
    stats = device.stats().hooks[0]
    assert (stats.passed, stats.failed) == (1, 1) and text in stats.last_error
    assert device.running


def test_stop_ends_the_device_with_the_error_and_counts_the_rest(streamer):
    def fail(message):
        if message.body == b"3":
            raise ValueError("three")
        return message

    push, pull, device = streamer(
        mq.Hook.transform(fail, on_error="stop", name="no threes"))
    device.pause()
    for i in range(6):
        push.send(b"%d" % i)
    device.resume()
    with pytest.raises(mq.HookError, match=r"'no threes'.*ValueError: three.*has stopped") as error:
        device.wait_stopped(LONG)
    assert error.value.hook == "no threes" and isinstance(error.value.__cause__, ValueError)
    assert [pull.recv(timeout=LONG) for _ in range(3)] == [b"0", b"1", b"2"]
    stats = device.stats()
    assert (stats.forth, stats.hooks[0].passed, stats.hooks[0].failed) == (3, 3, 1)
    assert stats.discarded <= 2
    device.stop(0)


def test_a_keyboard_interrupt_in_a_hook_stops_the_device(streamer):
    def interrupted(message):
        raise KeyboardInterrupt

    push, _, device = streamer(mq.Hook.tap(interrupted))
    push.send(b"x")
    with pytest.raises(mq.HookError, match="KeyboardInterrupt"):
        device.wait_stopped(LONG)


def test_a_hook_cannot_use_or_stop_its_own_device(streamer):
    errors = []

    def tries(message):
        for call in (device.stop, lambda: device.back.send(b"x"), device.front.close,
                     device.back.context.close):
            try:
                call()
            except mq.Error as error:
                errors.append(str(error))
        return message

    push, pull, device = streamer(tries)
    push.send(b"x")
    assert pull.recv(timeout=LONG) == b"x"
    assert "a hook cannot stop its own device" in errors[0]
    assert "a device owns this socket" in errors[1]
    assert len(errors) == 4 and all("cannot close a socket" in error for error in errors[2:])
    assert device.running


def test_a_filter_that_returns_a_coroutine_fails(streamer):
    async def wanted(message):
        return False

    push, pull, device = streamer(mq.Hook.filter(
        lambda m: wanted(m) if m.body == b"bad" else m.body))
    for body in (b"bad", b"", b"good"):
        push.send(body)
    assert pull.recv(timeout=LONG) == b"good"
    stats = device.stats().hooks[0]
    assert (stats.passed, stats.dropped, stats.failed) == (1, 1, 1)
    assert "returned a coroutine" in stats.last_error


def test_what_does_not_end_up_anywhere_is_counted(ctx):
    front, back = ctx.socket("pull", bind="inproc://h-1"), ctx.socket("push", send_hwm=1)
    device = mq.device(front, back)
    back_peer = ctx.socket("pull", bind="inproc://h-2", recv_hwm=1)
    assert device.stats().discarded == 0
    device.stop(0)
    back_peer.close()
    assert device.stats().discarded == 0


async def _coroutine(message):
    return message


class _Awaited:
    async def __call__(self, message):
        return False


@pytest.mark.parametrize(("make", "text"), [
    (lambda: mq.Hook.filter(3), "must be a function, not int"),
    (lambda: mq.Hook.filter(_coroutine), "coroutine function"),
    (lambda: mq.Hook.filter(partial(_coroutine)), "coroutine function"),
    (lambda: mq.Hook.filter(_Awaited()), "the hook _Awaited is a coroutine function"),
    (lambda: mq.Hook.filter("no.such.module:f"), "cannot be imported: ModuleNotFoundError"),
    (lambda: mq.Hook.filter("nonsense"), "package.module:name"),
    (lambda: mq.Hook.sample(0), "not a fraction"), (lambda: mq.Hook.sample(1.5), "not a fraction"),
    (lambda: mq.Hook.sample(True), "not a fraction"),
    (lambda: mq.Hook.sample(0.5, seed=-1), "no seed"),
    (lambda: mq.Hook.filter(bool, direction="up"), "no direction 'up'"),
    (lambda: mq.Hook.filter(bool, on_error="pass"), "use 'drop' or 'stop'"),
    (lambda: mq.Hook.tap(print, on_error="drop"), "use 'pass' or 'stop'"),
    (lambda: mq.Hook.tap(print, sample=0.1), "takes no sample"),
    (lambda: mq.Hook.filter(bool, name=3), "is text, not int")])
def test_bad_hooks_are_refused(make, text):
    with pytest.raises(mq.UsageError, match=text):
        make()


def test_bad_lists_and_sockets_are_refused(ctx):
    front, back = ctx.socket("pull"), ctx.socket("push")
    for hooks, text in ((print, "takes a list"), ([mq.Hook.sample(1)] * 65, "at most 64"),
                        ([3], "must be a function"),
                        ([mq.Hook.tap(ctx.socket("pull"))], "pull socket cannot be the tap"),
                        ([mq.Hook.tap(ctx.socket("router"))], "router socket cannot be the tap"),
                        ([mq.Hook.tap(back)], "a device owns this socket"),
                        ([mq.Hook.compiled(object())], "is no compiled hook")):
        with pytest.raises(mq.UsageError, match=text):
            mq.device(front, back, hooks=hooks)
    with mq.device(front, back) as device:
        assert device.running and device.stats().hooks == ()


STUCK = """
import sys, threading, mqcore as mq
from mqcore.api import running
running.EXIT = 0.1
ctx = mq.Context()
front, back = mq.Pull(bind="inproc://f", context=ctx), mq.Push(bind="inproc://b", context=ctx)
source = mq.Push(connect="inproc://f", context=ctx)
sink = mq.Pull(connect="inproc://b", context=ctx)
entered, never = threading.Event(), threading.Event()
def stuck(message):
    entered.set()
    exec(sys.argv[1])
kept = mq.device(front, back, hooks=[mq.Hook.filter(stuck, name="stuck")])
source.send(b"x")
assert entered.wait(60)
"""


@pytest.mark.parametrize("code", ["never.wait()", "while True: pass"])
def test_a_hook_that_never_returns_does_not_keep_the_program(code):
    status, _, err = run("-c", STUCK, code)
    assert status == 0
    assert "<Device pull <-> push running> was left behind at the end of the program" in err
    assert "Traceback" not in err


def test_a_thread_that_has_the_identity_of_a_device_that_has_ended_may_stop_it(streamer):
    def fail(message):
        raise ValueError

    push, _, device = streamer(mq.Hook.filter(fail, on_error="stop"))
    push.send(b"x")
    with pytest.raises(mq.HookError):
        device.wait_stopped(LONG)
    device._thread.join()
    device._thread._thread._ident = threading.get_ident()  # the system gives it to a later thread
    assert len(device.stop(0)) == 2
