"""Finds transports by URL scheme and patterns by name, through entry points.

The groups are `mqcore.transports`, `mqcore.filters`, `mqcore.resolvers`, `mqcore.protocols` and
`mqcore.strategies`; the built-in ones take the same road. A plug-in is imported when its name is
first used, once; again only if the process was short of descriptors or memory. A bad one (does not
import, lacks an attribute, was made for another ABI, claims a taken name) is refused with a
PluginError that names its distribution and the remedy, and harms no other.

No lock is held while a plug-in is imported (importing has locks of its own): two threads may both
look, and both get what was stored first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from mqcore import _unknown as unknown
from mqcore.base.described import described
from mqcore.errors import (
    AddressError,
    Error,
    OptionError,
    PluginError,
    UnknownTransport,
    UsageError,
)
from mqcore.options import CORE, Option, rows_of
from mqcore.spi import installed
from mqcore.spi.capability import declared_gaps, unavailable
from mqcore.spi.filter import FILTER_ABI
from mqcore.spi.passing import is_passing
from mqcore.spi.plugin_info import PluginInfo
from mqcore.spi.resolver import REFRESH, RESOLVER_ABI
from mqcore.spi.transport import KINDS, TRANSPORT_ABI

PATTERN_ABI = 5  # of spi/pattern.pxd; a test compares them
PYTHON_PATTERN_ABI = 1  # of spi/python/pattern.py; a test compares them
STRATEGY_ABI = 2  # of spi/strategy.pxd; a test compares them
PYTHON_STRATEGY_ABI = 1  # of spi/python/strategy.py; a test compares them

STREAM = ("resolve", "may_block", "check", "adopt", "listen", "connect", "finish", "tune", "names",
          "pid")
WANTED = {  # kind of transport: what it must have besides a scheme
    "stream": STREAM,
    "engine": (*STREAM, "accepts", "open"),
    "stack": ("below", "check"),
    "inproc": ("check",),
}
BRIDGE = ("name", "settings", "modes", "passes", "source", "target")
RESOLVER = ("scheme", "check", "may_block", "look_up", "watch")

# what the import of an extension says that was compiled against other declarations
FOREIGN = ("binary incompatibility", "wrong signature", "does not export expected")


class _Found(NamedTuple):
    """An entry point, and who brought it."""

    name: str
    target: str
    distribution: str
    version: str
    load: Any


class _Refusal(NamedTuple):
    """A PluginError in waiting: raised anew for each caller, so that tracebacks do not grow."""

    text: str
    remedy: str
    distribution: str
    cause: BaseException | None
    passing: bool = False  # the process was short of something: the next try may succeed

    def error(self) -> PluginError:
        error = PluginError(self.text, hint=self.remedy, distribution=self.distribution,
                            remedy=self.remedy)
        error.__cause__ = self.cause
        return error


class Registry:
    """One group. `abi` is the number that plug-ins must carry. Groups whose options meet in one URL
    share their `claims`."""

    def __init__(self, kind: str, group: str, abi: int,
                 claims: dict[str, tuple[Option, str]] | None = None) -> None:
        self.kind = kind
        self.group = group
        self.abi = abi
        self._found: dict[str, list[_Found]] | None = None
        self._loaded: dict[str, Any] = {}  # name: plug-in or _Refusal
        self._rows: dict[str, tuple[Option, ...]] = {}
        # option: row, who said so first
        self._claims: dict[str, tuple[Option, str]] = {} if claims is None else claims
        if kind == "resolver":
            self._claims["refresh"] = (REFRESH, "mqcore")
        self.rival: Registry | None = None  # another group whose names may not be ours

    # -- looking up --------------------------------------------------------------------------------

    def known(self) -> tuple[str, ...]:
        """The names that entry points claim, good or bad."""
        return tuple(sorted(self._scan()))

    def claims(self, name: str) -> bool:
        return name in self._loaded or name in self._scan()

    def find(self, name: str) -> Any:
        """The plug-in, KeyError if no plug-in has the name, PluginError if it is refused."""
        result = self._loaded.get(name)
        if result is None:
            result = self._load(name, self._scan()[name])
            if not (isinstance(result, _Refusal) and result.passing):
                result = self._loaded.setdefault(name, result)
        if isinstance(result, _Refusal):
            raise result.error()
        return result

    def direct(self, place: str) -> Any:
        """The plug-in at "package.module:Name", which no entry point needs to name. Only what
        works is remembered."""
        if place in self._loaded:
            return self._loaded[place]
        module, _, name = place.partition(":")
        if not all(part.isidentifier() for part in f"{module}.{name}".split(".")):
            raise OptionError(f"{place!r} names no {self.kind}",
                              hint='write it as "package.module:Name"')
        result = self._load(place, [_Found(place, place, module.partition(".")[0], "",
                                           lambda: installed.load(place))])
        if isinstance(result, _Refusal):
            raise result.error()
        return self._loaded.setdefault(place, result)

    def options(self, name: str) -> tuple[Option, ...]:
        """The plug-in's own option rows."""
        self.find(name)
        return self._rows.get(name, ())

    def all_options(self) -> tuple[Option, ...]:
        """The rows of all plug-ins that work; one that several share names them all."""
        merged: dict[str, Option] = {}
        for name in self.known():
            try:
                rows = self.options(name)
            except PluginError:
                continue
            for row in rows:
                patterns = merged.get(row.name, row._replace(patterns=())).patterns + row.patterns
                merged[row.name] = merged.get(row.name, row)._replace(patterns=patterns)
        return tuple(merged.values())

    def infos(self) -> list[PluginInfo]:
        """Every claim, each loaded to see whether it works."""
        result = []
        for name in self.known():
            try:
                about = self._about(self.find(name))
            except PluginError as error:
                about = {"refused": str(error), "doc": ""}
            result += [PluginInfo(self.kind, name, found.distribution, found.version,
                                  found.target, **about) for found in self._scan()[name]]
        return result

    def _about(self, plugin: Any) -> dict[str, Any]:
        """What a plug-in says about itself. This runs its code: an exception from it is
        reported, not raised."""
        try:
            doc = str(getattr(plugin, "doc", "")).partition("\n")[0]
            about: dict[str, Any] = {"refused": "", "doc": doc}
            if self.kind == "transport":
                about |= {"form": str(plugin.kind), "gaps": declared_gaps(plugin),
                          "unavailable": unavailable(plugin)}
        except Exception as cause:
            return {"refused": "", "doc": "",
                    "unavailable": f"it cannot say what it is ({described(cause)})"}
        return about

    @contextlib.contextmanager
    def lend(self, plugin: Any, who: str) -> Iterator[None]:
        """For tests: `plugin` is installed for as long as the context lasts, and judged like any
        other. PluginError if it is refused, or if its name is taken."""
        name = str(plugin.scheme if self.kind in ("transport", "resolver") else plugin.name)
        found = self._scan()
        if name in found:
            owner = found[name][0].distribution
            raise PluginError(f"the {self.kind} {name!r} is claimed by {owner} and {who}",
                              hint="give the plug-in of the test another name", distribution=owner,
                              remedy="give the plug-in of the test another name")
        item = _Found(name, who, who, "", lambda: plugin)
        found[name] = [item]
        try:
            self.find(name)
            yield
        finally:
            del found[name]
            self._loaded.pop(name, None)
            self._rows.pop(name, None)
            for option in [name for name, claim in self._claims.items() if claim[1] == who]:
                del self._claims[option]

    # -- loading -----------------------------------------------------------------------------------

    def _scan(self) -> dict[str, list[_Found]]:
        if self._found is None:
            found: dict[str, list[_Found]] = {}
            for point in installed.entry_points(self.group):
                item = _Found(point.name, point.value, point.distribution, point.version,
                              point.load)
                others = found.setdefault(point.name, [])
                if not any(o.target == item.target and o.distribution == item.distribution
                           for o in others):
                    others.append(item)
            self._found = found
        return self._found

    def _load(self, name: str, found: list[_Found]) -> Any:
        who = " and ".join(f"{f.distribution} {f.version}".strip() for f in found)
        if len(found) > 1:
            return _Refusal(f"the {self.kind} {name!r} is claimed by {who}",
                            "uninstall one of them", who, None)
        if self.rival is not None and (rivals := self.rival._scan().get(name)):
            other = " and ".join(f"{f.distribution} {f.version}".strip() for f in rivals)
            return _Refusal(f"the {self.kind} {name!r} of {who} is a {self.rival.kind} of {other} "
                            "as well", "uninstall one of them", f"{who} and {other}", None)
        try:
            plugin = found[0].load()
        except (Exception, SystemExit) as cause:  # whatever a foreign module does at import
            remedy = f"reinstall or update {found[0].distribution}"
            if any(words in str(cause) for words in FOREIGN):
                remedy = _rebuild(found[0].distribution)
            if passing := is_passing(cause):
                remedy = "the process is short of descriptors or memory: see `ulimit -a`, try again"
            return self._refuse(name, who, f"does not import ({described(cause)})",
                                remedy, cause)._replace(passing=passing)
        try:
            return self._judge(name, who, found[0].distribution, plugin)
        except Exception as cause:  # an attribute that is computed, and fails
            return self._refuse(name, who, f"cannot be asked ({described(cause)})",
                                f"update {found[0].distribution}", cause)

    def _judge(self, name: str, who: str, distribution: str, plugin: Any) -> Any:
        own_abi = self.abi
        if isinstance(plugin, type):
            own_abi = {"pattern": PYTHON_PATTERN_ABI,
                       "strategy": PYTHON_STRATEGY_ABI}.get(self.kind, own_abi)
        abi = getattr(plugin, "abi", None)
        if abi is None:
            return self._refuse(name, who, "has no attribute 'abi'",
                                f"{distribution} is no mqcore plug-in, or an unfinished one")
        if abi != own_abi:
            newer = isinstance(abi, int) and abi > own_abi
            return self._refuse(name, who, f"was made for ABI {abi!r}, this mqcore has {own_abi}",
                                "update mqcore" if newer else _rebuild(distribution))
        if self.kind in MADE:
            try:
                plugin = MADE[self.kind](plugin)
            except Exception as cause:
                return self._refuse(name, who, f"is no {self.kind} ({cause})",
                                    f"update {distribution}", cause)
        missing = [a for a in self._wanted(plugin) if not hasattr(plugin, a)]
        if missing:
            return self._refuse(name, who, f"lacks {', '.join(missing)}", f"update {distribution}")
        own = plugin.scheme if self.kind in ("transport", "resolver") else plugin.name
        if own != name and ":" not in name:
            return self._refuse(name, who, f"calls itself {own!r}", f"update {distribution}")
        faults = plugin.faults() if self.kind in MADE else []
        if faults:
            return self._refuse(name, who, "; it ".join(faults), f"update {distribution}")
        try:
            self._rows[name] = self._merge(name, who, plugin)
        except Error as cause:
            return self._refuse(name, who, cause.text, f"update {distribution}")
        except Exception as cause:
            return self._refuse(name, who, f"has malformed option rows ({cause})",
                                f"update {distribution}", cause)
        return plugin

    def _wanted(self, plugin: Any) -> tuple[str, ...]:
        if self.kind in MADE:
            return ()
        if self.kind == "resolver":
            return RESOLVER
        if self.kind == "bridge":
            return BRIDGE
        if self.kind == "filter":
            return ("name", "split", "join", "check", "open", "options")
        kind = getattr(plugin, "kind", None)
        if kind not in KINDS:
            return (f"a kind of {', '.join(KINDS)} (it has {kind!r})",)
        return ("scheme", *WANTED[kind])

    def _refuse(self, name: str, who: str, what: str, remedy: str,
                cause: BaseException | None = None) -> _Refusal:
        return _Refusal(f"the {self.kind} {name!r} of {who} {what}", remedy, who, cause)

    def _merge(self, name: str, who: str, plugin: Any) -> tuple[Option, ...]:
        """The plug-in's option rows, none of which may mean something else elsewhere."""
        rows = rows_of(getattr(plugin, "options", ()), name if self.kind == "pattern" else "")
        for row in rows:
            first, owner = (CORE[row.name], "mqcore") if row.name in CORE else \
                self._claims.get(row.name, (row, who))
            core = row.name in CORE and name in first.patterns  # the core's row speaks of it
            same = first.type == row.type and (core or first.default == row.default)
            if not same:
                raise UsageError(f"and {owner} both claim the option {row.name!r}, as "
                                 f"{row.type} {row.default!r} and {first.type} {first.default!r}")
        for row in rows:
            self._claims.setdefault(row.name, (row, who))
        return (*rows, REFRESH) if self.kind == "resolver" else rows


