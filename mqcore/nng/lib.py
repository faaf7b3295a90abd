"""nng's constants by their C names, and its functions that open a socket, for `opener=`.

The nng library itself is not used, so its other functions do not exist here.
"""

from __future__ import annotations

from typing import NamedTuple

from mqcore.nng.exceptions import NotSupported, make


class Opener(NamedTuple):
    """Which kind of socket: `Socket(opener=lib.nng_req0_open)` is a Req0."""

    pattern: str
    raw: bool = False

    def check(self, pattern: str) -> None:
        """Raise NotSupported unless it opens this pattern."""
        if self.raw:
            raise make(NotSupported, "mqcore has no raw sockets; mqcore.device() forwards messages")
        if self.pattern != pattern:
            raise make(NotSupported, f"this opener is for {self.pattern}, not {pattern}")


NNG_AF_ABSTRACT = 6
NNG_AF_INET = 3
NNG_AF_INET6 = 4
NNG_AF_INPROC = 1
NNG_AF_IPC = 2
NNG_AF_UNSPEC = 0
NNG_AF_ZT = 5

NNG_EADDRINUSE = 10
NNG_EADDRINVAL = 15
NNG_EAGAIN = 8
NNG_EAMBIGUOUS = 29
NNG_EBADTYPE = 30
NNG_EBUSY = 4
NNG_ECANCELED = 20
NNG_ECLOSED = 7
NNG_ECONNABORTED = 18
NNG_ECONNREFUSED = 6
NNG_ECONNRESET = 19
NNG_ECONNSHUT = 31
NNG_ECRYPTO = 26
NNG_EEXIST = 23
NNG_EINTERNAL = 1000
NNG_EINTR = 1
NNG_EINVAL = 3
NNG_EMSGSIZE = 17
NNG_ENOARG = 28
NNG_ENOENT = 12
NNG_ENOFILES = 21
NNG_ENOMEM = 2
NNG_ENOSPC = 22
NNG_ENOTSUP = 9
NNG_EPEERAUTH = 27
NNG_EPERM = 16
NNG_EPROTO = 13
NNG_EREADONLY = 24
NNG_ESTATE = 11
NNG_ESYSERR = 0x10000000
NNG_ETIMEDOUT = 5
NNG_ETRANERR = 0x20000000
NNG_EUNREACHABLE = 14
NNG_EWRITEONLY = 25

NNG_FLAG_ALLOC = 1
NNG_FLAG_NONBLOCK = 2

NNG_INIT_MAX_EXPIRE_THREADS = 6
NNG_INIT_MAX_POLLER_THREADS = 7
NNG_INIT_MAX_TASK_THREADS = 5
NNG_INIT_NUM_EXPIRE_THREADS = 2
NNG_INIT_NUM_POLLER_THREADS = 3
NNG_INIT_NUM_RESOLVER_THREADS = 4
NNG_INIT_NUM_TASK_THREADS = 1
NNG_INIT_PARAMETER_NONE = 0

NNG_MAJOR_VERSION = 1

NNG_MINOR_VERSION = 11

NNG_PATCH_VERSION = 0

NNG_PIPE_EV_ADD_POST = 1
NNG_PIPE_EV_ADD_PRE = 0
NNG_PIPE_EV_NUM = 3
NNG_PIPE_EV_REM_POST = 2

NNG_STAT_BOOLEAN = 4
NNG_STAT_COUNTER = 2
NNG_STAT_ID = 5
NNG_STAT_LEVEL = 1
NNG_STAT_SCOPE = 0
NNG_STAT_STRING = 3

NNG_TLS_1_0 = 769
NNG_TLS_1_1 = 770
NNG_TLS_1_2 = 771
NNG_TLS_1_3 = 772
NNG_TLS_AUTH_MODE_NONE = 0
NNG_TLS_AUTH_MODE_OPTIONAL = 1
NNG_TLS_AUTH_MODE_REQUIRED = 2
NNG_TLS_MODE_CLIENT = 0
NNG_TLS_MODE_SERVER = 1

NNG_UNIT_BYTES = 1
NNG_UNIT_EVENTS = 4
NNG_UNIT_MESSAGES = 2
NNG_UNIT_MILLIS = 3
NNG_UNIT_NONE = 0

#: the functions that open a socket; each is an attribute of this module
OPENERS = {
    **{f"nng_{name}_open{kind}": Opener(name.capitalize(), raw=bool(kind))
       for name in ("bus0", "pair0", "pair1", "pub0", "pull0", "push0", "rep0", "req0",
                    "respondent0", "sub0", "surveyor0")
       for kind in ("", "_raw")},
    "nng_pair1_open_poly": Opener("Pair1"),
}


def __getattr__(name: str) -> Opener:
    if name in OPENERS:
        return OPENERS[name]
    raise AttributeError(f"mqcore.nng has no {name}: there is no nng behind")


def __dir__() -> list[str]:
    return [*globals(), *OPENERS]
