"""What programs written for pynng reach for beside its sockets: the constants of its C library,
abstract addresses with any byte in them, the order of callbacks, gevent."""

import subprocess
import sys
import threading
from urllib.parse import unquote_to_bytes

import pytest

import mqcore.nng as ours
from mqcore.testing import until

PATCH = "from gevent import monkey; monkey.patch_all()\n"
PROGRAM = """
{before}import mqcore.nng as pynng
{after}
import threading
seen = []
with pynng.Pair0(recv_timeout=5000) as a, pynng.Pair0(recv_timeout=5000) as b:
    a.add_pre_pipe_connect_cb(lambda pipe: seen.append("pre"))
    a.add_post_pipe_connect_cb(lambda pipe: seen.append("post"))
    a.add_post_pipe_remove_cb(lambda pipe: seen.append("gone"))
    url = a.listen("tcp://127.0.0.1:0").url
    b.dial(url, block=True)
    b.send(b"one")
    assert a.recv() == b"one"
    address = a.listeners[0].local_address
    assert str(address) == url.partition("://")[2], address
assert seen == ["pre", "post", "gone"], seen
print("done")
"""


def test_a_pipe_shows_once_its_first_callbacks_have_returned():
    inside, go, found = threading.Event(), threading.Event(), []
    with ours.Pair0(listen="inproc://order") as a, ours.Pair0() as b:
        def first(pipe):
            found.append(pipe in a.pipes)       # a callback sees its own pipe
            inside.set()
            go.wait(10)

        a.add_pre_pipe_connect_cb(first)
        b.dial("inproc://order", block=True)
        assert inside.wait(10)
        assert a.pipes == ()
        go.set()
        until(lambda: len(a.pipes) == 1)
        assert found == [True]


def test_pipes_from_before_the_first_callback_stay_visible():
    with ours.Pair1(listen="inproc://old", polyamorous=True) as a, \
            ours.Pair1(dial="inproc://old", polyamorous=True):
        until(lambda: len(a.pipes) == 1)
        a.add_pre_pipe_connect_cb(lambda pipe: None)
        assert len(a.pipes) == 1


def test_a_pipe_that_its_callback_closes_never_shows(n):
    with n.Pair0(listen="inproc://refused") as a, n.Pair0() as b:
        seen = threading.Event()
        a.add_pre_pipe_connect_cb(lambda pipe: (pipe.close(), seen.set()))
        b.dial("inproc://refused", block=False)
        assert seen.wait(10)
        until(lambda: a.pipes == ())


@pytest.mark.parametrize("name", ["plain", "a%00b", "%00", "with%20space%3F", "%C3%A9"])
def test_abstract_addresses_hold_any_byte(sides, name, mq_folder):
    url = f"abstract://{mq_folder.name}{name}"
    with sides.a.Pair0(listen=url, recv_timeout=5000) as a, \
            sides.b.Pair0(dial=url, recv_timeout=5000) as b:
        b.send(b"x")
        assert a.recv() == b"x"
        address = a.listeners[0].local_address
        assert address.family == sides.a.lib.NNG_AF_ABSTRACT
        assert (address.family_as_str, str(address)[:11]) == ("abstract", "abstract://")
        if sides.a is ours:
            assert address.name_bytes == unquote_to_bytes(f"{mq_folder.name}{name}")


def test_dialing_a_nameless_abstract_address_is_invalid(n):
    with n.Pair0() as a, pytest.raises(n.InvalidOperation):
        a.dial("abstract://", block=True)


def test_openers_say_which_pattern(n):
    with n.Socket(opener=n.lib.nng_rep0_open, listen="inproc://opened", recv_timeout=5000) as rep, \
            n.Req0(dial="inproc://opened", recv_timeout=5000) as req:
        req.send(b"question")
        assert rep.recv() == b"question"
    with n.Pair0(opener=n.lib.nng_pair0_open) as pair:
        assert (pair.protocol_name, pair.raw) == ("pair", False)


def test_a_raw_or_wrong_opener_is_refused():
    for make in (lambda: ours.Socket(opener=ours.lib.nng_sub0_open_raw),
                 lambda: ours.Pair0(opener=ours.lib.nng_pair1_open)):
        with pytest.raises(ours.NotSupported):
            make()
    with ours.Socket(opener=ours.lib.nng_pair1_open_poly) as pair:
        assert pair.polyamorous


def test_text_options_by_nngs_names(n):
    with n.Pair0(name="mine") as a:
        assert n.options._getopt_string(a, "socket-name") == "mine"


@pytest.mark.parametrize(("before", "after"), [(PATCH, ""), ("", PATCH)], ids=["before", "after"])
def test_callbacks_in_a_program_that_gevent_has_patched(before, after):
    pytest.importorskip("gevent")
    run = subprocess.run([sys.executable, "-c", PROGRAM.format(before=before, after=after)],
                         capture_output=True, text=True, timeout=200)
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stderr
