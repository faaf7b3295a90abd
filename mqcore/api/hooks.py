"""Hooks: what a device does with each message that passes it, besides moving it."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from mqcore.base.described import described
from mqcore.binding.core import SocketCore
from mqcore.devices.hooks import CompiledHook, HookCore, SampleHook, SocketTap
from mqcore.devices.python_hooks import CallableHook
from mqcore.devices.python_hooks import HookMessage as HookMessage
from mqcore.errors import UsageError
from mqcore.spi.installed import load

#: which messages a hook sees, as the data plane knows it
DIRECTIONS = {"forth": 1, "back": 2, "both": 3}
ERRORS = ("drop", "stop")
TAP_ERRORS = ("pass", "stop")
CALLABLES = {"filter": 0, "transform": 1, "tap": 2}     # as in python_hooks.pyx
MOST_HOOKS = 64


@dataclass(frozen=True)
class HookStats:
    """What one hook of a device did. Each message that it saw is in one of these: `passed` (went on
    as it was), `changed` (went on with another body), `dropped` (by a filter or a transform),
    `sampled_out` (not drawn) and `failed` (the hook raised an exception, or returned a value that
    cannot be sent). A failed message was dropped, except at a tap, where it went on. `tapped`:
    copies that a tap has handed over; `tap_dropped`: copies that its socket could not take.
    `last_error`: the text of the last failure, "" if there was none."""

    name: str
    kind: str
    passed: int = 0
    changed: int = 0
    dropped: int = 0
    sampled_out: int = 0
    failed: int = 0
    tapped: int = 0
    tap_dropped: int = 0
    last_error: str = ""


@dataclass(frozen=True)
class Hook:
    """A hook of a device: `mq.device(front, back, hooks=[mq.Hook.filter(f), ...])`.

    A device passes each message through its hooks in the order of the list. A message that a hook
    drops ends there. Make one with Hook.filter, Hook.transform, Hook.sample, Hook.tap or
    Hook.compiled. These take:

    `direction`: "forth" (front to back, the default), "back" or "both".
    `on_error`: what happens when the hook raises an exception. "drop" (the default) drops the
    message, "stop" drops it and ends the device with a HookError. A tap has "pass" (the default),
    which lets the message go on, and "stop". Every failure is counted.
    `name`: its name in stats(), by default that of the function.

    A function runs on the device's thread with the GIL, and should be short: the device moves
    nothing meanwhile. It gets a HookMessage, whose `parts` are the body without the envelope."""

    kind: str
    target: Any = None
    rate: float = 1.0
    seed: int | None = None
    direction: str = "forth"
    on_error: str = "drop"
    name: str = ""

    @classmethod
    def filter(cls, function: Callable[[Any], object] | str, *, direction: str = "forth",
               on_error: str = "drop", name: str = "") -> Self:
        """Let a message pass if `function(message)` is true. A text "package.module:name" names a
        function to import."""
        return cls._made("filter", _function(function), direction, on_error, name)

    @classmethod
    def transform(cls, function: Callable[[Any], object] | str, *, direction: str = "forth",
                  on_error: str = "drop", name: str = "") -> Self:
        """Replace a message by what `function(message)` returns: the message itself (nothing
        changes), bytes or another buffer (a body of one part), a list or tuple of them (several
        parts), or None, which drops it. The envelope stays."""
        return cls._made("transform", _function(function), direction, on_error, name)

    @classmethod
    def sample(cls, rate: float, *, seed: int | None = None, direction: str = "forth",
               name: str = "") -> Self:
        """Let a fraction of all messages pass, drawn independently: 0 < rate <= 1. A `seed` makes
        the draws repeatable. It runs without the GIL."""
        return cls._made("sample", None, direction, "drop", name or "sample", rate=_rate(rate),
                         seed=_seed(seed))

    @classmethod
    def tap(cls, target: Any, *, sample: float = 1.0, seed: int | None = None,
            direction: str = "forth", on_error: str = "pass", name: str = "") -> Self:
        """Give `target` each message that comes by, or the fraction `sample` of them. A socket
        (push, pub, pair) gets a copy of the body and belongs to the device from then on. What it
        cannot take at once is dropped and counted. A function is called, and its result ignored."""
        socket = isinstance(target, SocketCore)
        if not socket:
            target = _function(target)
            if sample != 1.0:
                raise UsageError("a function that taps takes no sample=",
                                 hint="draw in the function, or tap into a socket")
        return cls._made("tap", target, direction, on_error, name or ("tap" if socket else ""),
                         rate=_rate(sample), seed=_seed(seed))

    @classmethod
    def compiled(cls, target: Any, *, direction: str = "forth", on_error: str = "drop",
                 name: str = "") -> Self:
        """A hook in C or Cython, after mqcore/spi/hook.pxd: a capsule named "mqcore.hook", an
        object whose _mq_hook() returns one, or a text "package.module:name" that names either."""
        return cls._made("compiled", _imported(target) if isinstance(target, str) else target,
                         direction, on_error, name or (target if isinstance(target, str) else ""))

    @classmethod
    def _made(cls, kind: str, target: Any, direction: str, on_error: str, name: str,
              **more: Any) -> Self:
        if direction not in DIRECTIONS:
            raise UsageError(f"a hook has no direction {direction!r}",
                             hint="use 'forth' (front to back), 'back' or 'both'")
        choices = TAP_ERRORS if kind == "tap" else ERRORS
        if on_error not in choices:
            raise UsageError(f"on_error={on_error!r} is not possible for a {kind}",
                             hint=f"use {choices[0]!r} or {choices[1]!r}")
        if not isinstance(name, str):
            raise UsageError(f"the name of a hook is text, not {type(name).__name__}")
        name = name or _name(target)
        return cls(kind, target, direction=direction, on_error=on_error, name=name, **more)

    def _core(self) -> HookCore:
        """One for a device that begins."""
        facts = (self.name, DIRECTIONS[self.direction], self.on_error == "stop",
                 self.on_error == "pass")
        seed = int.from_bytes(os.urandom(8), "little") if self.seed is None else self.seed
        if self.kind == "sample":
            return SampleHook(facts, self.rate, seed)
        if self.kind == "compiled":
            return CompiledHook(facts, self.target)
        if isinstance(self.target, SocketCore):
            return SocketTap(facts, self.target, self.rate, seed)
        return CallableHook(facts, self.target, CALLABLES[self.kind])

    def _stats(self, core: HookCore) -> HookStats:
        why = core.reason()
        text = described(why) if isinstance(why, BaseException) else why or ""
        return HookStats(self.name, self.kind, *core.counters(), text)


def _rate(rate: float) -> float:
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate <= 1:
        raise UsageError(f"a rate of {rate!r} is not a fraction of all messages",
                         hint="use a number above 0 and up to 1: 0.1 is every tenth message")
    return float(rate)


def _seed(seed: int | None) -> int | None:
    if seed is not None and (not isinstance(seed, int) or not 0 <= seed < 1 << 64):
        raise UsageError(f"{seed!r} is no seed", hint="use an integer from 0 to 2**64 - 1, or None")
    return seed


def _imported(place: str) -> Any:
    """The object at "package.module:name"."""
    module, _, name = place.partition(":")
    if not all(part.isidentifier() for part in f"{module}.{name}".split(".")):
        raise UsageError(f"{place!r} names no hook", hint='write it as "package.module:name"')
    try:
        return load(place)
    except Exception as error:      # whatever a foreign module does at import
        raise UsageError(f"the hook {place!r} cannot be imported: {described(error)}",
                         hint="check the name, and that Python finds the module") from error


def _name(target: Any) -> str:
    return str(getattr(target, "__qualname__", type(target).__qualname__))


def _function(target: Any) -> Callable[[Any], object]:
    if isinstance(target, str):
        target = _imported(target)
    if not callable(target):
        raise UsageError(f"a hook must be a function, not {type(target).__name__}",
                         hint="a function of one argument, the message")
    if any(map(inspect.iscoroutinefunction, (target, target.__call__))):
        raise UsageError(f"the hook {_name(target)} is a coroutine function: a device's "
                         "thread has no event loop", hint="use a plain function")
    return target  # type: ignore[no-any-return]


def checked(hooks: Sequence[Any], front: Any, back: Any) -> tuple[Hook, ...]:
    """The hooks of a device between these sockets; a plain function is a transform."""
    if isinstance(hooks, (Hook, str)) or callable(hooks):
        raise UsageError("hooks= takes a list", hint="write hooks=[...]")
    made = tuple(hook if isinstance(hook, Hook) else Hook.transform(hook) for hook in hooks)
    if len(made) > MOST_HOOKS:
        raise UsageError(f"a device has at most {MOST_HOOKS} hooks, not {len(made)}",
                         hint="call several functions from one hook")
    for hook in made:
        for source, way in ((front, "forth"), (back, "back")):
            if source.pattern == "xpub" and DIRECTIONS[hook.direction] & DIRECTIONS[way]:
                raise UsageError(f"the hook {hook.name!r} would see subscriptions: they go {way} "
                                 "from an xpub socket, and a forwarder cannot do without them",
                                 hint=f"use direction={'back' if way == 'forth' else 'forth'!r}")
    return made
