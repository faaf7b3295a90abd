"""Tickets of a turnstile: what request() and survey() hold while they use a line of their socket.

Places are taken and given back here, in C, where no signal handler runs. A ticket owns its place:
wherever a handler raises, `with`, leave() or the ticket's own end gives the place back, and the
first in line has it. mqcore/api/turnstile.py waits.
"""

cimport cython

from collections import deque

cdef enum:
    NO_PLACE
    FIRST_PLACE
    PLACE_BESIDE

NONE, FIRST, BESIDE = NO_PLACE, FIRST_PLACE, PLACE_BESIDE


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

    def __init__(self, int beside=0):
        self.most = beside
        self.line = deque()
        self.first_of, self.strike = self.line.popleft, self.line.remove

    @property
    def beside(self):
        """How many places there are beside the first one. More are for those in line at once."""
        return self.most

    @beside.setter
    def beside(self, int places):
        self.most = places
        self.serve()

    cdef int free(self):
        """Take a free place."""
        if not self.first:
            self.first = True
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
                place = self.free()
                if place:
                    ticket = self.first_of()
                    ticket.place = place
                    wake = ticket.wake
        return wake

    cdef int serve(self) except -1:
        cdef object wake = self.admit()
        while wake is not None:
            try:
                wake()
            except BaseException:
                wake()      # a signal handler's exception; without this the waiter would sleep on
                raise
            wake = self.admit()
        return 0


@cython.final
cdef class Ticket:
    """For one caller. `with` takes a place if one is free and the line empty, and gives it back."""

    cdef Turnstile turnstile
    cdef readonly int place         # NONE, FIRST or BESIDE
    cdef bint ends
    cdef object wake                # of a caller in line

    def __cinit__(self, Turnstile turnstile not None):
        self.turnstile = turnstile

    def take(self):
        """Whether it has a place, now or before."""
        cdef Turnstile turnstile = self.turnstile
        cdef object line = turnstile.line
        with cython.critical_section(turnstile):
            if not self.place and not line:
                self.place = turnstile.free()
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
                line.append(self)
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
                wake, self.wake = self.wake, None
        if wake is not None:
            wake()

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
            self.ends = False
        if line:
            turnstile.serve()

    def __enter__(self):
        self.take()
        return self

    def __exit__(self, *_):
        self.leave()

    def __del__(self):
        self.leave()


@cython.final
cdef class Ending:
    """`with Ending(ticket) as mine:` what goes on at the ticket's place ends here, if `mine`: there
    is a place, and no other `Ending` has it. Then the ticket leaves, whatever is raised."""

    cdef Ticket ticket
    cdef bint mine

    def __cinit__(self, Ticket ticket not None):
        self.ticket = ticket

    def __enter__(self):
        cdef Ticket ticket = self.ticket
        with cython.critical_section(ticket.turnstile):
            self.mine = ticket.place != NO_PLACE and not ticket.ends
            if self.mine:
                ticket.ends = True
        return self.mine

    cdef int leave(self) except -1:
        cdef bint mine = self.mine
        self.mine = False
        if mine:
            self.ticket.leave()
        return 0

    def __exit__(self, *_):
        self.leave()

    def __del__(self):
        self.leave()
