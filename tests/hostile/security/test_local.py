"""Null(allow=): peers that are known without keys: users of this machine, whom the kernel names."""

import os
import threading

import pytest
from rawzmtp import COMMAND, GREETING, RawPeer, frame, message, ready
from waiting import until

import mqcore as mq
from mqcore.security import AuthResult, Null, Plain

ME = os.getuid()


@pytest.fixture
def meet(ctx, told, tmp_path):
    """meet(bound's, connecting's) -> the bound one's peer, or the reasons of both sides."""
    def run(ours, theirs, where=None):
        with mq.Pull(context=ctx, security=ours) as pull, \
                mq.Push(context=ctx, security=theirs) as push:
            reasons = told(pull), told(push)
            push.connect(pull.bind(where or f"ipc://{tmp_path}/s").url, reconnect=None)
            assert until(lambda: pull.peers() or pull.stats().failed_handshakes)
            if pull.peers():
                push.send(b"hello")
                assert pull.recv() == b"hello"
                return pull.peers()[0]
            assert pull.stats().failed_handshakes == 1
            return tuple(reason() for reason in reasons)
    return run


@pytest.mark.parametrize("allow, user", [
    ({ME}, str(ME)), ([ME + 1, ME], str(ME)), ({ME: "ann"}, "ann"), (lambda asking: "bob", "bob"),
    (lambda asking: True, None)])
@pytest.mark.parametrize("theirs", [None, Null(), Null(allow={ME})])
def test_users_who_come_in(meet, allow, user, theirs):
    peer = meet(Null(allow=allow), theirs)
    assert (peer.user, peer.pid, dict(peer.metadata)) == (user, os.getpid(), {})


def test_users_who_do_not(meet):
    here, there = meet(Null(allow={ME + 1}), None)
    assert here == f"we refused the peer (400): its user id {ME} is not among those allowed"
    assert "the peer refused: 400" in there
    here, there = meet(None, Null(allow={ME + 1}))   # who connects may judge, too
    assert "the peer refused: 400" in here and "we refused the peer (400)" in there
    here, _ = meet(Null(allow={ME}), None, "tcp://127.0.0.1:0")
    assert "allow= with user ids needs ipc://" in here


def test_a_callable_is_told_who_asks(meet):
    asked = []

    def allow(asking):
        asked.append(asking)
        return AuthResult(user="ann", metadata={"team": b"blue"})
    peer = meet(Null(allow=allow, domain="lab"), Null())
    assert (peer.user, peer.metadata) == ("ann", {"team": b"blue"})
    (asking,) = asked
    assert (asking.mechanism, asking.domain, asking.credentials) == ("NULL", "lab", ())
    assert (asking.pid, asking.uid, asking.gid) == (os.getpid(), ME, os.getgid())
    meet(Null(allow=allow), None, "tcp://127.0.0.1:0")
    assert (asked[1].address, asked[1].uid, asked[1].pid) == ("127.0.0.1", None, None)
    meet(Plain(allow=allow), Plain("ann", "pw"))
    assert (asked[2].username, asked[2].uid) == ("ann", ME)


def test_who_goes_on_before_the_verdict(ctx, told, tmp_path):
    """READY may come before it, and nothing else."""
    go = threading.Event()
    with mq.Pull(context=ctx, security=Null(allow=lambda asking: go.wait(30))) as pull:
        reason = told(pull)
        url = pull.bind(f"ipc://{tmp_path}/s").url
        for said, why in (
                (ready("PUSH") + message(b"x"), "sent a message before the handshake was complete"),
                (ready("PUSH") + ready("PUSH"), "went on before it was answered"),
                (ready("PUB"), "is a PUB socket, which does not fit PULL"),
                (frame(b"\5READY\x0bSock", COMMAND), "'s READY is malformed"),
                (frame(b"", COMMAND), "sent something else than READY"),
                (frame(b"\5ERROR\x03400", COMMAND), "refused: 400")):
            with RawPeer.connect(url) as hasty:
                hasty.say(GREETING + said)
                assert reason() in (f"the peer {why}", f"the peer{why}") and hasty.ended()
        with RawPeer.connect(url) as patient:
            for byte in GREETING + ready("PUSH"):
                patient.say(bytes((byte,)))
            patient.hear(64)
            go.set()
            assert patient.frame()[1].startswith(b"\5READY")
            patient.say(message(b"y"))
            assert pull.recv() == b"y"
        with RawPeer.connect(url) as late:       # the verdict comes first
            late.say(GREETING)
            late.hear(64)
            assert late.frame()[1].startswith(b"\5READY")
            late.say(frame(b"\5HELLO", COMMAND))
            assert "HELLO instead of READY" in reason()


def test_old_peers_cannot_be_refused(ctx, told, tmp_path):
    with mq.Pull(context=ctx, security=Null(allow={ME})) as pull:
        reason = told(pull)
        with RawPeer.connect(pull.bind(f"ipc://{tmp_path}/s").url) as raw:
            raw.say(GREETING[:10] + b"\1\x08" + b"\0\0")
            assert "ZMTP 2.0, where nobody can be refused" in reason()


def test_wrong_arguments(ctx):
    for wrong in ({"ann"}, [True], [-1], {"ann": 1}):
        with pytest.raises(mq.OptionError, match="user ids, which are numbers"):
            Null(allow=wrong)
    with pytest.raises(mq.OptionError, match="SP has no mechanism"):
        mq.Bus(context=ctx, security=Null(allow={ME}), bind="tcp://127.0.0.1:0")
    with pytest.raises(mq.NotSupported, match="is not a stream"):
        mq.Pair(context=ctx, security=Null(allow={ME}), bind="shm:///tmp/mqcore-none")
    assert repr(Null()) == "Null()" and str(ME) not in repr(Null(allow={ME}))
