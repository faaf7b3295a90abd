"""A socket's watch for tests: brought into any state and told any event, by hand.

The socket's context has a tick so long that the I/O thread's own never comes.
"""

from libc.stdint cimport int64_t

from mqcore.base.clock cimport now_ns
from mqcore.binding.handle cimport SocketHandle
from mqcore.reactor.io_thread cimport TICK_LED
from mqcore.sock.sock cimport Sock
from mqcore.sock.watch cimport lead_enter, lead_leave, watch_beside, watch_wants

from mqcore.sock.watch import STATES

NAMES = {number: name for name, number, _ in STATES}
ENTERS, LEAVES = "a leader enters", "it leaves within a tick's time"


cdef class WatchBench:
    """A bound socket. Close the bench before the socket."""

    cdef SocketHandle core
    cdef Sock* s
    cdef bint ticks           # the I/O thread has the tick in its list

    def __init__(self, SocketHandle core not None):
        self.core = core
        if core.open_watch() < 0:
            raise OSError("no descriptors left")
        self.s = core.s

    @property
    def state(self):
        return NAMES[self.s.watch_state.load()]

    @property
    def inside(self):
        return "a leader" if self.s.lead.load() else "nobody"

    def reach(self, str state, str inside):
        """This state, with a leader inside or not."""
        ways = {("ARMED", "nobody"): [], ("PARKED", "a leader"): [ENTERS],
                ("PARKED", "nobody"): [ENTERS], ("LED", "nobody"): [ENTERS, LEAVES],
                ("LED", "a leader"): [ENTERS, LEAVES, ENTERS]}
        for event in ways[state, inside]:
            self.tell(event)
        if (state, inside) == ("PARKED", "nobody"):
            self.s.lead.exchange(0)   # it is about to leave, and has not looked at the state yet
        if (self.state, self.inside) != (state, inside):
            raise AssertionError(f"the way to {state} ended in {self.state}, {self.inside}")

    def tell(self, str event):
        """One event."""
        cdef Sock* s = self.s
        cdef int64_t long_ago = now_ns() - 2 * s.home.ticks[TICK_LED].period
        what, _, circumstance = event.partition(", ")
        if what == "a leader enters":
            s.lead.exchange(1)
            lead_enter(s)
        elif what == "it leaves later":
            s.entered = long_ago
            lead_leave(s)
        elif what.startswith("it leaves"):
            s.wants.fetch_add(1 if circumstance else 0)
            lead_leave(s)
            s.wants.fetch_sub(1 if circumstance else 0)
        elif what == "an engine cannot wait":
            watch_wants(&s.port, 1)
            watch_wants(&s.port, -1)
        elif what == "a backlog is received":
            watch_beside(s)
        else:
            self.tick(circumstance)
        if self.state == "LED":
            self.ticks = True

    cdef tick(self, circumstance):
        cdef Sock* s = self.s
        if circumstance.startswith("none"):
            s.ticked_epoch = s.epoch.load()
        else:
            s.ticked_epoch = s.epoch.load() - 1
        if not s.ticking:
            s.ticking = 1
            s.users.fetch_add(1)
        if not s.led_tick.run(&s.led_tick, s.home) and self.ticks:
            s.ticking = 1             # the I/O thread believes so, and ends it when the socket does
            s.users.fetch_add(1)

    def close(self):
        if self.s.lead.load():
            lead_leave(self.s)
