"""`mq cat --PATTERN ...`: the command with the options of nanocat and nngcat.

With the pattern as an option (`--req`, `--sub0`), the command takes those tools' options with their
meaning. Of `mq cat PATTERN`'s own it keeps only -o and --wire: -d is a delay here, a text there. It
follows their manuals and output (nanocat 1.1, nngcat 1.5). Where the two differ, it follows
nanocat, which is documented better. Options that only one of them has are included:

    seconds             may be fractions everywhere (nngcat: whole ones, and not for every option)
    --ascii             a newline after each message (nngcat: none)
    --quoted            a tab is \\x09 (nngcat: \\t)
    --connect           keeps trying until the other side listens (nngcat: exits)
    --recv-timeout      ends the command with status 0, as in both
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
WAITS = {"push", "req", "pair", "pair1"}  # do not send before a peer is connected
GRACE = 1.0  # seconds that a connecting sender waits for its first peer

TEXTS = {"-d", "--data", "-D", "-F", "--file", "-s", "--topic", "-g", "--group"}


def speaks_nanocat(args: Sequence[str]) -> bool:
    """Whether an option names a pattern. A value that looks like one (`-d --push`) does not
    count."""
    for before, word in itertools.pairwise(["", *args]):
        if word == "--":
            return False
        if word in ALIASES and before not in TEXTS:
            return True
    return False


# -- output: byte for byte as nanocat prints it ----------------------------------------------------

PRINTABLE = range(0x20, 0x7F)
DOTS = bytes(byte if byte in PRINTABLE else 0x2E for byte in range(256))
C_LIKE = {0x0A: b"\\n", 0x0D: b"\\r", 0x5C: b"\\\\", 0x22: b'\\"'}
HEX = [b"\\x%02x" % byte for byte in range(256)]
QUOTED = [C_LIKE.get(byte, bytes((byte,)) if byte in PRINTABLE else HEX[byte])
          for byte in range(256)]


def msgpack(body: bytes) -> bytes:
    """msgpack's bin type, with the shortest length that fits."""
    size = len(body)
    for code, width in ((0xC4, 1), (0xC5, 2), (0xC6, 4)):
        if size < 1 << 8 * width:
            return bytes((code,)) + size.to_bytes(width, "big") + body
    raise click.ClickException(f"a message of {size} bytes exceeds msgpack's limit of 4 GiB")


FORMATS: dict[str, Callable[[bytes], bytes]] = {
    "no": lambda body: b"",
    "raw": lambda body: body,
    "ascii": lambda body: body.translate(DOTS) + b"\n",
    "quoted": lambda body: b'"' + b"".join(map(QUOTED.__getitem__, body)) + b'"\n',
    "msgpack": msgpack,
    "hex": lambda body: b'"' + b"".join(map(HEX.__getitem__, body)) + b'"\n',
}


# -- arguments -------------------------------------------------------------------------------------

class Job(NamedTuple):
    socket: Any
    pattern: str
    data: bytes | None
    show: Callable[[bytes], bytes]
    most: int | None  # messages; None: no limit
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
        raise click.UsageError("give --data or --file only once")
    if pattern in RECEIVES and (text or path):
        raise click.UsageError(f"--{pattern} only receives: remove --data and --file")
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
    """Translate an address from those tools' notation."""
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
    """The options of the socket."""
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
    """A connecting socket speaks SP, as those tools do. A listening socket serves both
    protocols."""
    socket = mq.socket(pattern, **options)
    words: dict[str, Any] = {} if "wire" in options else {"wire": "sp"}
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
    """Wait for the delay and, before sending, for peers."""
    due = time.monotonic() + delay
    if job.pattern in WAITS and job.data is not None:
        job.socket.wait_peers(1, timeout=job.send_timeout)
    elif connects and job.data is not None and job.pattern not in ANSWERS:
        try:  # it would be lost
            job.socket.wait_peers(connects, timeout=GRACE)
        except Timeout:
            pass
    time.sleep(max(0.0, due - time.monotonic()))


# -- the five kinds of exchange --------------------------------------------------------------------

def turns(job: Job) -> Iterator[float | None]:
    """Yield once per message to send: when the next one is due, or None without an interval."""
    due = time.monotonic()
    many = job.most or (None if job.interval else 1)
    for _ in itertools.repeat(None) if many is None else itertools.repeat(None, many):
        if job.interval is not None:
            time.sleep(max(0.0, due - time.monotonic()))
            due += job.interval
        yield due if job.interval is not None else None


