"""context() and socket(): functions that are given a context or a socket, closed at their end."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from mqcore.zmq.borrowed import lend
from mqcore.zmq.context import Context


def _given(make: Callable[[tuple[Any, ...], dict[str, Any]], Any], name: str) -> Any:
    """A decorator that calls the function with what make() gives: by this name, or behind its
    positional arguments."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with make(args, kwargs) as made:
                if not name:
                    return function(*args, made, **kwargs)
                if name in kwargs:
                    raise TypeError(f"{function.__name__}() got multiple values for argument "
                                    f"{name!r}")
                return function(*args, **{**kwargs, name: made})

        return wrapper

    return decorate


def _name(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """The first argument, if it is text, or name=; and the others."""
    if isinstance(kwargs.get("name"), str):
        return kwargs.pop("name"), args
    if args and isinstance(args[0], str):
        return args[0], args[1:]
    return "", args


def context(*args: Any, **kwargs: Any) -> Any:
    """@context() or @context("name"): a Context, terminated at the end."""
    name, args = _name(args, kwargs)
    return _given(lambda *_: Context(*args, **kwargs), name)


def socket(*args: Any, **kwargs: Any) -> Any:
    """@socket(zmq.PUB) or @socket("name", zmq.PUB): a socket of the function's Context argument
    (context_name= says which), or of Context.instance()."""
    name, args = _name(args, kwargs)
    context_name = kwargs.pop("context_name", "context")

    def make(called: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        found = keywords.get(context_name)
        if not isinstance(found, Context):
            found = next((arg for arg in called if isinstance(arg, Context)), None)
        return (found or Context.instance()).socket(*args, **kwargs)

    return _given(make, name)


__all__ = ("context", "socket")

__getattr__ = lend(__name__)
