"""Names that pyzmq's modules hold of other modules, because they import them: zmq.error.EINTR.

Programs use some of them. What mqcore's modules do not import themselves is found here when it is
asked for. tests/peers/zmq/test_names.py compares all public names with those of pyzmq.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar, Union

OptValT = Union[str, bytes, int]  # noqa: UP007 - pyzmq's value
T = TypeVar("T")
OWN = "mqcore.zmq.borrowed"


class MaxRetryExceeded(Exception):  # noqa: N818 - pyzmq's name
    """What an ssh tunnel through pexpect raises; mqcore has none."""


class ProactorSelectorThreadWarning(RuntimeWarning):
    """Of Windows."""


#: module: its names; "name=other" is called otherwise there
ORIGINS = {
    OWN: "MaxRetryExceeded OptValT ProactorSelectorThreadWarning T",
    "asyncio": "Future SelectorEventLoop",
    "builtins": "TimeoutError",
    "collections.abc": "Awaitable Callable Sequence",
    "contextlib": "contextmanager",
    "enum": "Enum IntEnum IntFlag",
    "errno": "EINTR",
    "getpass": "getuser",
    "gevent": "get_hub",
    "gevent.event": "AsyncResult",
    "inspect": "isawaitable",
    "mqcore.zmq.attributes": "AttributeSetter",
    "mqcore.zmq.backend": "ContextBase=Context FrameBase=Frame SocketBase=Socket",
    "mqcore.zmq.constants": "DeviceType ENOTSOCK ETERM PUB PUSH QUEUE RCVTIMEO SNDTIMEO",
    "mqcore.zmq.devices.proxydevice": "ProcessProxy Proxy ThreadProxy",
    "mqcore.zmq.poller": "Poller",
    "mqcore.zmq.socket": "SyncSocket",
    "mqcore.zmq.ssh.forward": "forward_tunnel",
    "mqcore.zmq.utils.interop": "cast_int_addr",
    "multiprocessing": "Process",
    "os": "getpid",
    "paramiko": "SSHException",
    "pickle": "DEFAULT_PROTOCOL",
    "queue": "Queue",
    "re": "Match",
    "threading": "Event Lock Thread",
    "tornado.concurrent": "chain_future future_add_done_callback future_set_exc_info is_future",
    "tornado.ioloop": "IOLoop app_log",
    "tornado.util": "Configurable import_object",
    "typing": "Any Final Generic Literal NoReturn Optional Protocol TYPE_CHECKING TypeAlias "
              "TypeVar TypedDict Union cast overload",
    "warnings": "warn",
    "weakref": "WeakKeyDictionary WeakSet",
}
WHERE = {name.partition("=")[0]: (module, name.rpartition("=")[2])
         for module, names in ORIGINS.items() for name in names.split()}
#: modules by other names than their own
MODULES = {"zmq": "mqcore.zmq", "constants": "mqcore.zmq.constants", "error": "mqcore.zmq.error",
           "jsonapi": "mqcore.zmq.utils.jsonapi", "zmqstream": "mqcore.zmq.eventloop.zmqstream"}
PACKAGES = ("mqcore.zmq", "mqcore.zmq.eventloop", "mqcore.zmq.green",
            "mqcore.zmq.green.eventloop")
SUBMODULES = ("asyncio", "auth", "eventloop", "green", "ioloop", "log", "ssh")

TORNADO = (
    "Any Awaitable Callable Configurable Future Protocol TimeoutError TypeVar TypedDict app_log "
    "asyncio chain_future concurrent datetime functools future_add_done_callback "
    "future_set_exc_info import_object is_future isawaitable math numbers os random sys time "
    "typing warnings")
#: which names a module of ours lends
LENT = {
    "mqcore.zmq": "Enum IntEnum IntFlag asyncio auth contextmanager eventloop green log os ssh sys",
    "mqcore.zmq.asyncio": "Future ProactorSelectorThreadWarning SelectorEventLoop "
                          "WeakKeyDictionary selectors sys",
    "mqcore.zmq.attributes": "OptValT T TypeVar Union constants errno",
    "mqcore.zmq.auth.asyncio": "Optional zmq",
    "mqcore.zmq.auth.base": "Awaitable Optional Union zmq",
    "mqcore.zmq.auth.certs": "Optional Union datetime glob zmq",
    "mqcore.zmq.auth.ioloop": "Optional zmq",
    "mqcore.zmq.auth.thread": "Optional Thread zmq",
    "mqcore.zmq.backend": "os platform",
    "mqcore.zmq.constants": "TYPE_CHECKING errno sys",
    "mqcore.zmq.context": "AttributeSetter Callable ContextBase Generic Lock OptValT SyncSocket "
                          "TypeAlias TypeVar WeakSet atexit cast cast_int_addr overload warn zmq",
    "mqcore.zmq.curve_keygen": "sys zmq",
    "mqcore.zmq.decorators": "Protocol TYPE_CHECKING TypeVar cast zmq",
    "mqcore.zmq.devices.basedevice": "ENOTSOCK ETERM Optional PUSH QUEUE Thread zmq",
    "mqcore.zmq.devices.monitoredqueue": "Callable zmq",
    "mqcore.zmq.devices.monitoredqueuedevice": "PUB ProcessProxy Proxy ThreadProxy",
    "mqcore.zmq.devices.proxydevice": "zmq",
    "mqcore.zmq.devices.proxysteerabledevice": "ProcessProxy Proxy ThreadProxy zmq",
    "mqcore.zmq.error": "EINTR Literal",
    "mqcore.zmq.eventloop": "ioloop",
    "mqcore.zmq.eventloop.future": "IOLoop asyncio",
    "mqcore.zmq.eventloop.ioloop": TORNADO,
    "mqcore.zmq.eventloop.zmqstream": "Awaitable Literal Queue TYPE_CHECKING overload zmq",
    "mqcore.zmq.frame": "AttributeSetter Final FrameBase Literal overload zmq",
    "mqcore.zmq.green": "Enum IntEnum IntFlag eventloop",
    "mqcore.zmq.green.core": "AsyncResult RCVTIMEO SNDTIMEO get_hub gevent sys warnings zmq",
    "mqcore.zmq.green.device": "NoReturn TYPE_CHECKING zmq",
    "mqcore.zmq.green.eventloop": "ioloop",
    "mqcore.zmq.green.eventloop.ioloop": TORNADO,
    "mqcore.zmq.green.eventloop.zmqstream": "IOLoop TYPE_CHECKING zmqstream",
    "mqcore.zmq.green.poll": "zmq",
    "mqcore.zmq.log.handlers": "Final TYPE_CHECKING cast zmq",
    "mqcore.zmq.socket": "AttributeSetter Callable DEFAULT_PROTOCOL Generic Literal Poller "
                         "Sequence SocketBase TYPE_CHECKING TypeAlias TypeVar cast cast_int_addr "
                         "errno jsonapi overload pickle sys warn zmq",
    "mqcore.zmq.ssh.forward": "TYPE_CHECKING",
    "mqcore.zmq.ssh.tunnel": "Literal MaxRetryExceeded Process SSHException TYPE_CHECKING atexit "
                             "cast forward_tunnel getuser os overload paramiko pexpect re signal "
                             "socket warnings",
    "mqcore.zmq.sugar": "DeviceType error",
    "mqcore.zmq.utils.garbage": "Event Final Lock Thread atexit getpid struct warnings zmq",
    "mqcore.zmq.utils.jsonapi": "json",
    "mqcore.zmq.utils.monitor": "Awaitable TypedDict overload zmq",
    "mqcore.zmq.utils.strtypes": "warnings",
    "mqcore.zmq.utils.win32": "os",
    "mqcore.zmq.utils.z85": "Final Union",
    "mqcore.zmq.version": "Match cast re",
}


def lend(module: str, why: Callable[[str], str] | None = None) -> Callable[[str], Any]:
    """__getattr__() of this module. why(name): the text of an AttributeError."""
    names = frozenset(LENT.get(module, "").split())     # none: it is run as a program

    def lent(name: str) -> Any:
        if name in names:
            try:
                return _found(module, name)
            except ImportError:  # of a package that is not installed
                pass
        raise AttributeError(why(name) if why else f"module {module!r} has no attribute {name!r}")

    return lent


def _found(module: str, name: str) -> Any:
    if name in WHERE:
        origin, known = WHERE[name]
        return getattr(importlib.import_module(origin), known)
    if module in PACKAGES and name in SUBMODULES:
        return importlib.import_module(f"{module}.{name}")
    return importlib.import_module(MODULES.get(name, name))
