"""`mq cat --PATTERN ...`: the command in the words of nanocat and nngcat.

Who names the pattern by an option (`--req`, `--sub0`) gets those tools' options with their meaning,
and nothing of `mq cat PATTERN`'s own but -o and --wire; so -d is a delay here, a text there. Their
manuals and their output were the model (nanocat 1.1, nngcat 1.5); where the two differ, nanocat's
way is taken, since more of it is written down, and what only one of them has is here as well:

    seconds             may be fractions everywhere (nngcat: whole ones, and not for every option)
    --ascii             a newline after each message (nngcat: none)
    --quoted            a tab is \\x09 (nngcat: \\t)
    --connect           goes on trying until somebody listens (nngcat: ends)
    --recv-timeout      ends the command in order, status 0, in both
    --async, --compat, --socket-name   accepted, without effect
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import click

import mqcore as mq
from mqcore.cli.common import OPTION, finish, note, on_terminal
from mqcore.errors import StateError, Timeout, UsageError

#: option: pattern, in the order of nngcat's help
PATTERNS = {
    "req": "req", "rep": "rep", "pub": "pub", "sub": "sub", "push": "push", "pull": "pull",
    "surveyor": "surveyor", "respondent": "respondent", "bus": "bus", "pair": "pair",
}
ALIASES = {**{f"--{name}": name for name in PATTERNS.values()},
           **{f"--{name}0": name for name in PATTERNS.values()}, "--pair1": "pair1"}

ASKS = {"req", "surveyor"}
ANSWERS = {"rep", "respondent"}
SENDS = {"push", "pub"}
RECEIVES = {"pull", "sub"}
TALKS = {"pair", "pair1", "bus"}
WAITS = {"push", "req", "pair", "pair1"}  # do not send before there is a peer
GRACE = 1.0  # seconds that one who connects and would send to nobody waits for his peers

TEXTS = {"-d", "--data", "-D", "-F", "--file", "-s", "--topic", "-g", "--group"}


def speaks_nanocat(args: Sequence[str]) -> bool:
    """Is a pattern named by an option? A text that looks like one (`-d --push`) is none."""
    for before, word in itertools.pairwise(["", *args]):
        if word == "--":
            return False
        if word in ALIASES and before not in TEXTS:
            return True
    return False


# -- how messages are shown: byte for byte as nanocat does -----------------------------------------

PRINTABLE = range(0x20, 0x7F)
DOTS = bytes(byte if byte in PRINTABLE else 0x2E for byte in range(256))
C_LIKE = {0x0A: b"\\n", 0x0D: b"\\r", 0x5C: b"\\\\", 0x22: b'\\"'}
HEX = [b"\\x%02x" % byte for byte in range(256)]
QUOTED = [C_LIKE.get(byte, bytes((byte,)) if byte in PRINTABLE else HEX[byte])
          for byte in range(256)]


def msgpack(body: bytes) -> bytes:
    """msgpack's type bin, with the shortest length that fits."""
    size = len(body)
    for code, width in ((0xC4, 1), (0xC5, 2), (0xC6, 4)):
        if size < 1 << 8 * width:
            return bytes((code,)) + size.to_bytes(width, "big") + body
    raise click.ClickException(f"a message of {size} bytes does not fit into msgpack's 4 GiB")


FORMATS: dict[str, Callable[[bytes], bytes]] = {
    "no": lambda body: b"",
    "raw": lambda body: body,
    "ascii": lambda body: body.translate(DOTS) + b"\n",
    "quoted": lambda body: b'"' + b"".join(map(QUOTED.__getitem__, body)) + b'"\n',
    "msgpack": msgpack,
    "hex": lambda body: b'"' + b"".join(map(HEX.__getitem__, body)) + b'"\n',
}


# -- what the arguments come to --------------------------------------------------------------------

class Job(NamedTuple):
    socket: Any
    pattern: str
    data: bytes | None
    show: Callable[[bytes], bytes]
    count: int | None
    interval: float | None
    send_timeout: float | None
    recv_timeout: float | None


