"""TLS sessions without I/O, as bind() and connect() would get them, back to back."""

from mqcore.transports.tls import filter as tls

from mqcore.options import for_link, rows_of

ROWS = rows_of(tls.options)


def options(**given):
    return for_link({}, [], given, extra=ROWS)


def opened(role, address="localhost:5555", **given):
    _, own = tls.split(address, role)
    return tls.open(own, role, options(**given))


def pump(client, server, rng=None):
    """Carry bytes both ways until both are silent, in random pieces if there are dice. Returns what
    came out above at each side; what a session raises comes through, its last words delivered."""
    plain = {client: b"", server: b""}
    moved = True
    while moved:
        moved = False
        for source, sink in ((client, server), (server, client)):
            text = source.outgoing()
            while text:
                moved = True
                size = rng.randrange(1, min(len(text), 999) + 1) if rng else len(text)
                plain[sink] += sink.receive(text[:size])
                text = text[size:]
    return plain[client], plain[server]


def shake(client, server, rng=None):
    client.start()
    server.start()
    return pump(client, server, rng)
