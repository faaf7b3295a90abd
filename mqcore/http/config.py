"""The settings of a gateway in a TOML file, as `mq http --config` reads them."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from mqcore.errors import OptionError
from mqcore.http.bounds import Limits
from mqcore.http.route import declared


class Settings(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What `serve` takes, by the same names. Relative paths are relative to the file's folder."""

    bind: str = "http://127.0.0.1:8080"
    routes: dict[str, str] = {}
    hosts: list[str] = []
    origins: list[str] = []
    tokens: str = ""
    cert: str = ""
    key: str = ""
    limits: dict[str, float] = {}


def read(path: str | os.PathLike[str]) -> Settings:
    """The settings of a file. OptionError."""
    place = Path(path)
    try:
        found = msgspec.convert(tomllib.loads(place.read_text()), Settings)
    except (OSError, ValueError) as error:      # msgspec's and tomllib's errors are ValueErrors
        raise OptionError(f"cannot use {place}: {error}",
                          hint="docs/guides/http.md has an example") from None
    files = {name: str(place.parent / value) for name in ("tokens", "cert", "key")
             if (value := getattr(found, name))}
    return msgspec.structs.replace(found, **files)


def merged(settings: Settings, routes: Iterable[str], origins: Iterable[str],
           hosts: Iterable[str], limits: Mapping[str, float], given: Mapping[str, Any]) -> Settings:
    """The settings with those of a command line: routes, origins, hosts and limits are added, the
    others replaced."""
    all_routes = dict(settings.routes)
    for text in routes:
        path = declared(text).path
        if path in all_routes:
            raise OptionError(f"the route {path} is there twice", hint="give each its own path")
        all_routes[path] = text.partition("=")[2]
    return msgspec.structs.replace(
        settings, routes=all_routes, origins=[*settings.origins, *origins],
        hosts=[*settings.hosts, *hosts], limits={**settings.limits, **limits}, **given)


def limits(given: Mapping[str, float]) -> Limits:
    """Limits with these changed. OptionError."""
    usual = asdict(Limits())
    for name, value in given.items():
        if name not in usual:
            raise OptionError(f"there is no limit {name!r}",
                              hint=f"the limits are {', '.join(usual)}")
        whole = isinstance(usual[name], int) and float(value).is_integer()
        usual[name] = int(value) if whole else value
    return Limits(**usual)
