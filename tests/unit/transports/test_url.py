import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mqcore.errors import AddressError, UsageError
from mqcore.spi.url import parse, render


@pytest.mark.parametrize(("text", "filters", "transport", "address", "query"), [
    ("tcp://127.0.0.1:5555", (), "tcp", "127.0.0.1:5555", ()),
    ("TCP://*:0", (), "tcp", "*:0", ()),
    ("ws+tls+tcp://a:1?prio=3&wire=sp", ("ws", "tls"), "tcp", "a:1",
     (("prio", "3"), ("wire", "sp"))),
    ("ipc:///tmp/a%3Fb%25c", (), "ipc", "/tmp/a?b%c", ()),
    ("ipc://@abstract", (), "ipc", "@abstract", ()),
    ("tcp://[fe80::1%eth0]:5", (), "tcp", "[fe80::1%eth0]:5", ()),
    ("tcp://[fe80::1%25eth0]:5", (), "tcp", "[fe80::1%eth0]:5", ()),
    ("tcp://[::1];[fe80::1%eb0]:5", (), "tcp", "[::1];[fe80::1%eb0]:5", ()),
    ("ipc:///tmp/[%41]", (), "ipc", "/tmp/[A]", ()),
    ("tcp://src;dst:1", (), "tcp", "src;dst:1", ()),
    ("inproc://caf\u00e9%C3%A9", (), "inproc", "caf\u00e9\u00e9", ()),
    ("ipc:///%FF", (), "ipc", "/\udcff", ()),
    ("tcp://a:1?x=a%26b%3Dc&y=", (), "tcp", "a:1", (("x", "a&b=c"), ("y", ""))),
])
def test_grammar(text, filters, transport, address, query):
    url = parse(text)
    assert (url.filters, url.transport, url.address, url.query) == \
        (filters, transport, address, query)
    assert str(url) == text


@pytest.mark.parametrize(("text", "position"), [
    ("", 0),
    ("127.0.0.1:5555", 0),
    ("tcp:/127.0.0.1", 0),
    ("://x", 0),
    ("+tcp://x", 0),
    ("ws++tcp://x", 3),
    ("t cp://x", 1),
    ("tcp://", 6),
    ("tcp://?prio=1", 6),
    ("tcp://a%zz", 7),
    ("tcp://a%4", 7),
    ("ipc:///a%00b", 8),
    ("tcp://a:1?", 10),
    ("tcp://a:1?prio", 10),
    ("tcp://a:1?=1", 10),
    ("tcp://a:1?prio=1&", 17),
    ("tcp://a:1?prio=1&prio=2", 17),
    ("tcp://a:1?prio=%g1", 15),
])
def test_mistakes_have_a_position(text, position):
    with pytest.raises(AddressError) as caught:
        parse(text)
    assert caught.value.position == position
    assert isinstance(caught.value, ValueError)
    if text:
        assert repr(text) in str(caught.value)


def test_a_forgotten_transport_is_guessed():
    for text in ("tcp:/localhost:1", "localhost", "a b"):
        with pytest.raises(AddressError, match="write it like"):
            parse(text)
    with pytest.raises(AddressError, match="did you mean \"tcp://localhost:1\"?"):
        parse("localhost:1")


def test_text_only():
    with pytest.raises(UsageError, match="not bytes"):
        parse(b"tcp://a:1")


def test_locate_counts_in_the_whole_text():
    url = parse("ipc://a%20b%20c")
    error = url.locate(AddressError("here", position=4))
    assert error.position == url.text.index("c", 6) and "position 14" in str(error)
    assert parse("tcp://ab").locate(AddressError("end", position=99)).position == 8


@given(st.text(min_size=1).filter(lambda s: "\0" not in s), st.sampled_from(["tcp", "ipc"]))
def test_render_is_the_reverse_of_parse(address, transport):
    try:
        address.encode("utf-8")
    except UnicodeEncodeError:
        return
    url = parse(render(transport, address, ("ws",)))
    assert (url.address, url.transport, url.filters) == (address, transport, ("ws",))


@example(b"[.\x01")
@example(b";[:\x01")
@given(st.binary(min_size=1).filter(lambda b: 0 not in b))
def test_file_names_of_any_bytes(raw):
    name = raw.decode("utf-8", "surrogateescape")
    text = render("ipc", name)
    assert parse(text).address == name and text.isprintable()


@given(st.text())
def test_any_text_parses_or_is_an_address_error(text):
    for candidate in (text, "tcp://" + text, "tcp://x?" + text):
        try:
            parse(candidate)
        except AddressError as error:
            assert 0 <= error.position <= len(candidate)
        except UnicodeEncodeError:
            # a lone surrogate that no file name can have
            assert any("\ud800" <= c <= "\udfff" for c in text)
