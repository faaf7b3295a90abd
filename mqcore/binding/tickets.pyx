"""Tickets of a turnstile: what request() and survey() hold while they use a line of their socket.

Places are taken and given back here, in C, where no signal handler runs. A ticket owns its place:
wherever a handler raises, `with`, leave() or the ticket's own end gives the place back, and the
first in line has it. mqcore/api/turnstile.py waits.
"""

cimport cython
from libc.stdint cimport uint64_t

from mqcore.spi.interpreter cimport PyThreadState_Get, PyThreadState_GetID

from collections import deque

cdef enum:
    NO_PLACE
    FIRST_PLACE
    PLACE_BESIDE

NONE, FIRST, BESIDE = NO_PLACE, FIRST_PLACE, PLACE_BESIDE


cdef inline uint64_t this_thread() noexcept:
    return PyThreadState_GetID(PyThreadState_Get())


@cython.final
cdef class Turnstile:
    """A first-come lock or semaphore: the first place, and `beside` more. Threads and tasks of any
    number of loops share it. A place that is given back goes to the first in line, so no caller
    overtakes one that waits."""

    cdef bint first     # taken
    cdef int taken      # of those beside
    cdef int most       # of these
    cdef object line    # of tickets
    cdef object first_of, strike     # its methods
    cdef uint64_t holder    # the thread that took the first place
    cdef dict waiting   # the tickets in line here, and at those that are `of` this one

    def __init__(self, int beside=0, Turnstile of=None):
        self.most = beside
        self.line = deque()
        self.first_of, self.strike = self.line.popleft, self.line.remove
        self.waiting = {} if of is None else of.waiting

    @property
    def in_line(self):
        """How many tickets."""
        return len(self.line)

    @property
    def mine(self):
        """Whether there is one place, and a ticket of this thread has it or is in line. A call that
        waits for a place would keep its own thread from giving the place back."""
        cdef Ticket ticket
        cdef uint64_t me = this_thread()
        cdef bint found
        if self.most:
            return False
        with cython.critical_section(self):
            found = self.first and self.holder == me
            for ticket in self.line:
                found = found or ticket.thread == me
        return found

    def dismiss(self):
        """Send those in line away without a place."""
        cdef list tickets
        with cython.critical_section(self):
            tickets = list(self.line)
        send_away(tickets)

    def dismiss_all(self):
        """dismiss(), here and at the turnstiles that are `of` this one."""
        send_away(list(self.waiting))

    @property
    def beside(self):
        """How many places there are beside the first one. More are for those in line at once."""
        return self.most

    @beside.setter
    def beside(self, int places):
        self.most = places
        self.serve()

    cdef int free(self, uint64_t thread):
        """Take a free place, for this thread."""
        if not self.first:
            self.first = True
            self.holder = thread
            return FIRST_PLACE
        if self.taken < self.most:
            self.taken += 1
            return PLACE_BESIDE
        return NO_PLACE

    cdef object admit(self):
        """Give a free place to the first in line. What wakes it, or None."""
        cdef Ticket ticket
        cdef object line = self.line
        cdef object wake = None
        cdef int place
        with cython.critical_section(self):
            if line:
                ticket = line[0]
                place = self.free(ticket.thread)
                if place:
                    self.first_of()
                    self.waiting.pop(ticket, None)
                    ticket.place = place
                    wake = ticket.wake
        return wake

    cdef int serve(self) except -1:
        cdef object wake = self.admit()
        while wake is not None:
            ring(wake)
            wake = self.admit()
        return 0


cdef int ring(object wake) except -1:
    try:
        wake()
    except BaseException:
        wake()      # a signal handler's exception; without this the waiter would sleep on
        raise
    return 0


cdef int send_away(list tickets) except -1:
    """A handler's exception is raised when all have left."""
    cdef Ticket ticket
    while tickets:
        ticket = tickets.pop()
        try:
            ticket.quit()
        except BaseException:
            send_away(tickets)
            raise
    return 0


@cython.final
cdef class Ticket:
    """For one caller. `with` takes a place if one is free and the line empty, and gives it back."""

    cdef Turnstile turnstile
    cdef readonly int place         # NONE, FIRST or BESIDE
    cdef object wake                # of a caller in line
    cdef uint64_t thread            # that took the place, or went to the line

    def __cinit__(self, Turnstile turnstile not None):
        self.turnstile = turnstile

    def take(self):
        """Whether it has a place, now or before."""
        cdef Turnstile turnstile = self.turnstile
        cdef object line = turnstile.line
        with cython.critical_section(turnstile):
            if not self.place and not line:
                self.thread = this_thread()
                self.place = turnstile.free(self.thread)
        return self.place != NO_PLACE

    def join(self, wake):
        """Go to the end of the line. wake() is called, by any thread, when there is a place. False:
        it has one, or is in line already."""
        cdef Turnstile turnstile = self.turnstile
        cdef object line = turnstile.line
        cdef bint joined = False
        with cython.critical_section(turnstile):
            if self.wake is None and not self.place:
                self.wake = wake
                self.thread = this_thread()
                line.append(self)
                turnstile.waiting[self] = None
                joined = True
        turnstile.serve()           # one that was given back meanwhile met an empty line
        return joined

    @property
    def waits(self):
        """Whether it is in line."""
        return self.wake is not None and not self.place

    cpdef quit(self):
        """Leave the line, if it is still there. wake() is called, too, without a place."""
        cdef Turnstile turnstile = self.turnstile
        cdef object wake = None
        with cython.critical_section(turnstile):
            if self.wake is not None and not self.place:
                turnstile.strike(self)
                turnstile.waiting.pop(self, None)
                wake, self.wake = self.wake, None
        if wake is not None:
            ring(wake)

    def leave(self):
        """Give the place back, or leave the line. Idempotent."""
        cdef Turnstile turnstile = self.turnstile
        cdef object line = turnstile.line
        self.quit()
        with cython.critical_section(turnstile):
            if self.place == FIRST_PLACE:
                turnstile.first = False
            elif self.place == PLACE_BESIDE:
                turnstile.taken -= 1
            self.place = NO_PLACE
            self.wake = None
        if line:
            turnstile.serve()

    def __enter__(self):
        self.take()
        return self

    def __exit__(self, *_):
        self.leave()

    def __del__(self):
        self.leave()
