"""FilterSuite: what a filter must do, as pytest tests of the object and its sessions, without a
socket. TransportSuite with `scheme = "name+tcp"` tests it at work. Subclass it in a test module:

    from mqcore.testing import FilterSuite

    class TestZstd(FilterSuite):
        filter = "zstd"

The rules are those of mqcore/spi/filter.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqcore import options as table
from mqcore.spi import registry
from mqcore.spi.filter import FilterSession, Refused
from mqcore.testing.suite import EXAMPLES, Suite, needs

ROUNDS = 100  # more exchanges than any handshake takes
QUICKLY = settings(max_examples=EXAMPLES or 30, deadline=None,
                   suppress_health_check=list(HealthCheck))
CHUNKS = st.sampled_from((1, 2, 7, 100, 1 << 20))


class FilterSuite(Suite):
    """Tests of a filter. Set `filter` to its name."""

    filter: ClassVar[str] = ""
    #: the address in the URLs of this suite, as the filter gets it to split
    address: ClassVar[str] = "127.0.0.1:5555"
    #: options for bind() and connect() that a session needs, such as certificates
    bind_options: ClassVar[Mapping[str, Any]] = {}
    connect_options: ClassVar[Mapping[str, Any]] = {}

    @property
    def plugin(self) -> Any:
        return registry.filter(self.filter)

    def gaps(self) -> Mapping[str, str]:
        near, far = self.shaken()
        codec = near.session.codec
        for end in (near, far):
            end.session.close()
        return {"bytes": f"its traffic is framed by the codec {codec!r}"} if codec else {}

    def open(self, role: str) -> End:
        """A new session, as for one connection."""
        given = self.bind_options if role == "bind" else self.connect_options
        rows = registry.filter_options(self.filter)
        options = {**table.defaults(), **{row.name: row.default for row in rows}, **given}
        _, own = self.plugin.split(self.address, role)
        self.plugin.check(own, role, options)
        return End(self.plugin.open(own, role, options))

    def shaken(self, chunk: int = 1 << 20) -> tuple[End, End]:
        """(who connected, who was bound), after the handshake."""
        near, far = self.open("connect"), self.open("bind")
        for end in (near, far):
            end.session.start()
        for _ in range(ROUNDS):
            moved = near.pass_to(far, chunk) + far.pass_to(near, chunk)
            if near.session.established and far.session.established and not moved:
                return near, far
        raise AssertionError("the handshake does not end")

    # -- facts -------------------------------------------------------------------------------------

    def test_facts(self) -> None:
        plugin = self.plugin
        assert plugin.name == self.filter and plugin.kind == "filter"
        assert plugin.doc and "\n" not in plugin.doc, "doc is one line for `mq info`"
        [info] = [i for i in registry.filters() if i.name == self.filter]
        assert info.refused == ""

    def test_addresses_are_split_and_joined(self) -> None:
        for role in ("bind", "connect"):
            below, own = self.plugin.split(self.address, role)
            assert isinstance(below, str)
            assert self.plugin.split(self.plugin.join(below, own), role) == (below, own)

    # -- handshake ---------------------------------------------------------------------------------

    @QUICKLY
    @given(chunk=CHUNKS)
    def test_the_handshake_in_any_pieces(self, chunk: int) -> None:
        near, far = self.shaken(chunk)
        for end in (near, far):
            assert end.heard == b"", "nothing has been sent yet"
            facts = end.session.facts()
            assert all(isinstance(k, str) and isinstance(v, bytes) for k, v in facts.items())
            end.session.close()
        assert near.session.codec == far.session.codec

    @QUICKLY
    @given(role=st.sampled_from(("bind", "connect")), data=st.binary(max_size=300), chunk=CHUNKS)
    def test_nonsense_is_refused_or_waited_for(self, role: str, data: bytes, chunk: int) -> None:
        """Refused with a text, or more is awaited; no other error."""
        end = self.open(role)
        end.session.start()
        end.session.outgoing()
        try:
            end.hear(data, chunk)
            end.session.outgoing()
        except Refused as error:
            assert str(error)
        finally:
            end.session.close()

    def test_a_session_that_never_spoke_is_closed(self) -> None:
        for role in ("bind", "connect"):
            self.open(role).session.close()
            end = self.open(role)
            end.session.start()
            end.session.close()

    # -- traffic -----------------------------------------------------------------------------------

    @needs("bytes")
    @QUICKLY
    @given(bodies=st.lists(st.binary(min_size=1, max_size=500), max_size=10), chunk=CHUNKS)
    def test_every_message_comes_through_at_once(self, bodies: list[bytes], chunk: int) -> None:
        """In whatever pieces it travels, and without waiting for the next one."""
        near, far = self.shaken()
        for body in (*bodies, bytes(100_000)):
            for one, other in ((near, far), (far, near)):
                one.session.send(memoryview(bytearray(body)))
                one.pass_to(other, max(chunk, len(body) // 50))
                assert other.heard == body
                other.heard = b""

    @needs("bytes")
    def test_sessions_know_nothing_of_each_other(self) -> None:
        pairs = [self.shaken() for _ in range(3)]
        for n, (near, _) in enumerate(pairs):
            near.session.send(b"first of %d" % n)
        for n, (near, far) in reversed(list(enumerate(pairs))):
            near.session.send(b", second of %d" % n)
            near.pass_to(far)
            assert far.heard == b"first of %d, second of %d" % (n, n)

    @needs("bytes")
    def test_what_was_sent_before_the_end_arrives(self) -> None:
        near, far = self.shaken()
        near.session.send(b"the last words")
        near.session.finish()
        near.pass_to(far)
        assert far.heard == b"the last words"
        far.session.finish()
        far.pass_to(near)
        for end in (near, far):
            end.session.close()


class End:
    """One end's session, and what has come through it for above."""

    def __init__(self, session: FilterSession) -> None:
        self.session = session
        self.heard = b""

    def pass_to(self, other: End, chunk: int = 1 << 20) -> int:
        """What is outgoing here reaches the other end, in pieces; how many bytes it was."""
        data = bytes(self.session.outgoing())
        other.hear(data, chunk)
        return len(data)

    def hear(self, data: bytes, chunk: int) -> None:
        for at in range(0, len(data), chunk):
            self.heard += self.session.receive(data[at:at + chunk])
