"""`mq info`: the versions, features and plug-ins that are installed, also for bug reports."""

from __future__ import annotations

import json
import platform
import select
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

import mqcore as mq
from mqcore.cli.common import columns

LIBRARIES = ("numpy", "trio", "pyzmq", "click", "rich")


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def facts() -> dict[str, Any]:
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return {
        "mqcore": mq.__version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "free_threading": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "gil": gil,
        "poller": "epoll" if hasattr(select, "epoll") else "poll",
        "async": ["asyncio", *(["trio"] if installed("trio") else [])],
        "libraries": {name: installed(name) for name in LIBRARIES},
    }


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, for programs.")
def info(as_json: bool) -> None:
    """Show the version, the features and the plug-ins.

    Lists each transport, filter, resolver, pattern and strategy with the distribution that provides
    it, and refused ones with the reason. Below, it lists features that a transport does not support
    although others do. Exit status 1 if a plug-in is refused.

    \b
    For a bug report:
      mq info
    """
    about = facts()
    plugins = [*mq.transports(), *mq.filters(), *mq.resolvers(), *mq.patterns(),
               *mq.strategies()]
    refused = [plugin for plugin in plugins if plugin.refused]
    if as_json:
        listed = [{**plugin._asdict(), "gaps": dict(plugin.gaps)} for plugin in plugins]
        click.echo(json.dumps({**about, "plugins": listed}, indent=2))
    else:
        show(about, plugins, refused)
    if refused:
        raise click.exceptions.Exit(1)


def show(about: dict[str, Any], plugins: list[Any], refused: list[Any]) -> None:
    threads = "free-threading" if about["free_threading"] else "with the GIL"
    if about["free_threading"] and about["gil"]:
        threads += " build, the GIL switched on"
    click.echo(f"mqcore {about['mqcore']}, {about['python']} ({threads}), {about['system']}")
    click.echo(f"poller {about['poller']}; async with {' and '.join(about['async'])}")
    click.echo(
        ", ".join(
            f"{name} {number or 'not installed'}" for name, number in about["libraries"].items()
        )
    )
    click.echo()
    columns(
        ("kind", "name", "from", "what it is"),
        [
            (
                plugin.kind,
                plugin.name,
                f"{plugin.distribution} {plugin.version}".strip(),
                "REFUSED" if plugin.refused else plugin.doc,
            )
            for plugin in plugins
        ],
    )
    lacking = [
        (plugin.name, name, why) for plugin in plugins for name, why in plugin.gaps.items()
    ]
    if lacking:
        click.echo()
        columns(("transport", "lacks", "why"), lacking)
    for plugin in plugins:
        if plugin.unavailable:
            click.echo(f"\nnot on this system: {plugin.name}, {plugin.unavailable}")
    for plugin in refused:
        click.echo(f"\nrefused: {plugin.refused}")
