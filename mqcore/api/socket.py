"""Socket: placeholder face used while the layers below come up."""
from mqcore.control.hub import Hub
from mqcore.control.links import SocketLinks
from mqcore.sock.core import SocketCore
from mqcore.spi import registry
from mqcore import options as table

class Socket(SocketCore):
    def __init__(self, pattern, hub, **opts):
        plugin = registry.pattern(pattern)
        rows = registry.pattern_options(pattern)
        o = {**table.defaults(rows, pattern), **table.validate_all(opts, extra=rows)}
        self._links = SocketLinks(hub, self, plugin, o)
        for n in ("send_timeout","recv_timeout","immediate"): self._set(n, o[n])
        for row in rows:
            if o.get(row.name) is not None: self._set_pattern_option(row.name, o[row.name])
    def bind(self, u, **k): return self._links.bind(u, **k)
    def connect(self, u, **k): return self._links.connect(u, **k)
    def close(self, linger=...): return self._links.close(linger)
    def stats(self): return self._links.stats()
    def _peer(self, n): return self._links.peer(n)