def the_pattern(given: dict[str, Any]) -> str:
    named = [name for name in (*PATTERNS, "pair1") if given.pop(name)]
    if len(named) != 1:
        raise click.UsageError(f"--{named[1]} conflicts with --{named[0]}: give one socket type")
    return named[0]


def the_format(form: str | None, flags: dict[str, bool]) -> str:
    named = ([form] if form else []) + [name for name, on in flags.items() if on]
    if len(named) > 1:
        raise click.UsageError(f"--{named[1]} conflicts with the format {named[0]}: give one")
    return named[0] if named else "no"


def the_data(pattern: str, text: tuple[str, ...], path: tuple[str, ...]) -> bytes | None:
    if len(text) + len(path) > 1:
        raise click.UsageError("--data and --file: one of them, once")
    if pattern in RECEIVES and (text or path):
        raise click.UsageError(f"--{pattern} only receives: --data and --file mean nothing")
    if pattern in SENDS | ASKS and not (text or path):
        raise click.UsageError(f"--{pattern} needs --data or --file")
    if text:
        return text[0].encode("utf-8", "surrogateescape")
    if not path:
        return None
    if path[0] == "-":
        return sys.stdin.buffer.read()
    with open(path[0], "rb") as stream:
        return stream.read()


def in_our_words(url: str, listens: bool) -> str:
    """Addresses as those tools write them."""
    for theirs, ours in (("abstract://", "ipc://@"), ("unix://", "ipc://"), ("tcp4://", "tcp://"),
                         ("tcp6://", "tcp://")):
        if url.startswith(theirs):
            url = ours + url.removeprefix(theirs)
    if listens and url.startswith("tcp://:"):
        url = "tcp://*" + url.removeprefix("tcp://")
    return url


def addresses(given: dict[str, Any], listens: bool) -> list[str]:
    way = "bind" if listens else "connect"
    return [*(in_our_words(url, listens) for url in given.pop(way)),
            *(f"tcp://127.0.0.1:{port}" for port in given.pop(f"{way}_local")),
            *(f"ipc://{path}" for path in given.pop(f"{way}_ipc"))]


def the_options(pattern: str, given: dict[str, Any]) -> dict[str, Any]:
    """Of the socket."""
    options = dict(given.pop("options"))
    topics = given.pop("subscribe")
    if pattern == "sub":
        options["topics"] = topics or (b"",)
    elif topics:
        raise click.UsageError(f"--subscribe is for --sub, not for --{pattern}")
    for option, name in (("cacert", "tls_ca"), ("cert", "tls_cert"), ("key", "tls_key"),
                         ("wire", "wire")):
        value = given.pop(option)
        if value:
            options[name] = value
    if given.pop("insecure"):
        options["tls_verify"] = "none"
    most = given.pop("recv_maxsz")
    if most is not None:
        options["max_message_size"] = most or None
    return options


def open_socket(pattern: str, bind: list[str], connect: list[str], options: dict[str, Any],
                silent: bool) -> Any:
    """Who connects speaks SP, as those tools do; who listens serves both families."""
    socket = mq.socket(pattern, **options)
    words = {} if "wire" in options else {"wire": "sp"}
    try:
        for url in bind:
            endpoint = socket.bind(url)
            if not silent:
                note(f"listening on {endpoint.url}")
        for url in connect:
            socket.connect(url, **words)
    except BaseException:
        socket.close(linger=0)
        raise
    return socket


def be_ready(job: Job, connects: int, delay: float) -> None:
    """The delay; and peers for those who send."""
    due = time.monotonic() + delay
    if job.pattern in WAITS and job.data is not None:
        job.socket.wait_peers(1, timeout=job.send_timeout)
    elif connects and job.data is not None and job.pattern not in ANSWERS:
        try:  # it would be sent to nobody
            job.socket.wait_peers(connects, timeout=GRACE)
        except Timeout:
            pass
    time.sleep(max(0.0, due - time.monotonic()))


# -- the five ways ---------------------------------------------------------------------------------

