import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqcore import options
from mqcore.errors import OptionError
from mqcore.options import CHECKS, CORE, READERS, TABLE, from_text, rows_of, validate

# The reference, written a second time by hand: a default that changes must change here too.
DEFAULTS = {
    "send_timeout": None, "recv_timeout": None, "linger": 1.0, "send_hwm": 10_000,
    "recv_hwm": 10_000, "send_hwm_bytes": 16777216, "recv_hwm_bytes": 16777216,
    "on_full": "pattern", "conflate": False, "max_message_size": 1073741824, "immediate": False,
    "max_unfinished": 1073741824, "max_departed": 8192,
    "connect_timeout": 10.0, "handshake_timeout": 10.0, "reconnect": 0.1, "reconnect_max": 10.0,
    "reconnect_stop": (), "heartbeat": 15.0, "heartbeat_timeout": 30.0, "heartbeat_ttl": 0,
    "backlog": 1024, "prio": 8, "wire": None, "upgrade": False, "send_buffer": None,
    "recv_buffer": None,
    "keepalive": True, "keepalive_idle": 60, "keepalive_interval": 10, "keepalive_count": 6,
    "idle_after": 60.0, "bind_device": None, "max_handshakes": 1024, "tos": 0,
    "congestion_control": None,
    "routing_id": b"", "peer_id": b"", "metadata": {},
    "security": None, "max_hops": 8,
    "correlate": None, "strict": False, "strategy": "priority",
}
PER_LINK = {
    "max_message_size", "connect_timeout", "handshake_timeout", "reconnect", "reconnect_max",
    "reconnect_stop", "heartbeat", "heartbeat_timeout", "heartbeat_ttl", "backlog", "prio", "wire",
    "send_buffer", "recv_buffer", "keepalive", "keepalive_idle", "keepalive_interval",
    "keepalive_count", "idle_after", "bind_device", "max_handshakes", "tos", "peer_id", "upgrade",
    "congestion_control",
}


def test_the_table_is_the_reference():
    assert options.defaults() == DEFAULTS
    assert {row.name for row in TABLE if "url" in row.scope} == PER_LINK
    assert {row.name for row in TABLE if "endpoint" in row.scope} == PER_LINK | {"security"}
    assert len(CORE) == len(TABLE)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_every_row_is_whole(row):
    assert row.type in CHECKS and row.doc and row.name.isidentifier() and row.scope
    assert row.none != "" and (row.none or row.default is not None)
    assert validate(row.name, row.default, scope=row.scope[0]) == row.default
    if "url" in row.scope:
        assert row.type in READERS


def test_defaults_of_a_pattern():
    assert "strict" in options.defaults(pattern="req")
    assert "strict" not in options.defaults(pattern="push")


@pytest.mark.parametrize(("name", "value", "clean"), [
    ("linger", 2, 2.0),
    ("linger", 0, 0.0),
    ("send_hwm", None, None),
    ("send_hwm", 1, 1),
    ("reconnect_stop", ["handshake", "refused", "refused"], ("refused", "handshake")),
    ("reconnect_stop", {"refused"}, ("refused",)),
    ("reconnect_stop", "refused", ("refused",)),
    ("routing_id", bytearray(b"abc"), b"abc"),
    ("metadata", {"X-Name": "v", "b": b"\0"}, {"X-Name": b"v", "b": b"\0"}),
    ("wire", "sp", "sp"),
    ("correlate", None, None),
])
def test_good_values(name, value, clean):
    result = validate(name, value)
    assert result == clean and type(result) is type(validate(name, clean))


@pytest.mark.parametrize(("name", "value", "text"), [
    ("linger", -1, "from 0 to 1000000000, .*None means for ever"),
    ("linger", "1", "number of seconds from 0 to 1000000000"),
    ("send_hwm", 0, "whole number of messages from 1 to 2147483647, not 0"),
    ("send_hwm", "1", "whole number of messages from 1 to 2147483647, not '1'"),
    ("tos", 1.5, "whole number from 0 to 255"),
    ("keepalive_idle", 0, "whole number of seconds from 1 to 32767"),
    ("linger", math.inf, "finite"),
    ("linger", math.nan, "finite"),
    ("linger", "1", "number of seconds"),
    ("linger", True, "number of seconds"),
    ("linger", [], "number of seconds"),
    ("send_hwm", 0, "from 1 to .*None means no limit"),
    ("send_hwm", 1.5, "whole number"),
    ("send_hwm", True, "whole number"),
    ("prio", 17, "from 1 to 16"),
    ("tos", 256, "from 0 to 255"),
    ("heartbeat", 0, "None means off"),
    ("heartbeat_ttl", 7000, "6553.5"),
    ("conflate", 1, "True or False"),
    ("conflate", None, "must be set"),
    ("on_full", "explode", "'drop_new'"),
    ("wire", "http", "'zmtp', 'sp'"),
    ("reconnect_stop", ["never"], "some of"),
    ("routing_id", "abc", "encode"),
    ("routing_id", b"x" * 256, "0 to 255 bytes"),
    ("routing_id", b"\0abc", "first byte is not zero"),
    ("routing_id", 5, "bytes"),
    ("metadata", [1], "mapping"),
    ("metadata", {"": b""}, "letters"),
    ("metadata", {"a b": b""}, "letters"),
    ("metadata", {"Socket-Type": b"PUSH"}, "which mqcore sets"),
])
def test_bad_values(name, value, text):
    with pytest.raises(OptionError, match=text) as caught:
        validate(name, value)
    assert repr(name) in str(caught.value) and isinstance(caught.value, ValueError)


