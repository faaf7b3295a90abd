"""What the kernel lets through to libpgm: a socket filter (classic BPF).

libpgm ends the process on some malformed packets with a correct checksum, and reads behind the end
of others. So only packets of a layout that it handles get through: those that libpgm's own sources
and receivers send, without error correction, congestion control and fragments, which libzmq and
this engine do not use.

    header            16 bytes: ports, type, options, checksum, source, bytes of data
    ODATA, RDATA      + 8, + data; no options
    SPM               + an address of the socket's family; alone, or with one option SYN or FIN
    NAK, NNAK, NCF    + two such addresses; alone, or with one list of further numbers
    SPMR              alone
"""

from __future__ import annotations

import socket
import struct

UDP_HEADER, HEADER = 8, 16
# opcodes of linux/filter.h
LD_LENGTH, LD_WORD_OF, LD_BYTE, LD_HALF = 0x80, 0x60, 0x50, 0x48
LDX_NUMBER, LDX_IP_HEADER, STORE, TO_X = 0x01, 0xb1, 0x02, 0x07
ADD, SUBTRACT_X, AND = 0x04, 0x1c, 0x54
JUMP, IF_EQUAL, IF_EQUAL_X, IF_LESS, IF_SET, RETURN = 0x05, 0x15, 0x1d, 0x35, 0x45, 0x06

SPM, ODATA, RDATA, NAK, NNAK, NCF, SPMR = 0x00, 0x04, 0x05, 0x08, 0x09, 0x0a, 0x0c
PRESENT, KNOWN = 0x01, 0x03  # options follow; bits that are allowed
OPT_SYN, OPT_FIN, OPT_NAK_LIST = 0x8d, 0x8e, 0x82  # with the bit of the last one


class Program:
    """Instructions with labels. `unless` jumps to "no" if a condition does not hold."""

    def __init__(self) -> None:
        self.code: list[tuple[int, int, str, str]] = []
        self.labels: dict[str, int] = {}

    def do(self, op: int, number: int = 0, then: str = "", otherwise: str = "") -> None:
        self.code.append((op, number, then, otherwise))

    def label(self, name: str) -> None:
        self.labels[name] = len(self.code)

    def need(self, op: int, number: int = 0) -> None:
        self.do(op, number, "", "no")

    def raw(self) -> bytes:
        out = b""
        for at, (op, number, then, otherwise) in enumerate(self.code):
            if op == JUMP:
                out += struct.pack("=HBBI", op, 0, 0, self.labels[then] - at - 1)
                continue
            steps = [self.labels[name] - at - 1 if name else 0 for name in (then, otherwise)]
            out += struct.pack("=HBBI", op, *steps, number)
        return out


def _same_length(p: Program) -> None:
    """A must be the packet's length."""
    p.do(TO_X)
    p.do(LD_WORD_OF, 0)
    p.need(IF_EQUAL_X)
    p.do(JUMP, 0, "yes")


def _option(p: Program, at: int) -> None:
    """The option that says how long all of them are."""
    p.do(LD_BYTE, at)
    p.need(IF_EQUAL, 0)
    p.do(LD_BYTE, at + 1)
    p.need(IF_EQUAL, 4)


def _spm(p: Program, afi: int, size: int) -> None:
    end = HEADER + size
    p.do(LD_WORD_OF, 0)
    p.need(IF_LESS, end)          # "greater or equal", in the kernel's words
    p.do(LD_HALF, HEADER + 12)
    p.need(IF_EQUAL, afi)
    p.do(LD_BYTE, 5)
    p.do(IF_SET, PRESENT, "spm option", "")
    p.do(LD_WORD_OF, 0)
    p.need(IF_EQUAL, end)
    p.do(JUMP, 0, "yes")
    p.label("spm option")
    p.do(LD_WORD_OF, 0)
    p.need(IF_EQUAL, end + 8)
    _option(p, end)
    p.do(LD_HALF, end + 2)
    p.need(IF_EQUAL, 8)
    p.do(LD_BYTE, end + 5)
    p.need(IF_EQUAL, 4)
    p.do(LD_BYTE, end + 4)
    p.do(IF_EQUAL, OPT_SYN, "yes", "")
    p.need(IF_EQUAL, OPT_FIN)
    p.do(JUMP, 0, "yes")


def _nak(p: Program, afi: int, size: int) -> None:
    end = HEADER + size
    second = HEADER + 4 + (size - 4) // 2
    p.do(LD_WORD_OF, 0)
    p.need(IF_LESS, end)
    for at in (HEADER + 4, second):
        p.do(LD_HALF, at)
        p.need(IF_EQUAL, afi)
    p.do(LD_BYTE, 5)
    p.do(IF_SET, PRESENT, "nak list", "")
    p.do(LD_WORD_OF, 0)
    p.need(IF_EQUAL, end)
    p.do(JUMP, 0, "yes")
    p.label("nak list")
    p.do(LD_WORD_OF, 0)
    p.need(IF_LESS, end + 8)
    _option(p, end)
    p.do(LD_BYTE, end + 4)
    p.need(IF_EQUAL, OPT_NAK_LIST)
    p.do(LD_BYTE, end + 5)
    p.need(IF_LESS, 8)
    p.do(IF_SET, 3, "no", "")
    p.do(ADD, 4)
    p.do(STORE, 1)
    p.do(ADD, end)
    p.do(STORE, 2)
    p.do(LD_HALF, end + 2)
    p.do(TO_X)
    p.do(LD_WORD_OF, 1)
    p.need(IF_EQUAL_X)
    p.do(LD_WORD_OF, 2)
    _same_length(p)


def program(family: int, udp: bool) -> bytes:
    """For setsockopt(SO_ATTACH_FILTER): instructions of eight bytes."""
    four = family == socket.AF_INET
    afi, address = (1, 4) if four else (2, 16)
    p = Program()
    if udp or not four:
        p.do(LDX_NUMBER, UDP_HEADER if udp else 0)
    else:
        p.do(LDX_IP_HEADER, 0)
    p.do(LD_LENGTH)
    p.do(SUBTRACT_X)
    p.do(STORE, 0)
    p.need(IF_LESS, HEADER)
    p.do(LD_BYTE, 5)
    p.do(AND, 0xff & ~KNOWN)
    p.need(IF_EQUAL, 0)
    p.do(LD_BYTE, 4)
    for kind, name in ((ODATA, "data"), (RDATA, "data"), (SPM, "spm"), (NAK, "nak"),
                       (NNAK, "nak"), (NCF, "nak")):
        p.do(IF_EQUAL, kind, name, "")
    p.need(IF_EQUAL, SPMR)
    p.do(LD_WORD_OF, 0)
    p.need(IF_EQUAL, HEADER)
    p.do(JUMP, 0, "yes")
    p.label("data")
    p.do(LD_BYTE, 5)
    p.do(IF_SET, PRESENT, "no", "")
    p.do(LD_HALF, 14)
    p.do(ADD, HEADER + 8)
    _same_length(p)
    p.label("spm")
    _spm(p, afi, 16 + address)
    p.label("nak")
    _nak(p, afi, 4 + 2 * (4 + address))
    p.label("yes")
    p.do(RETURN, 0xffff)
    p.label("no")
    p.do(RETURN, 0)
    return p.raw()