def turns(job: Job) -> Iterator[float | None]:
    """One for each message to send: when the next one is due, None if there is no interval."""
    due = time.monotonic()
    many = job.count or (None if job.interval else 1)
    for _ in itertools.repeat(None) if many is None else itertools.repeat(None, many):
        if job.interval is not None:
            time.sleep(max(0.0, due - time.monotonic()))
            due += job.interval
        yield due if job.interval is not None else None


def receive(job: Job, until: float | None = None, count: int | None = None) -> Iterator[Any]:
    """Messages, each of them shown; up to a time, a number, --recv-timeout, the survey's end."""
    for _ in itertools.repeat(None) if count is None else itertools.repeat(None, count):
        left = None if until is None else max(0.0, until - time.monotonic())
        limits = [limit for limit in (left, job.recv_timeout) if limit is not None]
        try:
            message = job.socket.recv_msg(timeout=min(limits, default=None))
        except (Timeout, StateError):
            return
        sys.stdout.buffer.write(job.show(b"".join(map(bytes, message.parts))))
        sys.stdout.buffer.flush()
        yield message


def send(job: Job) -> None:
    job.socket.send(job.data, timeout=job.send_timeout)


def drain(messages: Iterator[Any]) -> None:
    for _ in messages:
        pass


def run(job: Job) -> None:
    if job.pattern in RECEIVES or job.data is None and job.pattern in TALKS:
        drain(receive(job, count=job.count))
    elif job.pattern in ANSWERS:
        for message in receive(job, count=job.count):
            if job.data is not None:
                message.reply(job.data)
    else:
        for due in turns(job):
            send(job)
            if job.pattern in ASKS:
                drain(receive(job, due, 1 if job.pattern == "req" else None))
            elif job.pattern in TALKS and due is not None:
                drain(receive(job, due))
        if job.pattern in TALKS and job.interval is None:
            drain(receive(job))


# -- the command -----------------------------------------------------------------------------------

SECONDS = click.FloatRange(0)
PORT = click.IntRange(0, 65535)


def flag(*names: str, help: str = "", hidden: bool = False) -> click.Option:
    return click.Option(names, is_flag=True, help=help, hidden=hidden)


def many(*names: str, metavar: str, help: str, type: Any = str) -> click.Option:
    return click.Option(names, multiple=True, metavar=metavar, help=help, type=type)


def one(*names: str, metavar: str, help: str = "", type: Any = str,
        hidden: bool = False) -> click.Option:
    return click.Option(names, metavar=metavar, help=help, type=type, hidden=hidden)


