"""Where contexts publish: the folder of a user's monitors, the files in it, and who may connect.

The folder belongs to one user, and no other user may enter it. A file is named after its program,
process and context, and ends with ".sock". One whose process has died is removed by the next
process that publishes or looks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
import time
from collections.abc import Container
from itertools import islice
from pathlib import Path

from mqcore.base.native import socket
from mqcore.errors import UsageError
from mqcore.spi.url import parse

VARIABLE = "MQCORE_MONITOR"
SUFFIX = ".sock"
EVENTS = "-events"      # at the end of the file that events are published at
MOST = 4096             # contexts that one look into the folder finds
LONGEST = 107           # bytes of the path of a Unix socket
OF_ID = 6               # digits of a context's id in it
LOOPBACK = re.compile(r"(127(\.\d{1,3}){3}|\[::1\]|localhost)(:.*)?\Z", re.IGNORECASE)
ANYWHERE = ("*", "0.0.0.0", "[::]")     # hosts that stand for all addresses of a machine


def folder() -> Path:
    """The folder of this user's monitors: MQCORE_MONITOR if that is a path, else `mqcore` in
    XDG_RUNTIME_DIR, else `mqcore-UID` in TMPDIR, or in /tmp if TMPDIR has a very long path."""
    said = os.environ.get(VARIABLE, "")
    if said.startswith("/"):
        return Path(said)
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/") and os.access(runtime, os.W_OK | os.X_OK):
        return Path(runtime, "mqcore")
    # not tempfile.gettempdir(), which goes elsewhere while a disk is full, where no client looks
    name = f"mqcore-{os.getuid()}"
    for temporary in map(os.environ.get, ("TMPDIR", "TEMP", "TMP")):
        if temporary and os.access(temporary, os.W_OK | os.X_OK):
            path = Path(temporary, name).absolute()
            if room_in(path) >= 0:
                return path
    return Path("/tmp", name)


def room_in(path: Path) -> int:
    """The bytes that a program's name may have in the addresses of this folder."""
    return LONGEST - len(os.fsencode(path)) - len(f"/-{1 << 22}-{'0' * OF_ID}{EVENTS}{SUFFIX}")


def private_folder() -> Path:
    """The same, made if it is missing. UsageError if another user could have put files there."""
    path = folder()
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    check_private(path)
    return path


def check_private(path: Path) -> None:
    facts = os.lstat(path)
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() \
            or stat.S_IMODE(facts.st_mode) & 0o077:
        raise UsageError(f"{path} is not a folder that only this user may enter",
                         hint=f"remove it, or name another one with {VARIABLE}=/its/path")


def program() -> str:
    """The name of this process's program, for lists."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    first = next(iter(getattr(sys, "argv", None) or ()), "")
    name = main.name.removesuffix(".__main__") if main is not None \
        else os.path.basename(first) if isinstance(first, str) else ""
    return re.sub(r"[^\w.+-]", "_", name.removesuffix(".py"))[:40] or "python"


def new_url(identity: str) -> str:
    """A new address in this user's folder. In a long path, the name of the program is cut."""
    where = private_folder()
    room = room_in(where)
    if room < 0:
        raise UsageError(f"the path {where} is too long for a folder of monitors, by {-room} bytes",
                         hint=f"name another one with {VARIABLE}=/its/path")
    name = re.sub(r"[^!-~]", "_", program())[:room]
    return url_of(where / f"{name}-{os.getpid()}-{identity[:OF_ID]}{SUFFIX}")


def url_of(path: Path) -> str:
    """The URL of a socket file, whatever its folder is called."""
    return "ipc://" + re.sub("[%?]", lambda found: f"%{ord(found[0]):02X}", os.fspath(path))


def events_url(url: str) -> str:
    """Where events are published: beside the address of the state."""
    scheme, _, address = url.partition("://")
    if scheme.split("+")[-1] in ("ipc", "shm"):
        return f"{scheme}://{address.removesuffix(SUFFIX)}{EVENTS}{SUFFIX}"
    if scheme == "inproc":
        return url + EVENTS
    return f"{scheme}://{address.rpartition(':')[0]}:0"


def as_reached(url: str, via: str) -> str:
    """A URL that a program publishes, for a client that has reached it at `via`: instead of all
    addresses of its machine, the one there."""
    scheme, _, rest = url.partition("://")
    host, _, port = rest.rpartition(":")
    if host not in ANYWHERE or not via:
        return url
    return f"{scheme}://{parse(via).address.rpartition(':')[0]}:{port}"


def discover(where: Path | None = None) -> list[str]:
    """The URLs of all contexts that publish in this user's folder, or in `where`."""
    return find(where)


def find(where: Path | None = None, sure: Container[str] = ()) -> list[str]:
    """discover(). At the URLs in `sure` a process listens: they are not tried, since each try is a
    connection that it accepts."""
    path = folder() if where is None else where
    try:
        if where is None:
            check_private(path)
        with os.scandir(path) as entries:
            found = (entry.name for entry in entries if entry.name.endswith(SUFFIX)
                     and not entry.name.endswith(EVENTS + SUFFIX))
            names = sorted(islice(found, MOST))
    except FileNotFoundError:
        return []
    return [url for name in names if (url := url_of(path / name)) in sure or _listens(path / name)]


def _listens(path: Path) -> bool:
    """_alive(), which also removes the events of a process that has died."""
    alive = _alive(path)
    if not alive:
        _alive(path.with_name(path.name.removesuffix(SUFFIX) + EVENTS + SUFFIX))
    return alive


def sweep(path: Path) -> None:
    """Remove what processes that were killed have left in the folder."""
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in islice(entries, MOST):
            if entry.name.endswith(SUFFIX):
                _alive(path / entry.name)


def _alive(path: Path) -> bool:
    """Whether a process listens at this socket file. Removes our own file if none does."""
    probe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        facts = os.lstat(path)
        if not stat.S_ISSOCK(facts.st_mode):
            return False
        probe.setblocking(False)
        probe.connect(os.fspath(path))
    except ConnectionRefusedError:
        # Binding and listening are two steps: a file that was just made may be of a living process.
        with contextlib.suppress(OSError):
            if facts.st_uid == os.getuid() and time_since(facts) > 1.0:
                os.unlink(path)
        return False
    except OSError as error:
        return error.errno in (errno.EAGAIN, errno.EINPROGRESS)     # its backlog is full
    finally:
        probe.close()
    return True


def time_since(facts: os.stat_result) -> float:
    return time.time() - facts.st_mtime


def scheme_of(url: str) -> str:
    """The transport of a URL, without filters."""
    return parse(url).transport


def check_exposure(url: str, insecure: bool, options: dict[str, object]) -> None:
    """UsageError for an address that other users or machines reach without credentials."""
    parsed = parse(url)
    if parsed.transport in ("ipc", "inproc", "shm"):
        return
    if parsed.transport == "tcp" and LOOPBACK.match(parsed.address):
        return
    if insecure or ("tls" in parsed.filters and options.get("tls_ca")):
        return
    raise UsageError(
        f"{url} shows this process to every machine that reaches it",
        hint="publish at ipc:// or 127.0.0.1, ask for certificates (tls+tcp:// with tls_cert= and "
             "tls_ca=), or accept the risk with Publish(url, insecure=True)")
