"""Console: the page's server, its sockets and threads, made and ended together."""

from __future__ import annotations

import contextlib
import importlib.util
import ipaddress
import secrets
from collections.abc import Iterable
from typing import Any

from mqcore import events
from mqcore.api.context import Context
from mqcore.api.patterns import Rep
from mqcore.base.native import socket as system
from mqcore.base.threads import Thread
from mqcore.base.waits import Event
from mqcore.console import requests
from mqcore.console.control import Control
from mqcore.console.looks import LOOPBACK, Looks
from mqcore.console.stores import Stores
from mqcore.console.views import Views
from mqcore.errors import BindError, Error, NotSupported, SocketClosed, UsageError
from mqcore.monitor.throttle import Throttle

PAGES = 16          # connections at once; further ones are ended
RATE = 200.0        # requests a second that are answered; the others wait in the kernel
DESKS = 3           # threads that answer: one may wait for a slow program
# what a page may have waiting here, and what may wait for a page
BOUNDS = {"max_message_size": requests.LARGEST + 64, "recv_hwm": 4, "send_hwm": 2,
          "send_hwm_bytes": 2 << 20, "recv_hwm_bytes": 1 << 20, "max_handshakes": 16,
          "handshake_timeout": 5.0, "max_unfinished": 4 << 20, "linger": 0}
NAMES = ("127.0.0.1", "localhost")     # of the loopback


class Console:
    """Serves the page at `url`, which carries the token that a page needs. `with` closes it.

    urls: monitors to read; default: all monitored programs of this user. host, port: where the page
    is served (default 127.0.0.1 and a free port). journals: folders and addresses of journals.
    checkpoints: checkpoint folders of Spark's streaming queries. control: let pages send messages
    and watch publishers (default False). tls_cert, tls_key: PEM files to serve the page over TLS.
    insecure: serve other machines without TLS (default False). options: to read the monitors, such
    as `tls_ca`.

    Raises BindError if the address is taken, UsageError for one that other machines reach without
    TLS, and NotSupported if a package is missing."""

    def __init__(self, urls: str | Iterable[str] | None = None, *, host: str = "127.0.0.1",
                 port: int = 0, journals: Iterable[str] = (), checkpoints: Iterable[str] = (),
                 control: bool = False, tls_cert: str = "", tls_key: str = "",
                 insecure: bool = False, **options: Any) -> None:
        needs()
        host = as_browsers_write(host)
        check_host(host, bool(tls_cert), insecure)
        chosen = [urls] if isinstance(urls, str) else list(urls or ())
        self._ending = Event()
        self._token = secrets.token_urlsafe(24)
        self._tls = {"tls_cert": tls_cert, **({"tls_key": tls_key} if tls_key else {})} \
            if tls_cert else {}
        self._control = Control() if control else None
        self._looks = Looks(chosen, options, self._ending)
        self._stores = Stores(journals, checkpoints, self._ending)
        self._views = Views(self._looks, self._stores, self._control, options)
        self._context = Context(monitor=False)
        self._throttle = Throttle(RATE)
        self._server: Any = None
        self._threads: list[Any] = []
        #: answers that a page did not take, and pages beyond the limit
        self.unsent = self.turned_away = 0
        page = None
        try:
            page = listen(host, port)
            self._serve(page, host)
        except BaseException:
            self.close()
            if page is not None:
                page.close()
            raise

    def _serve(self, page: Any, host: str) -> None:
        from mqcore.console.web import Server, Site

        port = page.getsockname()[1]
        names = sorted(NAMES) if host in NAMES else [host]
        scheme, live = ("https", "wss") if self._tls else ("http", "ws")
        places = [place for name in names for place in places_of(scheme, name, port)]
        origins = " ".join(f"{scheme}://{place}" for place in places)
        self._rep = Rep(context=self._context, **BOUNDS)
        self._rep._links.watchers.append(self._count_pages)
        url = self._rep.bind(f"{live}://{host}:0/{self._token}", origin=origins, **self._tls).url
        live_port = int(url.partition("://")[2].partition("/")[0].rpartition(":")[2])
        site = Site(set(places), live_port,
                    # a Content-Security-Policy cannot name an IPv6 address
                    [f"{live}:" if name.startswith("[") else f"{live}://{name}:{live_port}"
                     for name in names])
        self._server = Server(page, site, **(
            {"ssl_certfile": self._tls["tls_cert"], "ssl_keyfile": self._tls.get("tls_key")}
            if self._tls else {}))
        for _ in range(DESKS):
            thread = Thread(self._answer, "mqcore-console")
            thread.start()
            self._threads.append(thread)
        self.page = f"{scheme}://{host}:{port}/"
        self.url = f"{self.page}#{self._token}"

    @property
    def counts(self) -> dict[str, int]:
        """Requests of pages: answered, refused, malformed, failed. Unsent answers, and pages that
        were turned away because 16 were connected."""
        return {**self._views.counts, "unsent": self.unsent, "turned_away": self.turned_away}

    def __enter__(self) -> Console:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the page's server, its sockets and threads. Complete on return. Idempotent."""
        self._ending.set()
        self._context.close(0)
        if self._server is not None:
            self._server.close()
        for thread in self._threads:
            thread.join()
        if self._control is not None:
            self._control.close()
        self._looks.stop()
        self._stores.stop()

    def _count_pages(self, event: Any) -> None:
        """On the control thread of the console's context: end what is beyond the limit."""
        if not isinstance(event, events.Connected) or event.peer is None:
            return
        links = self._rep._links
        if len(links.peers) > PAGES:
            self.turned_away += 1
            links.end_peer(event.peer.id)

    def _answer(self) -> None:
        while not self._ending.is_set():
            if pause := self._throttle.take():
                self._ending.wait(pause)
                continue
            try:
                message = self._rep.recv_msg()
                message.reply(self._views.answer(message.body), timeout=0)
            except Error as error:
                if self._ending.is_set() or isinstance(error, SocketClosed):
                    return
                self.unsent += 1