def _as_pattern(plugin: Any) -> Any:
    """A PatternPlugin, or a class that is made one."""
    if isinstance(plugin, type):
        from mqcore.spi.python.pattern_ops import plugin as made_of  # compiled, and few need it

        return made_of(plugin)
    from mqcore.spi.pattern import PatternPlugin

    if not isinstance(plugin, PatternPlugin):
        raise TypeError("neither a class derived from mqcore.spi.python.pattern.Pattern nor made "
                        "by plugin_new()")
    return plugin


def _as_strategy(plugin: Any) -> Any:
    """A StrategyPlugin, or a class that is made one."""
    from mqcore.spi.strategy import StrategyPlugin

    if isinstance(plugin, StrategyPlugin):
        return plugin
    from mqcore.spi.python.strategy_ops import plugin as made_of  # compiled, and few need it

    return made_of(plugin)


# kinds that are one ops table, or a Python class that is made one
MADE: Mapping[str, Any] = MappingProxyType({"pattern": _as_pattern, "strategy": _as_strategy})


def _rebuild(distribution: str) -> str:
    """For what may be compiled: the same sources may do, against the declarations of now."""
    return f"update {distribution}, or build it again for this mqcore: " \
           "pip install --no-build-isolation --force-reinstall"


_link_claims: dict[str, tuple[Option, str]] = {}
_transports = Registry("transport", "mqcore.transports", TRANSPORT_ABI, _link_claims)
_resolvers = Registry("resolver", "mqcore.resolvers", RESOLVER_ABI, _link_claims)
_filters = Registry("filter", "mqcore.filters", FILTER_ABI, _link_claims)
_patterns = Registry("pattern", "mqcore.protocols", PATTERN_ABI)
_strategies = Registry("strategy", "mqcore.strategies", STRATEGY_ABI)
_transports.rival, _resolvers.rival = _resolvers, _transports


