"""The Python object that carries a pattern's ops table, and the book-keeping of operations that
run Python: see pattern.pxd."""

from mqcore.spi.inside cimport (
    Py_AddPendingCall, PyErr_SetInterrupt, current_op, set_current_op,
)

import re
from mqcore.base.native import threading

from mqcore.errors import StateError
from mqcore.spi.zmtp import faults

NAME = re.compile(r"[a-z][a-z0-9_]*")
RAISED = {}                   # thread: the exception that its call ended with
OWED = []                     # what the main thread is still to raise
cdef object get_ident = threading.get_ident


cdef class PatternPlugin:
    def __init__(self):
        raise TypeError("a PatternPlugin is made by plugin_new(), see mqcore/spi/pattern.pxd")

    @property
    def abi(self) -> int:
        return self.ops.abi

    @property
    def flags(self) -> int:
        return self.ops.flags

    @property
    def sends(self) -> bool:
        return self.ops.flags & PAT_SEND != 0

    @property
    def receives(self) -> bool:
        return self.ops.flags & PAT_RECV != 0

    @property
    def conflates(self) -> bool:
        """The conflate option means something."""
        return self.ops.flags & PAT_CONFLATE != 0

    @property
    def raw(self) -> bool:
        """Its peers are streams of bytes, not sockets."""
        return self.ops.flags & PAT_RAW != 0

    @property
    def kind(self) -> str:
        """What peers know it by: the Socket-Type, or the name where ZMTP cannot carry it."""
        return self.zmtp or self.name

    def faults(self) -> list[str]:
        """What the registry refuses it for, in words. Only for a table of this ABI."""
        cdef list found = []
        cdef str missing = ", ".join(absent(self.ops))
        if self.name is None or not NAME.fullmatch(self.name):
            found.append(f"has the name {self.name!r}: lower-case letters, digits and _")
        if None in (self.zmtp, self.peers, self.options, self.doc):
            found.append("gives None for its zmtp, peers, options or doc")
        if not all(isinstance(peer, str) for peer in self.peers or ()):
            found.append(f"has peers that are no names: {self.peers!r}")
        if missing:
            found.append(f"lacks the operation {missing} (NULL)")
        if self.ops.size < sizeof(Pattern):
            found.append(f"has a state of {self.ops.size} bytes: it must start with a Pattern")
        if self.ops.flags & ~(<uint32_t> PAT_ALL):
            found.append(f"has flags that this mqcore does not know ({self.ops.flags:#x})")
        if not self.ops.flags & (PAT_SEND | PAT_RECV):
            found.append("neither sends nor receives")
        return found or faults(self.name, self.zmtp, self.number, self.peers)

    def __repr__(self) -> str:
        return f"<pattern {self.name}>"


cdef list absent(const PatternOps* ops):
    """The operations that must be there and are not."""
    cdef list found = []
    for name, there in (("init", ops.init != NULL), ("fini", ops.fini != NULL),
                        ("set_option", ops.set_option != NULL), ("attach", ops.attach != NULL),
                        ("detach", ops.detach != NULL), ("hangup", ops.hangup != NULL),
                        ("readable", ops.readable != NULL), ("writable", ops.writable != NULL),
                        ("send", ops.send != NULL), ("recv", ops.recv != NULL),
                        ("query", ops.query != NULL)):
        if not there:
            found.append(name)
    return found


cdef PatternPlugin plugin_new(const PatternOps* ops, str name, int number, str zmtp, int sp,
                              tuple peers, tuple options, str doc):
    cdef PatternPlugin plugin
    if ops == NULL:
        raise TypeError("a pattern without an ops table")
    plugin = PatternPlugin.__new__(PatternPlugin)
    plugin.ops = ops
    plugin.name = name
    plugin.number = number
    plugin.zmtp = zmtp
    plugin.sp = sp
    plugin.peers = peers
    plugin.options = options
    plugin.doc = doc
    return plugin


# -- operations that run Python --------------------------------------------------------------------

cdef void* op_begin(void* pattern) noexcept nogil:
    cdef void* before = current_op
    set_current_op(pattern)
    return before


cdef void op_end(void* before) noexcept nogil:
    set_current_op(before)


cdef void* op_current() noexcept nogil:
    return current_op


cdef int op_refuse() except -1:
    if current_op != NULL:
        raise StateError(
            "a socket was called from inside a pattern's operation, which holds its socket's lock",
            hint="a pattern in Python calls no socket; a signal's handler or a __del__ that does "
                 "so sets a flag or starts a thread instead")
    return 0


def refuse_inside() -> None:
    """StateError if this thread is inside a pattern's operation."""
    op_refuse()


cdef void op_raised(object error):
    RAISED[get_ident()] = error


cdef int op_raise() except -1:
    error = RAISED.pop(get_ident(), None)
    if error is not None:
        raise error
    return 0


cdef void op_owe(object error):
    OWED.append(error)
    if Py_AddPendingCall(_pay, NULL):
        PyErr_SetInterrupt()    # the queue is full: Ctrl-C is the nearest that always works


cdef int _pay(void* arg) except -1:
    return op_pay()             # within an operation it raises, and is owed again


cdef int op_pay() except -1:
    if not OWED:
        return 0
    try:
        error = OWED.pop()
    except IndexError:        # another thread was faster
        return 0
    raise error


cdef void op_later():
    error = RAISED.pop(get_ident(), None)
    if error is not None and not isinstance(error, Exception):
        op_owe(error)