def receive(job: Job, until: float | None = None, count: int | None = None) -> Iterator[Any]:
    """Yield and print messages until a time, a count, --recv-timeout or the end of the survey."""
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
        drain(receive(job, count=job.most))
    elif job.pattern in ANSWERS:
        for message in receive(job, count=job.most):
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
    many("--connect", "--dial", metavar="URL", help="Connect to this address; speaks SP."),
    many("--bind", "--listen", metavar="URL", help="Listen at this address; serves SP and ZMTP."),
    many("--connect-local", "-l", metavar="PORT", type=PORT, help="tcp://127.0.0.1:PORT"),
    many("--bind-local", "-L", metavar="PORT", type=PORT, help="The same, but listen."),
    many("--connect-ipc", "-x", metavar="PATH", help="ipc://PATH"),
    many("--bind-ipc", "-X", metavar="PATH", help="The same, but listen."),
    many("--data", "-D", metavar="TEXT", help="The message, request or reply to send."),
    many("--file", "-F", metavar="PATH", help="The same, from a file; - is standard input."),
    one("--interval", "-i", metavar="S", type=click.FloatRange(0, min_open=True),
        help="Repeat every S seconds."),
    one("--delay", "-d", metavar="S", type=SECONDS,
        help="Wait S seconds before the first message."),
    one("--count", "-C", metavar="N", type=click.IntRange(0),
        help="Stop after N messages: sent if there is --data (replies for --rep and "
             "--respondent), else received. 0: no limit."),
    one("--format", metavar="[no|ascii|quoted|raw|hex|msgpack]",
        type=click.Choice([*FORMATS]), help="How to print messages.  [default: not at all]"),
    flag("--ascii", "-A", help="A line each, with a dot for other bytes."),
    flag("--quoted", "-Q", help="A line each, quoted and escaped as in C."),
    flag("--hex", help="A line each, quoted, every byte as \\xNN."),
    flag("--raw", help="The bytes, without separators."),
    flag("--msgpack", help="Each as msgpack's bin type."),
    many("--subscribe", metavar="PREFIX",
         help="sub: a topic to subscribe to.  [default: everything]"),
    one("--send-timeout", metavar="S", type=SECONDS,
        help="Exit with status 3 after S seconds without a peer to take a message."),
    one("--recv-timeout", metavar="S", type=SECONDS,
        help="Exit with status 0 after S seconds without a message."),
    one("--recv-maxsz", "-Z", metavar="BYTES", type=click.IntRange(0),
        help="Disconnect peers that send a larger message. 0: no limit."),
    one("--cacert", metavar="FILE", help="TLS: the trusted certificates."),
    one("--cert", "-E", metavar="FILE", help="TLS: our certificate."),
    one("--key", metavar="FILE", help="TLS: its private key."),
    flag("--insecure", "-k", help="TLS: do not verify the server."),
    click.Option(["--wire"], type=click.Choice(["sp", "zmtp"]),
                 help="Speak only this protocol."),
    click.Option(["--verbose", "-v"], count=True, help="Print the chosen settings on stderr."),
    click.Option(["--silent", "-q"], count=True, help="Print less on stderr."),
    flag("--async", "unused_async", hidden=True),
    flag("--compat", "unused_compat", hidden=True),
    one("--socket-name", "unused_name", metavar="NAME", hidden=True),
]

HELP = """Send and receive messages, with nanocat's and nngcat's options.

Give a socket type and an address: mq cat --req --connect URL --data TEXT. With --data or --file,
push and pub send and exit. req and surveyor send, print the replies and exit. rep and respondent
reply with it to every request (without it they never reply); bus and pair send it and then print
received messages. Without --interval this happens once (or --count times), with it repeatedly.
Received messages are printed only if you choose a format.

Exit status: 0 done, or --recv-timeout expired; 1 failed; 2 wrong arguments; 3 --send-timeout
expired.

\b
Reply and request (either side may be nanocat or nngcat, or a program with pyzmq or pynng):
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
        note("received messages are not printed; use -A, -Q, --hex, --raw or --msgpack")
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
    """Shows the nanocat form in its usage line."""

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, "--PATTERN {--connect URL | --bind URL} [OPTIONS]")


COMMAND: click.Command = OPTION(
    NanoCat("cat", params=list(PARAMETERS), callback=nanocat, help=HELP))
