"""`mq doctor URL`: test a connection step by step, from the name to a round trip, a line per step.

It uses raw sockets and handles the first bytes of ZMTP itself (`zmtp_hello`), so the diagnosis does
not depend on the code that it diagnoses. For an SP peer it reports the protocol and stops there. It
takes no messages that are meant for others: a PUSH, DEALER, REQ or PAIR might send one, so it
leaves them before the handshake is complete and times the greeting instead.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import click

import mqcore as mq
from mqcore.cli import doctor_keys, doctor_options
from mqcore.cli import zmtp_hello as hello
from mqcore.cli.format import as_text
from mqcore.cli.keys import for_a_client
from mqcore.spi.inet import Place
from mqcore.spi.inet import look_up as resolve
from mqcore.spi.inet import parse as read_address
from mqcore.spi.url import parse

PINGS = 5
WANTED = {
    "CURVE": "pass its public key with --server-key, and your own secret certificate with --key if "
    "it accepts known keys only",
    "PLAIN": "pass --user and --password-file",
}
REFUSED = (
    "nobody listens there: start the other side, or check the address that it prints when it "
    "binds; inside a container it must bind to 0.0.0.0 or *, not to 127.0.0.1"
)


class Line(NamedTuple):
    """The result of one step. `advice` is empty if the step succeeded."""

    step: str
    found: str
    advice: str = ""


class Broken(Exception):
    """A step failed. The argument is the text of its line."""

    def __init__(self, step: str, found: str, advice: str) -> None:
        super().__init__(found)
        self.line = Line(step, found, advice)


# -- name and port -------------------------------------------------------------------------------


class Way(NamedTuple):
    """An address to connect to, and the own one to connect from, None for any."""

    family: int
    place: Any
    source: Any = None


def look_up(address: str) -> tuple[list[Way], Line]:
    peer = address.rpartition(";")[2]   # behind the source address
    if peer.startswith("*:") or peer.endswith((":0", ":*")):
        raise Broken(
            "name",
            f"{address} is where a socket listens, not an address to connect to",
            "use the actual address, which bind() returns and `mq cat --bind` prints",
        )
    try:
        source, peer_place = read_address(address, "connect")
    except mq.AddressError as error:
        raise Broken("name", f"{address!r}: {error.text}", error.hint or
                     "write it like tcp://127.0.0.1:5555 or tcp://[::1]:5555") from None
    found = addresses(
        "name", peer_place, "check the spelling; `getent hosts` asks the system the same question; "
        "or use the IP address instead of the name")
    ways = [Way(family, place) for family, place in found]
    if source is not None:
        own = dict(reversed(addresses("source", source, "the part in front of the ; is an address "
                                      "or an interface of this machine")))
        ways = [way._replace(source=own[way.family]) for way in ways if way.family in own]
        if not ways:
            raise Broken("source", f"{source.host} and {peer_place.host} have no address family in "
                         "common", "use two IPv4 or two IPv6 addresses")
    numbers = ", ".join(str(way.place[0]) for way in ways)
    return ways, Line("name", f"{peer_place.host} is {numbers}")


def addresses(step: str, place: Place, advice: str) -> list[tuple[int, Any]]:
    """As a socket finds them."""
    try:
        return list(dict.fromkeys(resolve(place)))
    except mq.AddressError as error:    # a label is empty or too long
        why = error.text
    except OSError as error:
        why = error.strerror or str(error)
    raise Broken(step, f"{place.host} is unknown: {why}", advice)


def reach(
    ways: list[Way], timeout: float, options: Mapping[str, Any]
) -> tuple[socket.socket, Line]:
    failures = []
    for family, place, source in ways:
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.settimeout(timeout)
        start = time.perf_counter()
        try:
            if family != socket.AF_UNIX:
                doctor_options.apply(sock, options)
            if source is not None:
                leave_from(sock, source)
            sock.connect(place)
        except OSError as error:
            sock.close()
            failures.append((place, error))
            continue
        except doctor_options.Wrong as wrong:
            sock.close()
            raise Broken("options", wrong.found, wrong.advice) from None
        except Broken:
            sock.close()
            raise
        took = (time.perf_counter() - start) * 1e3
        return sock, Line("port", f"connected to {shown(place)} in {took:.2f} ms")
    place, failure = failures[0]
    raise Broken("port", f"{shown(place)}: {failure.strerror or failure}", why_not(failure))


def leave_from(sock: socket.socket, source: Any) -> None:
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(source)
    except OSError as error:
        raise Broken("source", f"{shown(source)}: {error.strerror}",
                     "the part in front of the ; must be an address of this machine (`ip addr` "
                     "lists them), and its port, if it has one, free") from None


def shown(place: object) -> str:
    if isinstance(place, tuple):
        return f"{place[0]} port {place[1]}"
    return str(place).replace("\0", "@")


def why_not(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return (
            "no answer: a firewall drops the packets, or the host does not exist; try from that "
            "machine itself, then from a neighbor"
        )
    return {
        errno.ECONNREFUSED: REFUSED,
        errno.ENOENT: "no such socket file: is the other side running, in this folder, on this "
        "machine (and not in a container with its own files)?",
        errno.EACCES: "permission denied: check the owner and mode of the file (ls -l)",
        errno.EHOSTUNREACH: "no route to that host: check routes and VPN",
        errno.ENETUNREACH: "no route to that network: check routes and VPN",
    }.get(error.errno or 0, "this is the system's error; try another tool, such as nc")


# -- the protocol --------------------------------------------------------------------------------


def no_greeting(sock: socket.socket, error: hello.Silent | hello.Left, advice: str) -> Broken:
    """The peer sent no ZMTP greeting. Test on a second connection whether it expects HTTP."""
    if not error.got:
        with socket.socket(sock.family, socket.SOCK_STREAM) as second:
            second.settimeout(sock.gettimeout())
            try:
                second.connect(sock.getpeername())
                spoken = hello.answers_http(second)
            except OSError:
                spoken = False
        if spoken:
            return Broken("wire", "not ZMTP 3: an HTTP server, silent until a request",
                          "a wrong port? for WebSocket write ws://")
    return Broken("wire", f"connected, but {error}", advice)


def sp_lines(error: hello.SpPeer, took: float) -> Iterator[Line]:
    """Stop here: every round trip over SP would be a message."""
    yield Line("wire", "SP (nanomsg, nng)")
    yield Line("greeting", f"complete after {took:.2f} ms")
    partner = f"mqcore.{error.partner}" if error.partner else "a partner that speaks it"
    yield Line("socket type", f'{error.name}: connect {partner} with wire="sp"')
    yield Line("round trip", f"greeting {took:.2f} ms (SP has no PING)")


def check_wire(sock: socket.socket, url: str, timeout: float,
               security: mq.security.Security | None) -> Iterator[Line]:
    start = time.perf_counter()
    try:
        greeting = hello.greet(sock)
    except hello.NotZmtp as error:
        advice = (
            "upgrade it, or connect with mqcore, which still speaks to it"
            if "ZMTP" in str(error)
            else "a wrong port? this one is used by another program"
        )
        raise Broken("wire", f"not ZMTP 3: {error}", advice) from None
    except hello.SpPeer as error:
        yield from sp_lines(error, (time.perf_counter() - start) * 1e3)
        return
    except hello.Silent as error:
        raise no_greeting(
            sock, error,
            "its program hangs or is stopped, or expects another protocol (such as TLS)",
        ) from None
    except hello.Left as error:
        raise no_greeting(
            sock, error,
            "it rejects our greeting: another protocol, or a limit on connections "
            "or addresses; its log may say more",
        ) from None
    took = (time.perf_counter() - start) * 1e3
    yield Line("wire", f"ZMTP {greeting.version[0]}.{greeting.version[1]}")
    yield Line("greeting", f"complete after {took:.2f} ms")
    if security is not None:
        sock.close()
        yield from check_keys(url, timeout, security, greeting.mechanism)
        return
    if greeting.mechanism != "NULL":
        raise Broken("mechanism", f"{greeting.mechanism}, which needs credentials",
                     WANTED.get(greeting.mechanism, "mqcore supports NULL, PLAIN and CURVE only"))
    yield Line("mechanism", "NULL (no authentication, no encryption)")
    yield from check_peer(sock, took)


def check_keys(url: str, timeout: float, security: mq.security.Security,
               offered: str) -> Iterator[Line]:
    """Test our keys, on connections of their own."""
    if offered != security.mechanism:
        raise Broken("mechanism", f"{offered}, but the given keys are for {security.mechanism}",
                     WANTED.get(offered, "a socket with keys does not connect to it: configure "
                                "keys on the other side, or leave yours out"))
    yield Line("mechanism", offered)
    for kind, found in doctor_keys.tries(url, security, timeout):
        if found.pattern:
            curve = security if isinstance(security, mq.security.Curve) else None
            who = f" (ours is {curve.public_key})" if curve else ""
            yield Line("credentials", f"both sides accept them{who}")
            yield Line("socket type", f"{found.pattern.upper()}, to us as {kind.upper()}")
            yield Line("round trip", f"handshake complete after {found.took:.2f} ms")
            return
    if doctor_keys.fits_another(found.reason):
        if isinstance(security, mq.security.Curve):
            yield Line("server key", "correct: the server decrypted data for it")
        raise Broken("socket type", f"it disconnected us as {', '.join(doctor_keys.TRIED)}",
                     doctor_keys.AMBIGUOUS)
    step, advice = doctor_keys.verdict(found.reason)
    raise Broken(step, found.reason, advice)


def check_peer(sock: socket.socket, took: float) -> Iterator[Line]:
    try:
        ready = hello.read_ready(sock)
    except (hello.Silent, hello.Left, hello.NotZmtp) as error:
        raise Broken(
            "socket type",
            f"no READY: {error}",
            "the other side ended the handshake: an address filter or ZAP handler, or "
            "a program that is stopping",
        ) from None
    if ready.error:
        raise Broken(
            "socket type",
            f"refused with {ready.error!r}",
            "its access rules (ZAP) refused us; ask its operator",
        )
    extra = ", ".join(
        f"{name} {value!r}"
        for name, value in ready.properties.items()
        if name != "Socket-Type" and value
    )
    yield Line("socket type", f"{ready.pattern or 'not said'}{f' ({extra})' if extra else ''}")
    be = hello.HARMLESS.get(ready.pattern)
    if be is None:
        yield Line(
            "round trip",
            f"greeting {took:.2f} ms (no handshake with a {ready.pattern or 'peer'}, "
            "which could send us messages meant for others)",
        )
        return
    hello.send_ready(sock, be)
    yield round_trip(sock)


def round_trip(sock: socket.socket) -> Line:
    times = []
    try:
        for _ in range(PINGS):
            start = time.perf_counter()
            hello.ping(sock)
            times.append((time.perf_counter() - start) * 1e3)
    except hello.Silent:
        raise Broken(
            "round trip",
            "no answer to a PING",
            "the connection is open, but nothing serves it: is the program stopped or in a "
            "debugger? (ZMTP 3.0 peers may not support PING)",
        ) from None
    except (hello.Left, hello.NotZmtp) as error:
        raise Broken(
            "round trip",
            f"disconnected: {error}",
            "it ended the connection after the handshake; its log may say why",
        ) from None
    return Line("round trip", f"best of {PINGS}: {min(times):.3f} ms")


def read_url(text: str) -> tuple[str, str, dict[str, Any]]:
    """What stands in front of the "://", the address, and the options."""
    try:
        url = parse(text)
        scheme = "+".join((*url.filters, url.transport))
        options = doctor_options.read(url.query, all_known=scheme in ("tcp", "ipc"))
    except mq.AddressError as error:
        raise Broken("url", error.text, error.hint or "correct it at that position") from None
    except doctor_options.Wrong as wrong:
        raise Broken("url", wrong.found, wrong.advice) from None
    return scheme, url.address, options


# -- the whole -----------------------------------------------------------------------------------


def check(url: str, timeout: float, security: mq.security.Security | None = None) -> Iterator[Line]:
    """Yield a line per step as it completes; raise Broken at the first failure."""
    scheme, address, options = read_url(url)
    known = {plugin.name: plugin for plugin in (*mq.transports(), *mq.resolvers())}
    if scheme not in known:
        raise Broken(
            "url",
            f"no transport {scheme!r} is installed",
            f"installed: {', '.join(known)}; `mq info` shows their distributions",
        )
    if known[scheme].refused:
        raise Broken("url", known[scheme].refused, "`mq info` lists every plug-in")
    if scheme in ("tcp", "dns"):  # of several addresses, use the first that answers
        ways, line = look_up(address)
        yield line
    elif scheme == "ipc":
        path = "\0" + address[1:] if address.startswith("@") else address
        ways = [Way(socket.AF_UNIX, path)]
        yield Line("name", "an abstract name" if path[0] == "\0" else f"{os.path.abspath(path)}")
    else:
        raise Broken(
            "url",
            f"{scheme} cannot be tested from outside",
            "call explain() on the socket in the program itself"
            if scheme == "inproc"
            else "it stands for other addresses: test each of them"
            if known[scheme].kind == "resolver"
            else "this command supports tcp and ipc",
        )
    sock, line = reach(ways, timeout, options)
    with sock:
        if sock.family != socket.AF_UNIX and (set_there := doctor_options.to_set(options)):
            yield Line("options", f"the kernel accepts {', '.join(set_there)}")
        yield line
        yield from check_wire(sock, url, timeout, security)


@click.command()
@click.argument("url")
@click.option(
    "-t",
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=3.0,
    show_default=True,
    metavar="S",
    help="Seconds to wait at each step.",
)
@for_a_client
def doctor(url: str, timeout: float, security: mq.security.Security | None) -> None:
    """Find out why a connection does not work. Tests name, port, wire protocol, greeting,
    mechanism, socket type and round trip, a line each, and says what to do about the first failure.
    Options in the URL are checked, too.

    With --server-key and --key (CURVE), or --user and --password-file (PLAIN), it also tests
    whether the other side accepts these. A socket reveals its type only to a fitting one, so this
    takes up to four connections, which appear in the other side's events().

    The command is safe on a production system: it takes no messages and disconnects at once. Exit
    status 1 if a step fails.

    \b
    mq doctor tcp://127.0.0.1:5555
    mq doctor tcp://127.0.0.1:5555 --server-key server.key --key ann.key_secret
    """
    try:
        for line in check(url, timeout, security):
            click.echo(f"ok      {line.step:12} {as_text(line.found)}")
    except Broken as broken:
        click.echo(f"FAILED  {broken.line.step:12} {as_text(broken.line.found)}")
        click.echo(f"        {'what to do':12} {as_text(broken.line.advice)}")
        raise click.exceptions.Exit(1) from None
