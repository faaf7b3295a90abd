"""Attributes: options by their names, in any case, as attributes."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar

from mqcore.zmq.borrowed import lend
from mqcore.zmq.constants import Errno
from mqcore.zmq.error import ZMQError


class Attributes:
    """`thing.linger` is thing.get(LINGER), `thing.linger = 0` is thing.set(LINGER, 0). Own
    attributes of the class and of subclasses go before; others are refused, so that a wrong name
    does not fail silently."""

    _known: ClassVar[type[IntEnum]]

    def get(self, option: int) -> Any:
        raise NotImplementedError

    def set(self, option: int, value: Any) -> None:
        raise NotImplementedError

    def __setattr__(self, key: str, value: Any) -> None:
        if key[0] == "_" or _is_own(type(self), key) or key in self.__dict__:
            object.__setattr__(self, key, value)
            return
        number = self._known.__members__.get(key.upper())
        if number is None:
            raise AttributeError(f"{type(self).__name__} has no such option: {key.upper()}")
        self._set_attr_opt(key, number, value)

    def __getattr__(self, key: str) -> Any:
        number = None if key[0] == "_" else self._known.__members__.get(key.upper())
        if number is None:
            raise AttributeError(f"{type(self).__name__} has no such option: {key.upper()}")
        return self._get_attr_opt(key, number)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._known.__members__]

    def _set_attr_opt(self, name: str, opt: int, value: Any) -> None:
        self.set(opt, value)

    def _get_attr_opt(self, name: str, opt: int) -> Any:
        try:
            return self.get(opt)
        except ZMQError as error:
            if error.errno in (Errno.EINVAL, Errno.EFAULT):
                raise AttributeError(f"{name} attribute is write-only") from None
            raise


def _is_own(kind: type, key: str) -> bool:
    return any(key in cls.__dict__ or key in cls.__dict__.get("__annotations__", ())
               for cls in kind.__mro__)


def shown_module(kind: type) -> str:
    """The module that a class of ours has in pyzmq, for repr()."""
    name = kind.__module__.removeprefix("mqcore.")
    if name == kind.__module__:
        return name  # a program's own
    return "zmq.green" if name.startswith("zmq.green.") else "zmq"


AttributeSetter = Attributes  # pyzmq's name

__getattr__ = lend(__name__)
