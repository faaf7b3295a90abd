"""srv://_service._proto.name: the targets of a DNS service record (RFC 2782), each as its own peer.

    srv://_mq._tcp.example.org          tcp://TARGET:PORT for each record

A service record names hosts and ports, so clients need to know neither. The targets come in the
order of their priority, those with the larger weight first. All of them are connected to. Each
target is a host name, which tcp:// looks up again whenever it connects.

The resolver asks the system's name servers, or the one of `?nameserver=10.0.0.2:53` (an address;
the port is 53 if it is left out). A name without a record is a failed look-up and changes nothing.
The record with the target "." says that the service is not available (RFC 2782), which is an empty
set.

Needs dnspython: `pip install "mqcore[dns]"`.
"""

from __future__ import annotations

import errno
import re
from typing import Any

from mqcore.errors import AddressError, NotSupported
from mqcore.spi.inet import parse
from mqcore.spi.resolver import Options, Resolver

LABELS = re.compile(r"_[a-z0-9-]{1,62}\._[a-z0-9-]{1,62}(\.[a-z0-9_-]{1,63})+\.?", re.I | re.ASCII)
LONGEST = 253       # characters of a name
TARGETS = 1024      # a longer answer is a mistake


def _dnspython() -> Any:
    try:
        import dns.exception
        import dns.resolver
    except ImportError:
        raise NotSupported("srv:// needs the package dnspython",
                           hint="pip install mqcore[dns]") from None
    return dns


def _asking(nameserver: str) -> Any:
    """A dnspython resolver, of the system's name servers or of that one."""
    resolver = _dnspython().resolver.Resolver(configure=not nameserver)
    if nameserver:
        text = f"[{nameserver}]" if nameserver.count(":") > 1 and "[" not in nameserver \
            else nameserver
        bare = text.endswith("]") or ":" not in text
        place = parse(f"{text}:53" if bare else text, "connect")[1]
        if not place.literal:
            raise AddressError(f"nameserver={nameserver} is no IP address",
                               hint="write it like 10.0.0.2 or 10.0.0.2:53")
        resolver.nameservers, resolver.port = [place.host], place.port
    return resolver


class Srv(Resolver):
    scheme = "srv"
    doc = "the hosts and ports of a DNS service record, as tcp"
    options = (("nameserver", "text", "",
                "srv://: the name server to ask, ADDRESS or ADDRESS:PORT; empty: the system's"),)

    def check(self, address: str) -> None:
        if len(address) > LONGEST or not LABELS.fullmatch(address):
            raise AddressError(f"{address!r:.300} names no service record",
                               hint="write it like srv://_mq._tcp.example.org; the port is in "
                                    "the record")

    def look_up(self, address: str, options: Options) -> list[str]:
        dns = _dnspython()
        try:
            answer = _asking(options["nameserver"]).resolve(
                address, "SRV", lifetime=options["connect_timeout"] or 5.0)
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
            raise OSError(errno.ENOENT, "it has no service record") from None
        except dns.exception.Timeout:
            raise OSError(errno.ETIMEDOUT, "no name server answered in time") from None
        except dns.exception.DNSException as error:
            raise OSError(errno.EIO, f"the look-up failed: {error or type(error).__name__}"
                          ) from None
        return _urls(answer)


def _urls(records: Any) -> list[str]:
    found = sorted(records, key=lambda record: (record.priority, -record.weight,
                                                str(record.target), record.port))
    if len(found) > TARGETS:
        raise OSError(errno.EFBIG, f"it has {len(found)} records, {TARGETS} is the limit")
    urls = []
    for record in found:
        host = record.target.to_text(omit_final_dot=True)
        if host in (".", ""):       # "decidedly not available at this domain"
            continue
        address = f"{host}:{record.port}"
        parse(address, "connect")   # a name that could be no host's: AddressError
        urls.append(f"tcp://{address}")
    return list(dict.fromkeys(urls))


resolver = Srv()