def needs() -> None:
    for name in ("uvicorn", "wsproto", "msgspec"):
        if importlib.util.find_spec(name) is None:
            raise NotSupported(f"the console needs the package {name}",
                               hint='pip install "mqcore[console]"')


def as_browsers_write(host: str) -> str:
    """A host in the form that it has in a request's headers."""
    if host.startswith("["):
        with contextlib.suppress(ValueError):
            return f"[{ipaddress.IPv6Address(host[1:-1])}]"
    return host.lower()


def places_of(scheme: str, name: str, port: int) -> list[str]:
    """The values of a Host header for this server. A browser leaves out the scheme's own port."""
    own = port == {"http": 80, "https": 443}[scheme]
    return [f"{name}:{port}", *([name] if own else [])]


def check_host(host: str, tls: bool, insecure: bool) -> None:
    if host in ("", "*", "0.0.0.0", "::", "[::]"):
        raise UsageError("the console needs the one name under which browsers reach it, not all "
                         "addresses", hint="name an address of this machine")
    if not (LOOPBACK.match(host) or tls or insecure):
        raise UsageError(f"other machines reach {host}, and its traffic would not be encrypted",
                         hint="give a certificate, bind 127.0.0.1, or allow it with insecure")


def listen(host: str, port: int) -> Any:
    """The page's listening socket. BindError if there can be none."""
    name = host.removeprefix("[").removesuffix("]")
    try:
        family, _, _, _, where = system.getaddrinfo(name, port, type=system.SOCK_STREAM)[0]
        sock = system.socket(family, system.SOCK_STREAM)
        try:
            sock.setsockopt(system.SOL_SOCKET, system.SO_REUSEADDR, 1)
            sock.bind(where)
            sock.listen(64)
        except BaseException:
            sock.close()
            raise
    except OSError as error:
        raise BindError(f"cannot serve the console at {host}:{port}: {error.strerror or error}",
                        hint="choose another address, or port 0 for a free one") from None
    return sock
