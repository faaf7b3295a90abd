"""PLAIN's and CURVE's handshake in both roles, each step with everything that may come instead of
what is due: cut short, longer, with a bit that differs, said before or after its time, said twice.

What CURVE's commands have inside is test_curve_steps.py's.
"""

import pytest
from mqcore.testing.native.probe import Probe
from probing import flipped, say
from rawcurve import Client, Server, greeting
from rawzmtp import COMMAND, LONG, MORE, frame, prop

import mqcore as mq

PUSH, PULL = prop(b"Socket-Type", b"PUSH"), prop(b"Socket-Type", b"PULL")
LOGIN = b"\5HELLO\3ann\2pw"
STRAY = (b"", b"\0", b"\xff" * 40, b"\5ERROR\x03400", b"\5ERROR\x09400", b"^RROR\x03400",
         b"\4PING\0\0", b"\7MESSAGE" + bytes(40), b"\5READY" + PUSH, b"\5HELLO", b"\7WELCOME",
         b"\x08INITIATE")
REFUSALS = ([], [b"\5ERROR\x03400"], [b"^RROR\x03400"])
by_step = pytest.mark.parametrize("step", ["HELLO", "WELCOME", "INITIATE", "READY"])
by_mechanism = pytest.mark.parametrize("mechanism", ["PLAIN", "CURVE"])


class Talk:
    """One of ours, to whom `due` is what should be said next; `said` is what both said so far."""

    def __init__(self, mechanism, step, server_keys, client_keys, allow=None):
        self.serves = step in ("HELLO", "INITIATE")
        ours, theirs = {
            ("PLAIN", True): (mq.security.Plain(allow=allow or {"ann": "pw"}), None),
            ("PLAIN", False): (mq.security.Plain("ann", "pw"), None),
            ("CURVE", True): (mq.security.Curve(secret_key=server_keys.secret,
                                       allow=allow or {client_keys.public}),
                              Client(client_keys.raw, server_keys.raw[0])),
            ("CURVE", False): (mq.security.Curve(server_keys.public, secret_key=client_keys.secret),
                               Server(server_keys.raw)),
        }[mechanism, self.serves]
        pattern, peer = ("PULL", "PUSH") if self.serves else ("PUSH", "PULL")
        self.probe = Probe(pattern, (peer,), security=ours,
                           codec="zmtp-curve" if theirs else "zmtp")
        self.said, self.theirs = [], theirs
        start = self.probe.start(listening=self.serves)
        status, _, answer = self.probe.feed(greeting(mechanism.encode(), server=not self.serves))
        assert status == "need_data" and (start + answer)[:64] == greeting(
            mechanism.encode(), server=self.serves)
        self.said += [(start + answer)[66:]] if not self.serves else []
        first = "HELLO" if self.serves else "WELCOME"
        self.due = self._make(first)
        if step != first:
            status, answers = self.next()
            assert status == "need_data"
            self.said += answers
            self.due = self._make(step)

    def _make(self, step):
        if self.theirs is None:
            return {"HELLO": LOGIN, "WELCOME": b"\7WELCOME", "INITIATE": b"\x08INITIATE" + PUSH,
                    "READY": b"\5READY" + PULL}[step]
        if step == "WELCOME":
            self.theirs.hello(self.said[-1])
        elif step == "INITIATE":
            self.theirs.welcome(self.said[-1])
        elif step == "READY":
            self.theirs.initiate(self.said[-1])
        return getattr(self.theirs, step.lower())()

    def next(self):
        self.said.append(self.due)
        return say(self.probe, self.due)

    def refuses(self, body, flags=COMMAND):
        """With a reason, and without a word but that it does; and that is the end."""
        status, answers = say(self.probe, body, flags)
        assert status == "protocol" and answers in REFUSALS, (body, status, answers)
        assert self.probe.reason


@pytest.fixture
def talk(server_keys, client_keys):
    return lambda mechanism, step, allow=None: Talk(
        mechanism, step, server_keys, client_keys, allow)


@by_mechanism
@by_step
def test_what_is_due_is_taken(talk, mechanism, step):
    """In one piece and byte by byte."""
    last = step in ("INITIATE", "READY")
    assert talk(mechanism, step).next()[0] == ("done" if last else "need_data")
    it = talk(mechanism, step)
    *before, end = frame(it.due, COMMAND)
    for byte in before:
        assert it.probe.feed(bytes([byte])) == ("need_data", 1, b"")
    assert it.probe.feed(bytes([end]))[0] == ("done" if last else "need_data")


@by_mechanism
@by_step
def test_cut_short_or_longer(talk, mechanism, step):
    due = talk(mechanism, step).due
    # of PLAIN's, a command without properties is whole
    whole = {"INITIATE": 9, "READY": 6}.get(step) if mechanism == "PLAIN" else None
    for n in range(len(due)):
        if n != whole:
            it = talk(mechanism, step)
            it.refuses(it.due[:n])
    for more in (b"\0", b"\xff" * 1000):
        it = talk(mechanism, step)
        it.refuses(it.due + more)


