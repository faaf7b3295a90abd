"""The options of PLAIN, CURVE and ZAP in both modules, and the functions about keys."""

import subprocess
import sys

import pytest
from zmqerrno import number

import mqcore as mq
import mqcore.zmq as ours

NAMES = ("plain_server", "plain_username", "plain_password", "curve_server", "zap_domain",
         "zap_enforce_domain", "mechanism")
PAIR, OTHER = mq.security.curve_keypair(), mq.security.curve_keypair()
KEY, RAW = PAIR.public.encode(), mq.security.z85_decode(PAIR.public)


@pytest.mark.parametrize("steps, found", [
    ([], {}),
    ([("plain_server", 1)], {"plain_server": 1, "mechanism": 1}),
    ([("plain_server", 1), ("plain_server", 0)], {}),
    ([("plain_username", b"ann")], {"plain_username": b"ann", "mechanism": 1}),
    ([("plain_password", b"x")], {"plain_password": b"x", "mechanism": 1}),
    ([("plain_server", 1), ("plain_username", b"a")], {"plain_username": b"a", "mechanism": 1}),
    ([("plain_username", b"a"), ("plain_server", 1)],
     {"plain_username": b"a", "plain_server": 1, "mechanism": 1}),
    ([("curve_server", 1)], {"curve_server": 1, "mechanism": 2}),
    ([("curve_server", 1), ("curve_server", 0)], {}),
    ([("curve_publickey", KEY)], {"mechanism": 2}),
    ([("curve_publickey", KEY + b"\0")], {"mechanism": 2}),
    ([("curve_secretkey", RAW)], {"mechanism": 2}),
    ([("curve_server", 1), ("curve_serverkey", KEY)], {"mechanism": 2}),
    ([("curve_server", 1), ("plain_username", b"x")], {"plain_username": b"x", "mechanism": 1}),
    ([("plain_server", 1), ("curve_publickey", KEY)], {"curve_server": 1, "mechanism": 2}),
    ([("zap_domain", b"global")], {"zap_domain": b"global"}),
    ([("zap_enforce_domain", 2)], {"zap_enforce_domain": 1}),
    ([("ipc_filter_uid", 1000), ("ipc_filter_gid", 1), ("ipc_filter_pid", 2)], {}),
])
def test_options(new, z, steps, found):
    s = new("DEALER")
    for name, value in steps:
        setattr(s, name, value)
    assert {name: s.get(getattr(z, name.upper())) for name in NAMES
            if s.get(getattr(z, name.upper())) not in (0, b"")} == found


def test_options_that_are_refused(new, z):
    s = new("DEALER")
    for name, value in (("plain_server", 2), ("plain_username", b""), ("plain_password", b""),
                        ("plain_username", b"x" * 256), ("zap_domain", b""), ("curve_server", -1),
                        ("zap_domain", b"x" * 256), ("curve_publickey", KEY[:-1]),
                        ("curve_secretkey", b""), ("curve_serverkey", b"~" * 40),
                        ("mechanism", 1)):
        assert number(z, s.setsockopt, getattr(z, name.upper()), value) == z.EINVAL, name
    for name in ("curve_publickey", "ipc_filter_uid"):
        assert number(z, s.getsockopt, getattr(z, name.upper())) == z.EINVAL
    s.set_string(z.CURVE_PUBLICKEY, PAIR.public)
    with pytest.raises(TypeError):
        s.set(z.CURVE_PUBLICKEY, PAIR.public)
    assert s.mechanism == z.CURVE and z.has("curve")


def test_keys_can_be_read_and_must_be_complete(make):
    s = make(ours, "DEALER", curve_publickey=RAW)
    assert s.curve_publickey == KEY
    assert number(ours, s.bind, "tcp://127.0.0.1:*") == ours.EINVAL
    s.curve_secretkey, s.curve_serverkey = OTHER.secret.encode(), KEY
    with pytest.raises(ours.ZMQError, match="does not belong to CURVE_SECRETKEY"):
        s.connect("tcp://127.0.0.1:1")
    with pytest.raises(ours.ZMQError, match="there is no GSSAPI"):
        s.gssapi_server = True
    assert s.bind("inproc://needs-none")


def test_key_functions(z):
    public, secret = z.curve_keypair()
    assert z.curve_public(secret) == z.curve_public(secret.decode()) == public
    assert len(public) == len(secret) == 40
    with pytest.raises(ValueError, match="40 byte z85"):
        z.curve_public(b"x")


def test_without_libsodium():
    """Only CURVE is missing, and says what to install."""
    code = """if True:
        import mqcore.base.sodium as sodium
        sodium.LIBRARIES = (b"libsodium.so.none",)
        import mqcore.zmq as zmq
        import mqcore.zmq.auth.thread
        s = zmq.Context.instance().socket(zmq.PULL)
        print(zmq.has("curve"))
        for call in (zmq.curve_keypair, lambda: s.set(zmq.CURVE_SERVER, 1)):
            try:
                call()
            except zmq.ZMQError as error:
                print(error.errno == zmq.ENOTSUP, "libsodium" in str(error))
        s.plain_server = 1
        s.bind("tcp://127.0.0.1:*")
        zmq.Context.instance().destroy(0)
        """
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert out.stdout == "False\nTrue True\nTrue True\n", out.stderr