def test_numpy_scalars_are_numbers():
    numpy = pytest.importorskip("numpy")
    assert validate("send_hwm", numpy.int64(5)) == 5
    assert validate("linger", numpy.float32(0.5)) == 0.5
    assert validate("conflate", numpy.bool_(True)) is True


def test_unknown_names_get_the_nearest_known_one():
    for wrong, right in (("snd_hwm", "send_hwm"), ("lingr", "linger"),
                         ("sndtimeo", "send_timeout"), ("xyzzy", None)):
        with pytest.raises(OptionError, match="unknown option") as caught:
            validate(wrong, 1)
        assert (f"did you mean '{right}'?" if right else "known ones: ") in str(caught.value)


def test_scopes_and_patterns():
    with pytest.raises(OptionError, match="cannot be set per endpoint; it belongs to the socket"):
        validate("linger", 1, scope="endpoint")
    with pytest.raises(OptionError, match="does not apply to push; it belongs to req"):
        validate("strict", True, pattern="push")
    assert validate("strict", True, pattern="req") is True
    assert options.validate_all({"prio": 3, "tos": 1}, scope="endpoint") == {"prio": 3, "tos": 1}


@pytest.mark.parametrize(("name", "text", "value"), [
    ("reconnect", "0.5", 0.5),
    ("reconnect", "none", None),
    ("max_message_size", "64KiB", 65536),
    ("max_message_size", "3mb", 3_000_000),
    ("max_message_size", "1000", 1000),
    ("keepalive", "yes", True),
    ("keepalive", "0", False),
    ("reconnect_stop", "refused,handshake", ("refused", "handshake")),
    ("reconnect_stop", "", ()),
    ("wire", "sp", "sp"),
    ("prio", "1", 1),
])
def test_query_values(name, text, value):
    assert from_text(name, text) == value


@pytest.mark.parametrize(("name", "text"), [
    ("reconnect", "soon"), ("reconnect", "nan"), ("reconnect", ""), ("prio", "1.5"), ("prio", "0"),
    ("keepalive", "maybe"), ("max_message_size", "KiB"), ("reconnect_stop", "never"),
    ("prio", "none"), ("linger", "1"), ("routing_id", "x"), ("colour", "red"),
])
def test_query_mistakes(name, text):
    with pytest.raises(OptionError) as caught:
        options.parse_query([(name, text)])
    assert repr(name) in str(caught.value)


@given(st.sampled_from(sorted(CORE)), st.text(max_size=20))
def test_any_query_text_is_a_value_or_an_option_error(name, text):
    try:
        options.parse_query([(name, text)])
    except OptionError:
        pass


def test_the_nearest_value_holds():
    rows = rows_of([("colour", "int", 3, "")])
    values = options.for_link({"prio": 2, "tos": 4, "backlog": 9, "linger": 5.0},
                              [("prio", "3"), ("tos", "8")], {"prio": 4}, extra=rows)
    assert [values[n] for n in ("prio", "tos", "backlog", "linger", "keepalive", "colour")] == \
        [4, 8, 9, 5.0, True, 3]
    with pytest.raises(OptionError, match="per endpoint"):
        options.for_link({}, [], {"linger": 1})
    with pytest.raises(OptionError, match="per endpoint or in a URL"):
        options.for_link({}, [("linger", "1")], {})


def test_rows_of_plugins():
    rows = rows_of([("retain", "int", 0, "n"), ("welcome", "bytes", None, "w"),
                    ("deadline", "seconds", 1.0, "d")], "pub")
    assert options.defaults(rows, "pub")["deadline"] == 1.0
    assert "retain" not in options.defaults(rows, "push")
    assert validate("welcome", None, extra=rows) is None
    with pytest.raises(OptionError, match="did you mean 'retain'"):
        validate("retains", 1, extra=rows)
    with pytest.raises(OptionError, match="unknown type"):
        rows_of([("x", "complex", 0, "")])


def test_rows_with_a_range_of_their_own():
    class Colour:
        pass

    rows = rows_of([("shade", "choice", "dark", "s", ("dark", "light")),
                    ("colour", "object", None, "c", (Colour, int)),
                    ("word", "secret", None, "w")])
    assert options.parse_query([("shade", "light")], extra=rows) == {"shade": "light"}
    with pytest.raises(OptionError, match="one of 'dark', 'light'"):
        validate("shade", "grey", extra=rows)
    colour = Colour()
    assert validate("colour", colour, extra=rows) is colour
    assert validate("colour", None, extra=rows) is None
    with pytest.raises(OptionError, match=r"Colour or builtins\.int, not 'red'"):
        validate("colour", "red", extra=rows)
    assert validate("word", "hush", extra=rows, scope="endpoint") == "hush"
    for name in ("colour", "word"):
        with pytest.raises(OptionError, match="cannot be set in a URL"):
            options.parse_query([(name, "x")], extra=rows)
    with pytest.raises(OptionError, match="has no range"):
        rows_of([("x", "choice", "a", "")])


def test_a_long_value_is_cut_off_in_the_error():
    with pytest.raises(OptionError) as caught:
        options.validate("routing_id", b"x" * 10**6)
    assert len(str(caught.value)) < 300