@by_mechanism
@by_step
def test_a_bit_that_differs(talk, mechanism, step, rng):
    size = len(talk(mechanism, step).due)
    if mechanism == "PLAIN":        # properties are words in the clear: others are other properties
        size = {"INITIATE": 9, "READY": 6}.get(step, size)
    filler = range(8, 80) if (mechanism, step) == ("CURVE", "HELLO") else ()
    for at in range(size):
        if at not in filler:
            it = talk(mechanism, step)
            it.refuses(flipped(it.due, at, 1 << rng.randrange(7)))    # X25519 ignores a top bit


@by_mechanism
@by_step
def test_something_else(talk, mechanism, step):
    """Each command of another step, of another connection, or none at all."""
    others = [talk(mechanism, other).due for other in ("HELLO", "WELCOME", "INITIATE", "READY")]
    if mechanism == "PLAIN":
        others = [body for body in others if body != talk(mechanism, step).due]
    legal = {"WELCOME": b"\7WELCOME", "INITIATE": b"\x08INITIATE"}.get(step)
    for body in (*others, *STRAY):
        if mechanism == "PLAIN" and (body == legal or step == "READY" and body[:6] == b"\5READY"):
            continue
        if mechanism == "CURVE" and step == "HELLO" and body[:6] == b"\5HELLO" and len(body) == 200:
            continue            # whoever says it: it is a HELLO
        talk(mechanism, step).refuses(body)


@by_mechanism
@by_step
def test_said_twice(talk, mechanism, step):
    it = talk(mechanism, step)
    status, _ = it.next()
    if status != "done":
        for body in it.said:        # ours, thrown back, are no better
            again = talk(mechanism, step)
            again.next()
            again.refuses(body)
        it.refuses(it.due)
    elif mechanism == "CURVE":
        assert it.probe.decode(frame(it.due, COMMAND)) == ("protocol", [])
        assert "in the clear" in it.probe.reason
    else:                           # a command that is passed over, as after NULL's handshake
        assert it.probe.decode(frame(it.due, COMMAND)) == ("need_data", [])


@by_mechanism
@by_step
def test_frames_that_are_no_command_or_too_long(talk, mechanism, step):
    for flags in (0, MORE, MORE | COMMAND):
        it = talk(mechanism, step)
        it.refuses(it.due, flags)
    longest = {"PLAIN": 518, "CURVE": 200}[mechanism] if step == "HELLO" else 64 * 1024
    for size in (longest + 1, 1 << 40, 1 << 63, (1 << 64) - 1):     # by its header alone
        it = talk(mechanism, step)
        head = bytes((COMMAND | LONG,)) + size.to_bytes(8, "big")
        assert it.probe.feed(head)[0] == "protocol" and "longer than" in it.probe.reason
    it = talk(mechanism, step)
    assert it.probe.feed(bytes((COMMAND | LONG,)) + longest.to_bytes(8, "big"))[0] == "need_data"


@pytest.mark.parametrize("user, password", [
    ("ann", "pv"), ("ann", ""), ("", "pw"), ("", ""), ("anna", "pw"), ("an", "npw"),
    ("x" * 255, "y" * 255),
])
def test_no_such_login(talk, user, password):
    it = talk("PLAIN", "HELLO")
    body = b"\5HELLO" + bytes([len(user)]) + user.encode() + bytes([len(password)])
    assert say(it.probe, body + password.encode()) == ("protocol", [b"^RROR\x03400"])


@pytest.mark.parametrize("mechanism, step, spelling", [
    ("PLAIN", "HELLO", b"^RROR"), ("CURVE", "INITIATE", b"\5ERROR")])
def test_while_somebody_thinks_about_it(talk, mechanism, step, spelling):
    """Between proof and verdict nothing may be said; then the verdict is, as a frame."""
    it = talk(mechanism, step, bool)
    assert it.next() == ("need_data", []) and it.probe.asking
    assert it.probe.feed(b"") == ("need_data", 0, b"")
    assert it.probe.feed(b"\4") == ("protocol", 0, b"")
    assert it.probe.reason == "the peer went on before it was answered"
    for code in (400, 500, 300):
        it = talk(mechanism, step, bool)
        it.next()
        assert it.probe.judge(code, b"for a reason") == ("protocol", b"" if code == 300 else frame(
            spelling + b"\x03%d" % code, COMMAND))
        assert it.probe.reason == f"we refused the peer ({code}): for a reason"
    it = talk(mechanism, step, bool)
    it.next()
    status, answer = it.probe.judge(200)
    assert not it.probe.asking and (status, answer[2:8]) == (
        ("need_data", b"\7WELCO") if mechanism == "PLAIN" else ("done", b"\5READY"))
