"""TLSConfig: our certificate and the trusted CAs, for one side. It wraps Python's SSLContext."""

from __future__ import annotations

import errno
import os
import ssl
import tempfile
from collections.abc import Callable, Iterable

from mqcore.nng.exceptions import (
    CryptoError,
    InvalidOperation,
    NNGException,
    NoEntry,
    PermissionDenied,
    make,
)


class TLSConfig:
    """Texts are certificates and keys in PEM form. Keyword arguments are the methods of the same
    meaning."""

    MODE_CLIENT = 0
    MODE_SERVER = 1
    AUTH_MODE_NONE = 0
    AUTH_MODE_OPTIONAL = 1
    AUTH_MODE_REQUIRED = 2

    def __init__(self, mode: int, server_name: str | None = None, ca_string: str | None = None,
                 own_key_string: str | None = None, own_cert_string: str | None = None,
                 auth_mode: int | None = None, ca_files: Iterable[str] | None = None,
                 cert_key_file: str | None = None, passwd: str | None = None) -> None:
        if ca_string is not None and ca_files is not None:
            raise ValueError("give ca_string or ca_files, not both")
        if (own_key_string is None) != (own_cert_string is None):
            raise ValueError("own_key_string and own_cert_string belong together")
        if own_key_string is not None and cert_key_file is not None:
            raise ValueError("give own_key_string and own_cert_string, or cert_key_file")
        serving = mode == self.MODE_SERVER
        self._mode = mode
        self._server_name = ""
        self._ssl = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if serving else ssl.PROTOCOL_TLS_CLIENT)
        self._ssl.minimum_version = ssl.TLSVersion.TLSv1_2
        self._ssl.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a CA's text may name the peer
        if server_name is not None:
            self.set_server_name(server_name)
        if ca_string is not None:
            self.set_ca_chain(ca_string)
        if own_key_string is not None and own_cert_string is not None:
            self.set_own_cert(own_cert_string, own_key_string, passwd)
        if auth_mode is not None:
            self.set_auth_mode(auth_mode)
        for path in (ca_files,) if isinstance(ca_files, str) else ca_files or ():
            self.add_ca_file(path)
        if cert_key_file is not None:
            self.set_cert_key_file(cert_key_file, passwd)

    def set_server_name(self, server_name: str) -> None:
        """The name that the server's certificate must have, if not that of the address."""
        self._server_name = server_name

    def set_auth_mode(self, mode: int) -> None:
        """Whether the peer must authenticate. The default is REQUIRED for a client and NONE for a
        server."""
        if mode not in (self.AUTH_MODE_NONE, self.AUTH_MODE_OPTIONAL, self.AUTH_MODE_REQUIRED):
            raise make(InvalidOperation, f"there is no authentication mode {mode!r}")
        if self._mode == self.MODE_SERVER:
            self._ssl.verify_mode = (ssl.CERT_NONE, ssl.CERT_OPTIONAL, ssl.CERT_REQUIRED)[mode]
            return
        self._ssl.check_hostname = False  # before CERT_NONE, after CERT_REQUIRED
        if mode == self.AUTH_MODE_REQUIRED:
            self._ssl.verify_mode = ssl.CERT_REQUIRED
            self._ssl.check_hostname = True
        else:
            self._ssl.verify_mode = ssl.CERT_NONE

    def set_ca_chain(self, chain: str, crl: str | None = None) -> None:
        """Trust these authorities; `crl`: but not what this list revokes."""
        _load(lambda: self._ssl.load_verify_locations(cadata=chain), "the chain")
        if crl is not None:
            with _file(crl) as path:
                _load(lambda: self._ssl.load_verify_locations(path), "the list of the revoked")
            self._ssl.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF

    def add_ca_file(self, path: str) -> None:
        """Trust the authorities in a file."""
        _load(lambda: self._ssl.load_verify_locations(path), path)

    def set_own_cert(self, cert: str, key: str, passwd: str | None = None) -> None:
        """What we show to the peer."""
        with _file(f"{cert}\n{key}\n") as path:  # Python's ssl reads a key from files alone
            _load(lambda: self._ssl.load_cert_chain(path, password=lambda: passwd or ""),
                  "the pair")

    def set_cert_key_file(self, path: str, passwd: str | None = None) -> None:
        """The same from a file that has both."""
        _load(lambda: self._ssl.load_cert_chain(path, password=lambda: passwd or ""), path)

    def _options(self) -> dict[str, object]:
        """mqcore's, for bind() and connect()."""
        found: dict[str, object] = {"tls_context": self._ssl}
        if self._server_name:
            found["tls_hostname"] = self._server_name
        return found


class _file:
    """A text as a file that only we may read, while `with` lasts."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __enter__(self) -> str:
        fd, self._path = tempfile.mkstemp(suffix=".pem")
        with os.fdopen(fd, "w") as file:
            file.write(self._text)
        return self._path

    def __exit__(self, *_: object) -> None:
        os.unlink(self._path)


def _load(act: Callable[[], None], what: str) -> None:
    try:
        act()
    except ssl.SSLError as error:
        raise make(CryptoError, f"{what}: {error.reason or error}") from None
    except OSError as error:
        kinds: dict[int | None, type[NNGException]] = {
            errno.ENOENT: NoEntry, errno.EACCES: PermissionDenied}
        kind = kinds.get(error.errno, InvalidOperation)
        raise make(kind, f"{what}: {error.strerror or error}") from None
