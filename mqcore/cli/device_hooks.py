"""The options of `mq device` that filter, change, sample and tap messages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

import mqcore as mq

RATE = click.FloatRange(0, 1, min_open=True)
OPTIONS = (
    click.option(
        "--tap", metavar="URL", help="Publish a copy of every message here before any hook sees it."
    ),
    click.option(
        "--tap-sample",
        type=RATE,
        default=1.0,
        show_default=True,
        metavar="RATE",
        help="Publish only this fraction of the messages on --tap.",
    ),
    click.option(
        "--filter",
        "filters",
        multiple=True,
        metavar="MODULE:FUNCTION",
        help="Pass a message on if this Python function returns true for it.",
    ),
    click.option(
        "--transform",
        "transforms",
        multiple=True,
        metavar="MODULE:FUNCTION",
        help="Replace a message by what this Python function returns; None drops it.",
    ),
    click.option(
        "--hook",
        "compiled",
        multiple=True,
        metavar="MODULE:NAME",
        help="Pass messages through this compiled hook (mqcore/spi/hook.pxd).",
    ),
    click.option(
        "--sample", type=RATE, metavar="RATE", help="Pass on only this fraction of the messages."
    ),
    click.option(
        "--hook-errors",
        type=click.Choice(["drop", "stop"]),
        default="drop",
        show_default=True,
        help="When a hook raises an exception, drop the message and count it, or stop the device.",
    ),
)


def hook_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options, in this order, to a command."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def hooks_of(
    tap_socket: Any,
    tap: str | None,
    tap_sample: float,
    filters: tuple[str, ...],
    transforms: tuple[str, ...],
    compiled: tuple[str, ...],
    sample: float | None,
    hook_errors: str,
) -> list[mq.Hook]:
    """The hooks that the options ask for, in the order that the help states."""
    if "" not in sys.path:
        sys.path.insert(0, "")  # modules of the current folder, as with python -m
    found = [mq.Hook.tap(tap_socket, sample=tap_sample)] if tap else []
    found += [mq.Hook.filter(place, on_error=hook_errors, name=place) for place in filters]
    found += [mq.Hook.transform(place, on_error=hook_errors, name=place) for place in transforms]
    found += [mq.Hook.compiled(place, on_error=hook_errors) for place in compiled]
    if sample is not None:
        found.append(mq.Hook.sample(sample))
    return found
