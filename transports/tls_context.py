"""The SSLContext of one endpoint, created from the tls_* options and again when their files change.

Operators renew certificates by replacing files. Each new connection checks the files' stamps
(inode, size, time) and reads them again if one differs. Existing connections are not affected.
bind() and connect() refuse files that cannot be used (such as a half-replaced pair). Later, an
existing context stays in use: the error is logged once to "mqcore.tls", and the next connection
checks again.
"""

from __future__ import annotations

import logging
import os
import ssl
import stat
from collections.abc import Mapping
from typing import Any

from mqcore.errors import OptionError

_log = logging.getLogger("mqcore.tls")

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
ANYBODY = stat.S_IROTH | stat.S_IWOTH | stat.S_IXOTH
#: options that configure a context, with their defaults; they conflict with the caller's own
#: context
OF_A_CONTEXT = {"tls_cert": None, "tls_key": None, "tls_key_password": None, "tls_ca": None,
                "tls_mutual": None, "tls_verify": "full", "tls_min_version": "1.2"}

Stamp = tuple[tuple[Any, ...], ...]


class Contexts:
    """One endpoint's context. Only one thread at a time calls `get`: the one in bind() or
    connect(), later the control thread."""

    def __init__(self, role: str, options: Mapping[str, Any]) -> None:
        self._role = role
        self._options = options
        self._stamp: Stamp | None = None
        self._refused: Stamp | None = None  # the stamp of the error that has been logged
        self._context: ssl.SSLContext | None = options["tls_context"]
        if self._context is not None:
            _check_own(self._context, role, options)

    def get(self) -> ssl.SSLContext:
        """The context for a new connection. OptionError if there has never been a valid one."""
        if self._options["tls_context"] is not None:
            assert self._context is not None
            return self._context
        try:
            stamp = _stamp(self._options)
            if stamp != self._stamp:  # stamp first: a change after this is read next time
                self._context = _made(self._role, self._options)
                self._stamp = stamp
        except OptionError as error:
            if self._context is None:
                raise
            self._say(error)
        assert self._context is not None
        return self._context

    def _say(self, error: OptionError) -> None:
        try:
            stamp = _stamp(self._options)
        except OptionError:
            stamp = ()
        if stamp != self._refused:
            self._refused = stamp
            _log.error("new connections keep using the previous files: %s", error)


# -- files -----------------------------------------------------------------------------------------


def _authorities(path: str) -> list[str]:
    """The files of tls_ca."""
    try:
        if not os.path.isdir(path):
            return [path]
        found = sorted(name for name in os.listdir(path) if name.endswith((".pem", ".crt", ".cer")))
    except OSError as error:
        raise _unreadable("tls_ca", path, error) from None
    if not found:
        raise OptionError(f"tls_ca: the folder {path} has no certificates",
                          hint="certificates must be files that end in .pem, .crt or .cer")
    return [os.path.join(path, name) for name in found]


def _stamp(options: Mapping[str, Any]) -> Stamp:
    """A value that changes when a file changes."""
    marks = []
    for name in ("tls_cert", "tls_key", "tls_ca"):
        path = options[name]
        for file in () if path is None else _authorities(path) if name == "tls_ca" else (path,):
            try:
                found = os.stat(file)
            except OSError as error:
                raise _unreadable(name, file, error) from None
            marks.append((file, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns,
                          found.st_mode))
    return tuple(marks)


def _unreadable(name: str, path: str, error: OSError) -> OptionError:
    return OptionError(f"{name}: cannot read {path}: {error.strerror}",
                       hint="is the path right, and may this user read it?")