def transport(scheme: str) -> Any:
    """The transport for this URL scheme."""
    try:
        return _transports.find(scheme)
    except KeyError:
        known = _transports.known()
        if _resolvers.claims(scheme):
            raise AddressError(f"{scheme}:// is a resolver's, it can be connected to and not bound",
                               hint="bind to an address of this machine") from None
        known = tuple(sorted({*known, *_resolvers.known()}))
        raise UnknownTransport(f"no transport {scheme!r} is installed", known=known,
                               hint=unknown.scheme(scheme, known)) from None


def filter(name: str) -> Any:
    """The filter that stands so in URLs."""
    try:
        return _filters.find(name)
    except KeyError:
        known = _filters.known()
        raise UnknownTransport(f"no filter {name!r} is installed", known=known,
                               hint=unknown.nearest(name, known)) from None


def resolver(scheme: str) -> Any:
    """The resolver for this URL scheme; None if no resolver claims it."""
    return _resolvers.find(scheme) if _resolvers.claims(scheme) else None


def pattern(name: str) -> Any:
    """The pattern of this name ("push")."""
    try:
        return _patterns.find(name)
    except KeyError:
        known = _patterns.known()
        raise UsageError(f"no pattern {name!r} is installed",
                         hint=f"installed: {', '.join(known)}") from None


