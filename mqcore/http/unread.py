"""What a client has taken of the bytes that were written to it, by the count of its own kernel.

A transport does not say it: over TLS it does not count the bytes that wait below TLS, and it counts
none that wait in the kernel of this machine.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios

_INFO = struct.Struct("=B119xQ")    # tcpi_state and tcpi_bytes_acked in struct tcp_info
_CLOSED = 7                         # TCP_CLOSE
_LEFT = struct.Struct("=i")


def progress(transport: asyncio.Transport) -> tuple[int, int]:
    """(bytes that wait for the client, bytes that it has acknowledged since it connected).

    Over TLS the first leaves out what the transport below has not given to the kernel yet. If such
    bytes are all that is left, the event loop is about to write them. So nothing is left only where
    the first is 0 and the second has not changed for a turn of the loop, at least. Nothing is left
    for a client that has reset its connection, though the kernel goes on counting.
    """
    connection = transport.get_extra_info("socket")
    waiting = transport.get_write_buffer_size()
    try:
        left, = _LEFT.unpack(fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4)))
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
        state, acknowledged = _INFO.unpack(info)
    except (AttributeError, OSError, ValueError, struct.error):     # closed meanwhile, or unknown
        return waiting, 0
    return 0 if state == _CLOSED else left + waiting, acknowledged