def _keep_private(name: str, path: str) -> None:
    """Refuse a private key that other users may read or replace."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise _unreadable(name, path, error) from None
    if mode & ANYBODY:
        raise OptionError(f"{name}: every user of this machine can use the private key in {path} "
                          f"(mode {stat.S_IMODE(mode):04o})", hint=f"chmod o= {path}")


# -- contexts --------------------------------------------------------------------------------------


def _made(role: str, options: Mapping[str, Any]) -> ssl.SSLContext:
    serving = role == "bind"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if serving else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = VERSIONS[options["tls_min_version"]]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # tls_ca may name the peer itself
    if options["tls_cert"] is not None:
        _load_own(context, options)
    elif serving:
        raise OptionError("tls needs a certificate to listen with",
                          hint="set tls_cert and tls_key; transports/README.md shows how")
    elif options["tls_key"] is not None:
        raise OptionError("tls_key needs tls_cert", hint="set both")
    if serving:
        _demand_clients(context, options)
    else:
        _judge_servers(context, options)
    return context


def _load_own(context: ssl.SSLContext, options: Mapping[str, Any]) -> None:
    cert = options["tls_cert"]
    name = "tls_cert" if options["tls_key"] is None else "tls_key"
    key = options[name]
    _keep_private(name, key)
    asked = False

    def password() -> str:  # without a callback OpenSSL would prompt on the terminal
        nonlocal asked
        asked = True
        return options["tls_key_password"] or ""

    try:
        context.load_cert_chain(cert, key, password)
    except ssl.SSLError as error:
        raise _bad_pair(cert, name, key, error, asked, options["tls_key_password"]) from None
    except OSError as error:
        raise _unreadable("tls_cert or tls_key", f"{cert} or {key}", error) from None


def _bad_pair(cert: str, name: str, key: str, error: ssl.SSLError, asked: bool,
              password: str | None) -> OptionError:
    if error.reason == "KEY_VALUES_MISMATCH":
        return OptionError(f"tls_key: the key in {key} does not belong to the certificate in "
                           f"{cert}", hint="use the key that belongs to the certificate")
    if asked and password is None:
        return OptionError(f"{name}: the key in {key} is encrypted", hint="set tls_key_password")
    if asked:
        return OptionError(f"tls_key_password does not open the key in {key}")
    if _has(cert, b"CERTIFICATE-----"):
        return OptionError(f"{name}: {key} has no usable private key ({_why(error)})",
                           hint="use a PEM file with -----BEGIN PRIVATE KEY-----")
    return OptionError(f"tls_cert: {cert} has no usable certificate ({_why(error)})",
                       hint="use a PEM file with -----BEGIN CERTIFICATE-----")


def _has(path: str, text: bytes) -> bool:
    try:
        with open(path, "rb") as file:
            return text in file.read(1 << 20)
    except OSError:
        return False


def _why(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")


def _trust(context: ssl.SSLContext, path: str) -> None:
    for file in _authorities(path):
        try:
            context.load_verify_locations(file)
        except ssl.SSLError as error:
            raise OptionError(f"tls_ca: {file} has no usable certificate "
                              f"({_why(error)})",
                              hint="use a PEM file with -----BEGIN CERTIFICATE-----") from None
        except OSError as error:
            raise _unreadable("tls_ca", file, error) from None


def _demand_clients(context: ssl.SSLContext, options: Mapping[str, Any]) -> None:
    """Whether clients must show a certificate: by default if a listener sets tls_ca."""
    mutual = options["tls_mutual"]
    if mutual and options["tls_ca"] is None:
        raise OptionError("tls_mutual needs tls_ca",
                          hint="set tls_ca to the CA of the accepted clients")
    if options["tls_ca"] is not None and mutual is not False:
        _trust(context, options["tls_ca"])
        context.verify_mode = ssl.CERT_REQUIRED


def _judge_servers(context: ssl.SSLContext, options: Mapping[str, Any]) -> None:
    verify = options["tls_verify"]
    context.check_hostname = verify == "full"
    context.verify_mode = ssl.CERT_NONE if verify == "none" else ssl.CERT_REQUIRED
    if verify == "none":
        return
    if options["tls_ca"] is not None:
        _trust(context, options["tls_ca"])
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)


def _check_own(context: ssl.SSLContext, role: str, options: Mapping[str, Any]) -> None:
    """Check the caller's own context: it fits the role, and no option conflicts with it."""
    beside = [name for name, default in OF_A_CONTEXT.items() if options[name] != default]
    if beside:
        raise OptionError(f"{', '.join(beside)} cannot be combined with tls_context",
                          hint="configure the context instead, or leave tls_context out")
    wrong = ssl.PROTOCOL_TLS_CLIENT if role == "bind" else ssl.PROTOCOL_TLS_SERVER
    if context.protocol == wrong:
        side, other = ("connecting", "listening") if role == "bind" else ("listening", "connecting")
        raise OptionError(f"tls_context is for the {side} side, but this is the {other} side",
                          hint="pass a separate one to bind() and to connect()")