def strategy(name: str) -> Any:
    """The strategy of this name ("two_choices"), or, imported now, of this place
    ("package.module:Name")."""
    try:
        return _strategies.direct(name) if ":" in name else _strategies.find(name)
    except KeyError:
        known = _strategies.known()
        raise OptionError(f"no strategy {name!r} is installed",
                          hint=f"installed: {', '.join(known)}; or name a class as "
                               '"package.module:Name"') from None


def kind_of(name: str) -> str:
    """What a pattern of this name is to its peers: its Socket-Type. One that is not installed, or
    is refused, goes by its name in upper case."""
    try:
        return str(_patterns.find(name).kind)
    except (KeyError, PluginError):
        return name.upper()


def transport_options(scheme: str) -> tuple[Option, ...]:
    transport(scheme)
    return _transports.options(scheme)


def filter_options(name: str) -> tuple[Option, ...]:
    filter(name)
    return _filters.options(name)


def link_options() -> tuple[Option, ...]:
    """The rows of every transport, filter and resolver that works."""
    return _transports.all_options() + _filters.all_options() + _resolvers.all_options()


def resolver_options(scheme: str) -> tuple[Option, ...]:
    return _resolvers.options(scheme)


def pattern_options(name: str) -> tuple[Option, ...]:
    pattern(name)
    return _patterns.options(name)


def all_options() -> tuple[Option, ...]:
    """The rows of every plug-in: with TABLE, what the README and the stubs are rendered from."""
    return link_options() + _patterns.all_options()


unknown.ELSEWHERE.append(all_options)  # for the errors about options that belong to others


def lend(kind: str, plugin: Any, who: str) -> contextlib.AbstractContextManager[None]:
    """For tests: install a plug-in of one of the five kinds for a while."""
    groups = {g.kind: g for g in (_transports, _filters, _resolvers, _patterns, _strategies)}
    return groups[kind].lend(plugin, who)


def transports() -> list[PluginInfo]:
    """The transports installed here, and those refused and why; `mq info` lists them."""
    return _transports.infos()


def filters() -> list[PluginInfo]:
    """The filters installed here, and those refused and why; `mq info` lists them."""
    return _filters.infos()


def resolvers() -> list[PluginInfo]:
    """The resolvers installed here, and those refused and why; `mq info` lists them."""
    return _resolvers.infos()


def patterns() -> list[PluginInfo]:
    """The patterns installed here, and those refused and why; `mq info` lists them."""
    return _patterns.infos()


def strategies() -> list[PluginInfo]:
    """The strategies installed here, and those refused and why; `mq info` lists them."""
    return _strategies.infos()
