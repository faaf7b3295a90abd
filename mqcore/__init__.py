"""Messaging sockets: ZeroMQ's and nanomsg's patterns and protocols, for threads, asyncio and trio.

    import mqcore as mq

    with mq.Pull(bind="tcp://*:5555") as jobs:
        for job in jobs: ...
"""

# The module of each public name. Python imports it when a program first uses the name, so that
# `import mqcore` itself costs next to nothing.
_HOMES = {
    "mqcore.api.context": "Context",
    "mqcore.api.device": "Device DeviceStats device",
    "mqcore.api.histograms": "Histogram",
    "mqcore.api.hooks": "Hook HookMessage HookStats",
    "mqcore.api.event_log": "EventLog log_events",
    "mqcore.api.event_stream": "EventStream",
    "mqcore.api.patterns":
        "Bus Channel Client Dealer Dgram Dish Gather Pair Pair1 PeerSocket Pub Pull Push Radio Rep "
        "Req Router Scatter Server Stream Sub XPub XSub socket",
    "mqcore.api.poll": "Ready apoll poll",
    "mqcore.api.poller": "Poller",
    "mqcore.api.public":
        "Batch CloseReport Endpoint Event Message Peer PeerStats Pinned PluginInfo Stats empty "
        "filters patterns resolvers strategies transports",
    "mqcore.api.socket": "Socket",
    "mqcore.api.survey": "Respondent Surveyor",
    "mqcore.errors":
        "AddressDenied AddressError AddressInUse AddressNotAvailable BindError "
        "BlockingCallWarning ConnectTimeout ContextClosed Error Forked HandshakeFailed "
        "HookError MessageTooLarge NoSuchPeer NotSubscribed NotSupported OptionError "
        "PeerError PeerGone PluginError RecvTimeout RemoteRefused SendTimeout SocketClosed "
        "StateError Timeout UnknownTransport UsageError "
        "WaitTimeout",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}
# Names that are elsewhere, and that people look for here.
_ELSEWHERE = {
    "mqcore.events":
        "AcceptPaused Accepted Closed Connected Connecting Disconnected Dropped FailedBack "
        "FailedOver Idle Listening Lost PatternFailed Refused ResolveFailed Resolved Retrying "
        "Stopped Subscribed TooSlow Unsubscribed",
    "mqcore.security":
        "ANY AuthHandler AuthRequest AuthResult Certificate Curve KeyPair Null Plain Security "
        "curve_keypair curve_public load_certificate load_certificates save_certificate",
}
# Names that were here before the first release.
_FORMER = {
    "mqcore.security":
        "ANY Certificate Curve KeyPair Null Plain Security curve_keypair curve_public "
        "load_certificate load_certificates save_certificate Asking=AuthRequest "
        "Verdict=AuthResult",
}
_MODULES = ("api", "errors", "events", "options", "security")

__version__ = "0.1.0"
__all__ = [*_HOME_OF, "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"mqcore.{name}")
    if name not in _HOME_OF:
        from mqcore.base.renamed import find_renamed

        value = find_renamed("mqcore", name, _FORMER)
        if value is not None:
            return value
        for place, names in _ELSEWHERE.items():
            if name in names.split():
                raise AttributeError(f"module 'mqcore' has no attribute {name!r}: it is in "
                                     f"{place}; write {place}.{name}")
        raise AttributeError(f"module 'mqcore' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    return globals().setdefault(name, value)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
