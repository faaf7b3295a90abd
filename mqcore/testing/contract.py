"""The half of TransportSuite that looks at the plug-in object itself: what mqcore/spi/transport.py
demands of it, call by call, without a socket of ours."""

from __future__ import annotations

import os
import select
import socket
import string
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mqcore import options as table
from mqcore.control.route import Route
from mqcore.errors import AddressError, AddressInUse, BindError, Error
from mqcore.spi import registry
from mqcore.spi.capability import complaints, declared_gaps, unavailable
from mqcore.spi.url import parse, render
from mqcore.testing.suite import EXAMPLES, LIMIT, Suite, live, needs
from mqcore.testing.watch import descriptors

ROLES = ("bind", "connect")
ALPHABET = string.ascii_letters + string.digits + "./:;*@%?&=+[]-_ ~#\\\"'\0\n\xe9\u20ac"


class TransportContract(Suite):
    #: what stands before "://" in the suite's URLs: the transport's, with filters before it if any
    scheme: ClassVar[str] = ""
    #: addresses (what stands behind "://") that check() must refuse, for one role or for both
    bad: ClassVar[Sequence[str | tuple[str, str]]] = ()

    def url(self, tmp_path: Path) -> str:
        """Where to bind: an unused address of this machine, a new one at each call. `tmp_path` is a
        new folder with a short path."""
        raise NotImplementedError("say where to bind: def url(self, tmp_path)")

    # -- the plug-in -------------------------------------------------------------------------------

    @property
    def plugin(self) -> Any:
        return registry.transport(self.scheme.rpartition("+")[2])

    @property
    def transport(self) -> Any:
        """What carries it in the end: for filters over tcp, tcp."""
        plugin = self.plugin
        while plugin.kind == "stack":
            plugin = registry.transport(plugin.below.rpartition("+")[2])
        return plugin

    def filters(self) -> list[str]:
        """The names of all filters over it, the outermost first."""
        names = self.scheme.split("+")[:-1]
        plugin = self.plugin
        while plugin.kind == "stack":
            *below, last = plugin.below.split("+")
            names += below
            plugin = registry.transport(last)
        return names

    def gaps(self) -> Mapping[str, str]:
        gaps = dict(declared_gaps(self.transport))
        if self.filters():
            gaps.setdefault("raw", "the bytes on the descriptors are a filter's")
            gaps |= getattr(self.plugin, "gaps", {})
            gaps["descriptors"] = "those of the transport below, which has a suite of its own"
        elif self.transport.kind == "inproc":
            gaps["descriptors"] = "it has none"
        elif not getattr(self.transport, "accepts", True):
            gaps["descriptors"] = "none of them accepts"
        return gaps

    def unavailable(self) -> str:
        return unavailable(self.plugin) or unavailable(self.transport)

    def check(self, address: str, role: str) -> None:
        """What the plug-in says to this address; with filters, each to its part of it."""
        if not self.filters():
            self.plugin.check(address, role)
            return
        *filters, name = self.scheme.split("+")
        try:
            given = getattr(self, f"{role}_options", {})  # such as certificates
            Route(parse(render(name, address, tuple(filters))), role).check(
                {**self.options(), **given})
        except AddressError as error:
            error.position = max(0, min(error.position - len(self.scheme) - 3, len(address)))
            raise

    def options(self) -> dict[str, Any]:
        """Every option at its default, as the plug-in's methods get them."""
        rows = [*registry.transport_options(self.plugin.scheme),
                *registry.transport_options(self.transport.scheme)]
        for name in self.filters():
            rows += registry.filter_options(name)
        return {**table.defaults(), **{row.name: row.default for row in rows}}

    @pytest.fixture
    def stream(self) -> Any:
        """The plug-in, for tests of what listens, accepts and connects: "descriptors"."""
        return self.plugin

    # -- facts -------------------------------------------------------------------------------------

    def test_it_is_found_under_its_name(self) -> None:
        plugin = self.plugin
        assert plugin.scheme == self.scheme.rpartition("+")[2]
        [info] = [i for i in registry.transports() if i.name == plugin.scheme]
        assert info.refused == ""
        assert plugin.doc and "\n" not in plugin.doc, "doc is one line for `mq info`"

    def test_its_table_of_capabilities_is_sound(self) -> None:
        assert complaints(self.plugin) == []

    def test_it_says_in_words_why_it_is_unavailable(self) -> None:
        assert isinstance(self.unavailable(), str)

    # -- addresses ---------------------------------------------------------------------------------

    def test_check_takes_what_it_is_made_for(self, mq_folder: Path) -> None:
        self.check(parse(self.url(mq_folder)).address, "bind")

    def test_check_refuses_with_a_position(self) -> None:
        for bad in self.bad:
            address, roles = (bad, ROLES) if isinstance(bad, str) else (bad[0], (bad[1],))
            for role in roles:
                with pytest.raises(AddressError) as caught:
                    self.check(address, role)
                assert 0 <= caught.value.position <= len(address), (address, role)
                assert caught.value.text

    @settings(max_examples=EXAMPLES or 100, deadline=None,
              suppress_health_check=list(HealthCheck))
    @given(address=st.text(ALPHABET, max_size=40), role=st.sampled_from(ROLES))
    def test_check_knows_no_other_error(self, address: str, role: str) -> None:
        try:
            self.check(address, role)
        except AddressError as error:
            assert 0 <= error.position <= len(address)

    def test_a_bad_address_is_pointed_at_in_the_url(self, mq_context: Any) -> None:
        """bind() and connect() raise it at once, with the position in the whole URL."""
        for bad in self.bad:
            address, roles = (bad, ROLES) if isinstance(bad, str) else (bad[0], (bad[1],))
            if any(c in "?%" for c in address):
                continue  # a URL spells these differently
            for role in roles:
                with mq_context.socket(self.any_pattern()) as sock:
                    url = f"{self.scheme}://{address}"
                    with pytest.raises(AddressError) as caught:
                        getattr(sock, role)(url)
                    assert 0 <= caught.value.position <= len(url)
                    assert sock.endpoints == ()

    def any_pattern(self) -> str:
        return "pair"

    # -- descriptors: the interface of streams -----------------------------------------------------

    @pytest.fixture
    def listening(self, stream: Any, mq_leaks: None, mq_folder: Path) -> Iterator[Any]:
        """What listen() gives at the suite's address; closed after the test."""
        found = stream.listen(parse(self.url(mq_folder)).address, self.options())
        yield found
        if found.release is not None:
            found.release()
        for sock in found.sockets:
            sock.close()

    @live
    @needs("descriptors")
    def test_listen_gives_what_peers_can_connect_to(self, stream: Any, listening: Any) -> None:
        assert listening.sockets
        for sock in listening.sockets:
            assert sock.gettimeout() == 0, "non-blocking"
            assert not os.get_inheritable(sock.fileno()), "close-on-exec"
        stream.check(listening.address, "connect")
        with self.dial(stream, listening.address) as near, accept(listening) as far:
            near.setblocking(True)
            near.sendall(b"x")
            assert wait_readable(far) and far.recv(2) == b"x"

    @live
    @needs("descriptors", "busy")
    def test_a_listen_that_fails_leaves_nothing(self, stream: Any, listening: Any) -> None:
        before = descriptors()
        for _ in range(3):
            with pytest.raises(AddressInUse) as caught:
                stream.listen(listening.address, self.options())
            assert isinstance(caught.value, BindError) and caught.value.errno
            assert descriptors() == before

    @live
    @needs("descriptors", "refused")
    def test_a_connect_that_fails_leaves_nothing(self, stream: Any, mq_leaks: None,
                                                 mq_folder: Path) -> None:
        found = stream.listen(parse(self.url(mq_folder)).address, self.options())
        if found.release is not None:
            found.release()
        for sock in found.sockets:
            sock.close()
        before = descriptors()
        for _ in range(3):
            with pytest.raises(OSError):
                self.dial(stream, found.address)
            assert descriptors() == before

    @live
    @needs("descriptors")
    def test_accepted_streams_are_tuned_and_named(self, stream: Any, listening: Any) -> None:
        with self.dial(stream, listening.address) as near, accept(listening) as far:
            stream.tune(far, self.options())
            assert far.gettimeout() == 0
            for sock in (near, far):
                ours, theirs = stream.names(sock)
                assert all(isinstance(name, str) for name in (ours, theirs))
                for name in filter(None, (ours, theirs)):
                    assert name.startswith(f"{stream.scheme}://")
                pid = stream.pid(sock)
                assert pid == os.getpid() if "pid" not in self.gaps() else pid is None

    @live
    @needs("descriptors")
    def test_names_and_pid_never_raise(self, stream: Any, listening: Any) -> None:
        """A connection may have broken between accept() and the question."""
        near = self.dial(stream, listening.address)
        far = accept(listening)
        near.close()
        for sock in (far, near, listening.sockets[0]):
            assert len(stream.names(sock)) == 2
            stream.pid(sock)
        far.close()
        assert len(stream.names(far)) == 2
        stream.pid(far)

    @needs("descriptors")
    def test_what_kind_of_error_resolve_may_give(self, stream: Any) -> None:
        """For whatever passed check()."""
        for address in ("", "a", "a:1", "127.0.0.1:1", "/x", "@x", "1:2"):
            try:
                stream.check(address, "connect")
                if stream.may_block(address):
                    continue  # it would ask a name server
                assert isinstance(stream.resolve(address, self.options()), list)
            except (OSError, Error):
                pass

    def dial(self, stream: Any, address: str) -> socket.socket:
        """A connected stream socket by the plug-in's own calls; OSError if all targets fail."""
        failed: OSError = OSError("no target")
        for target in stream.resolve(address, self.options()):
            try:
                sock: socket.socket = stream.connect(target, self.options())
            except OSError as error:
                failed = error
                continue
            assert sock.gettimeout() == 0 and not os.get_inheritable(sock.fileno())
            assert wait_writable(sock)
            number = stream.finish(sock)
            if number == 0:
                return sock
            sock.close()
            failed = OSError(number, os.strerror(number))
        raise failed


def wait_readable(sock: socket.socket) -> bool:
    return bool(select.select([sock], [], [], LIMIT)[0])


def wait_writable(sock: socket.socket) -> bool:
    return bool(select.select([], [sock], [], LIMIT)[1])


def accept(listening: Any) -> socket.socket:
    ready = select.select(listening.sockets, [], [], LIMIT)[0]
    assert ready, "the connection does not arrive"
    sock: socket.socket = ready[0].accept()[0]
    sock.setblocking(False)
    return sock
