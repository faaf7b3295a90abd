"""Context: where sockets come from."""

from __future__ import annotations

import os
import warnings
import weakref
from enum import IntEnum
from functools import partial
from types import GenericAlias
from typing import Any, ClassVar

from mqcore.base.native import threading
from mqcore.base.waits import guest, start_behind
from mqcore.zmq.attributes import Attributes, shown_module
from mqcore.zmq.borrowed import lend
from mqcore.zmq.constants import ContextOption, Errno, SocketOption
from mqcore.zmq.error import ZMQError, make
from mqcore.zmq.home import Home
from mqcore.zmq.socket import Socket

SOCKET_LIMIT, MAX_MSGSZ, MSG_T_SIZE = 65535, 2**31 - 1, 64  # what libzmq says
_SHADOWED: weakref.WeakValueDictionary[int, Home] = weakref.WeakValueDictionary()
#: of threads that libzmq starts; mqcore starts its own
HINTS = (ContextOption.THREAD_PRIORITY, ContextOption.THREAD_SCHED_POLICY,
         ContextOption.THREAD_AFFINITY_CPU_ADD, ContextOption.THREAD_AFFINITY_CPU_REMOVE,
         ContextOption.THREAD_NAME_PREFIX)


class Context(Attributes):
    """The sockets of a program, or a part of it. Options of sockets that are set here, by name or
    with setsockopt(), are those of the sockets made afterwards."""

    _known: ClassVar[type[IntEnum]] = SocketOption
    _socket_class: ClassVar[Any] = Socket
    _instance: ClassVar[Any] = None
    _instance_pid: ClassVar[int | None] = None
    _instance_lock = threading.RLock()  # reentrant: for signal handlers
    _shadow = False
    _warn_destroy_close = False
    _home: Home
    sockopts: dict[int, Any]
    __class_getitem__: Any = classmethod(GenericAlias)  # annotations say zmq.Context[zmq.Socket]

    def __init__(self, io_threads: int | Context = 1, shadow: Context | int = 0) -> None:
        if isinstance(io_threads, Context):
            shadow, io_threads = io_threads, 1
        self.sockopts = {}
        self._values: dict[int, int] = {}
        if shadow:
            self._shadow = True
            self._home = _home_of(shadow)
        else:
            if io_threads < 0:
                raise ZMQError(Errno.EINVAL)
            self._home = Home(io_threads)
            _SHADOWED[id(self._home)] = self._home

    # -- life --------------------------------------------------------------------------------------

    @classmethod
    def instance(cls, io_threads: int = 1) -> Any:
        """The process's own; a new one after it was terminated, and in a child. A subclass has the
        one of its base, if there is one, unless it says `_instance = None`."""
        with cls._instance_lock:
            if (cls._instance is None or cls._instance_pid != os.getpid()
                    or cls._instance.closed):
                cls._instance = cls(io_threads)
                cls._instance_pid = os.getpid()
            return cls._instance

    @classmethod
    def shadow(cls, address: int | Context) -> Any:
        """The same context as another object, of this class. `address`: a Context, or its
        `underlying`."""
        return cls(shadow=address)

    @classmethod
    def shadow_pyczmq(cls, ctx: Any) -> Any:
        """Of contexts in C, which are none of ours."""
        raise make(Errno.ENOTSUP, "a context of czmq cannot be shared with mqcore")

    @property
    def underlying(self) -> int:
        """A number for shadow(), in this process."""
        return id(self._home)

    @property
    def closed(self) -> bool:
        """term() was called."""
        return self._home.terminating

    def term(self) -> None:
        """Calls of its sockets fail with ContextTerminated. Waits until all are closed and what
        they sent is delivered, each within its LINGER."""
        self._home.term()

    def destroy(self, linger: int | None = None) -> None:
        """Close all its sockets, then term(). linger: milliseconds."""
        if self.closed:
            return
        if guest():  # see base/waits.pyx
            start_behind(partial(self.destroy, linger), "mqcore-zmq")
            return
        sockets = list(self._home.open)
        if sockets and self._warn_destroy_close:
            warnings.warn(f"Destroying context with unclosed sockets in {self}", ResourceWarning,
                          stacklevel=3, source=self)
        for shared in sockets:
            shared.close(linger)
        self.term()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        self._warn_destroy_close = True
        self.destroy()

    def __copy__(self, memo: Any = None) -> Any:
        return type(self).shadow(self)

    __deepcopy__ = __copy__

    def __del__(self) -> None:
        home = self.__dict__.get("_home")
        if home is not None and not self._shadow and not home.terminating and home.used:
            warnings.warn(f"Unclosed context {self}", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        cls = type(self)
        module = shown_module(cls)
        count = len(self._home.open)
        inside = f"{count} socket{'' if count == 1 else 's'}" if count else ""
        state = " closed" if self.closed else ""
        return f"<{module}.{cls.__name__}({inside}) at {hex(id(self))}{state}>"

    # -- sockets -----------------------------------------------------------------------------------

    def socket(self, socket_type: int, socket_class: Any = None, **kwargs: Any) -> Any:
        """A new socket."""
        if self.closed:
            raise ZMQError(Errno.EFAULT if self._shadow else Errno.ENOTSUP)
        made = (socket_class or self._socket_class)(self, socket_type, **kwargs)
        if self._values.get(SocketOption.IPV6) and not made._shadow:
            made.set(SocketOption.IPV6, 1)
        for option, value in self.sockopts.items():
            try:
                made.set(option, value)
            except ZMQError:
                pass  # not an option of this kind of socket
        return made

    # -- options -----------------------------------------------------------------------------------

    def set(self, option: int, optval: Any) -> None:
        """Set a ContextOption; before the first socket, where it is about threads."""
        home = self._home
        if option == ContextOption.IO_THREADS and optval >= 0:
            home.io_threads = optval
        elif option == ContextOption.MAX_SOCKETS and 1 <= optval <= SOCKET_LIMIT:
            home.max_sockets = optval
        elif option in HINTS or option in (SocketOption.BLOCKY, SocketOption.IPV6):
            self._values[option] = optval
        elif option == ContextOption.MAX_MSGSZ and 0 <= optval <= MAX_MSGSZ:
            self._values[option] = optval
        else:
            raise ZMQError(Errno.EINVAL)

    def get(self, option: int) -> int:
        """A ContextOption's value."""
        if self.closed:
            raise RuntimeError("Context has been destroyed")
        known: dict[int, int] = {
                 ContextOption.IO_THREADS: self._home.io_threads,
                 ContextOption.MAX_SOCKETS: self._home.max_sockets,
                 ContextOption.SOCKET_LIMIT: SOCKET_LIMIT, ContextOption.MAX_MSGSZ: MAX_MSGSZ,
                 ContextOption.MSG_T_SIZE: MSG_T_SIZE, ContextOption.THREAD_SCHED_POLICY: -1,
                 SocketOption.BLOCKY: 1, SocketOption.IPV6: 0}
        if option in self._values:
            return self._values[option]
        if option not in known:
            raise ZMQError(Errno.EINVAL)
        return known[option]

    def setsockopt(self, opt: int, value: Any) -> None:
        """An option of the sockets that are made from now on."""
        self.sockopts[opt] = value

    def getsockopt(self, opt: int) -> Any:
        """What setsockopt() set; KeyError if nothing did."""
        return self.sockopts[opt]

    def _set_attr_opt(self, name: str, opt: int, value: Any) -> None:
        if name.upper() in ContextOption.__members__:
            self.set(ContextOption[name.upper()], value)
        else:
            self.sockopts[opt] = value

    def _get_attr_opt(self, name: str, opt: int) -> Any:
        if opt not in self.sockopts:
            raise AttributeError(name.upper())
        return self.sockopts[opt]

    def __setattr__(self, key: str, value: Any) -> None:
        if key.upper() in ContextOption.__members__:
            self.set(ContextOption[key.upper()], value)
        else:
            super().__setattr__(key, value)

    def __getattr__(self, key: str) -> Any:
        if key.upper() in ContextOption.__members__:
            return super()._get_attr_opt(key, ContextOption[key.upper()])
        return super().__getattr__(key)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *ContextOption.__members__]


def _after_fork() -> None:
    Context._instance_lock = threading.RLock()  # a thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork)


def _home_of(shadow: Context | int) -> Home:
    if isinstance(shadow, Context):
        return shadow._home
    found = _SHADOWED.get(int(shadow))
    if found is None:
        raise make(Errno.EFAULT, "no context of mqcore.zmq is at this address")
    return found


SyncContext = Context

__getattr__ = lend(__name__)