PARAMETERS = [
    *(flag(f"--{name}", f"--{name}0", help=f"A {name} socket.") for name in PATTERNS),
    flag("--pair1", help="A pair1 socket (nng's pair with a hop count)."),
    many("--connect", "--dial", metavar="URL", help="Connect there; speaks SP."),
    many("--bind", "--listen", metavar="URL", help="Listen here; serves SP and ZMTP."),
    many("--connect-local", "-l", metavar="PORT", type=PORT, help="tcp://127.0.0.1:PORT"),
    many("--bind-local", "-L", metavar="PORT", type=PORT, help="The same, listening."),
    many("--connect-ipc", "-x", metavar="PATH", help="ipc://PATH"),
    many("--bind-ipc", "-X", metavar="PATH", help="The same, listening."),
    many("--data", "-D", metavar="TEXT", help="What to send, to ask or to answer."),
    many("--file", "-F", metavar="PATH", help="The same from a file; - is standard input."),
    one("--interval", "-i", metavar="S", type=click.FloatRange(0, min_open=True),
        help="Send (or ask) again every S seconds."),
    one("--delay", "-d", metavar="S", type=SECONDS, help="Wait so long before the first."),
    one("--count", "-C", metavar="N", type=click.IntRange(0),
        help="End after N messages: sent if there is --data (answered by --rep and "
             "--respondent), else received. 0: no end."),
    one("--format", metavar="[no|ascii|quoted|raw|hex|msgpack]",
        type=click.Choice([*FORMATS]), help="How what comes is shown.  [default: not at all]"),
    flag("--ascii", "-A", help="A line each, a dot for what is not ASCII."),
    flag("--quoted", "-Q", help="A line each, quoted and escaped as in C."),
    flag("--hex", help="A line each, quoted, every byte as \\xNN."),
    flag("--raw", help="The bytes, nothing between."),
    flag("--msgpack", help="Each as msgpack's type bin."),
    many("--subscribe", metavar="PREFIX", help="sub: what to subscribe to.  [default: everything]"),
    one("--send-timeout", metavar="S", type=SECONDS, help="Give up (status 3) after S seconds "
                                                          "without a peer to take a message."),
    one("--recv-timeout", metavar="S", type=SECONDS, help="End (status 0) after S seconds without "
                                                          "a message."),
    one("--recv-maxsz", "-Z", metavar="BYTES", type=click.IntRange(0),
        help="Close the connection of who sends a larger message. 0: no limit."),
    one("--cacert", metavar="FILE", help="TLS: whom to trust."),
    one("--cert", "-E", metavar="FILE", help="TLS: our certificate."),
    one("--key", metavar="FILE", help="TLS: its private key."),
    flag("--insecure", "-k", help="TLS: check nothing of the server."),
    click.Option(["--wire"], type=click.Choice(["sp", "zmtp"]),
                 help="Speak this one only, whoever connects or listens."),
    click.Option(["--verbose", "-v"], count=True, help="Say on stderr what was chosen."),
    click.Option(["--silent", "-q"], count=True, help="Say less on stderr."),
    flag("--async", "unused_async", hidden=True),
    flag("--compat", "unused_compat", hidden=True),
    one("--socket-name", "unused_name", metavar="NAME", hidden=True),
]

HELP = """Send and receive messages, with nanocat's and nngcat's options.

A socket type and an address are needed: mq cat --req --connect URL --data TEXT. With --data or
--file push and pub send and end; req and surveyor ask, show what comes and end; rep and respondent
answer every question with it (without it: never); bus and pair send it and then show what comes.
Without --interval that is done once (or --count times), with it again and again. Nothing is shown
unless a format is given.

Exit status: 0 done, or --recv-timeout is over; 1 failed; 2 wrong arguments; 3 --send-timeout is
over.

\b
Answer and ask (one of the two may be nanocat or nngcat, or a program with pyzmq or pynng):
  mq cat --rep -L 1234 -D pong -A
  mq cat --req -l 1234 -D ping -A -i 1
"""


def nanocat(delay: float | None, count: int | None, interval: float | None,
            send_timeout: float | None, recv_timeout: float | None, **given: Any) -> None:
    pattern = the_pattern(given)
    show = the_format(given.pop("format"), {
        name: given.pop(name) for name in ("ascii", "quoted", "hex", "raw", "msgpack")})
    bind, connect = addresses(given, True), addresses(given, False)
    if not bind and not connect:
        raise click.UsageError("give an address: --connect URL or --bind URL")
    options = the_options(pattern, given)
    data = the_data(pattern, given.pop("data"), given.pop("file"))
    verbose = given.pop("verbose") - given.pop("silent")
    if verbose >= 0 and show == "no" and pattern not in SENDS and on_terminal(sys.stdout):
        note("what comes is not shown; -A, -Q, --hex, --raw and --msgpack show it")
    socket = open_socket(pattern, bind, connect, options, silent=verbose < 0)
    job = Job(socket, pattern, data, FORMATS[show], count or None, interval, send_timeout,
              recv_timeout)
    if verbose > 0:
        note(f"{pattern}: listening on {bind}, connecting to {connect}, with {options}")
    try:
        be_ready(job, len(connect), delay or 0.0)
        run(job)
        finish(socket)
    except UsageError as error:
        raise click.ClickException(str(error)) from None
    finally:
        socket.close()


class NanoCat(click.Command):
    """Its usage line says how it is called."""

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "--PATTERN {--connect URL | --bind URL} [OPTIONS]")


COMMAND: click.Command = OPTION(
    NanoCat("cat", params=list(PARAMETERS), callback=nanocat, help=HELP))
