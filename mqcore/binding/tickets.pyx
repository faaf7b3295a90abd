"""Tickets of a turnstile: what request() and survey() hold while they use a line of their socket.

Places are taken and given back here, in C, where no signal handler runs. A ticket owns its place:
wherever a handler raises, `with`, leave() or the ticket's own end gives the place back, and the
first in line has it. mqcore/api/turnstile.py waits.

A survey has the first place no longer than until its deadline, even if its ticket is still held.
The first in line waits until then. So it is woken when the deadline becomes known, and the next one
when it leaves. A wake-up is used once: the caller that it wakes looks, and joins with another.
"""

cimport cython
from libc.stdint cimport uint64_t

from mqcore.spi.interpreter cimport PyThreadState_Get, PyThreadState_GetID

from collections import deque
from weakref import ref

from mqcore.base.virtual import monotonic

cdef double ENDLESS = float("inf")

cdef enum:
    NO_PLACE
    FIRST_PLACE
    PLACE_BESIDE

NONE, FIRST, BESIDE = NO_PLACE, FIRST_PLACE, PLACE_BESIDE


cdef inline uint64_t this_thread() noexcept:
    return PyThreadState_GetID(PyThreadState_Get())


def no_task():
    """In place of a task's weak reference, for a thread."""


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
    cdef uint64_t turn      # how often the first place was taken: its ticket has the same number
    cdef double until       # when that turn ends, on the monotonic clock; or ENDLESS
    cdef uint64_t holder    # the thread that took the first place, or held it last
    cdef object task        # that held it last, weakly; no_task: a thread did; None: none has yet
    cdef dict waiting   # the tickets in line here, and at those that are `of` this one

    def __init__(self, int beside=0, Turnstile of=None):
        self.most = beside
        self.until = ENDLESS
        self.line = deque()
        self.first_of, self.strike = self.line.popleft, self.line.remove
        self.waiting = {} if of is None else of.waiting

    @property
    def in_line(self):
        """How many tickets."""
        return len(self.line)

    @property
    def mine(self):
        """Whether there is one place, and a ticket of this thread is in line, or has a turn with no
        end in sight. A call that waits for a place would keep its own thread from giving the place
        back."""
        cdef Ticket ticket
        cdef uint64_t me = this_thread()
        cdef bint found
        if self.most:
            return False
        with cython.critical_section(self):
            found = self.first and self.until == ENDLESS and self.holder == me
            for ticket in self.line:
                found = found or ticket.thread == me
        return found

    def held_by(self, task):
        """Whether this task has held a turn without an end last (Ticket.hold); or a task of its
        thread that is done, such as one of asyncio.wait_for(); or its thread before the task
        began."""
        cdef object held
        cdef bint here
        with cython.critical_section(self):
            held = self.task if self.first and self.until == ENDLESS else None
            here = self.holder == this_thread()
        if held is None or held is no_task:
            return here and held is no_task
        held = held()
        # trio's tasks have no done(), and its functions wait without tasks of their own
        return held is task or here and (held is None or getattr(held, "done", bool)())

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

    cdef double now(self):
        """To be asked before the lock is taken, since a simulated world's clock is Python."""
        return monotonic() if self.until < ENDLESS else 0.0

    cdef bint free(self, Ticket ticket, double now):
        """Whether the ticket takes a free place. The turn of the one before may have ended."""
        if not self.first or self.until <= now:
            self.vacate()
            self.first = True
            self.turn += 1
            self.holder = ticket.thread
            ticket.turn = self.turn
            ticket.place = FIRST_PLACE
        elif self.taken < self.most:
            self.taken += 1
            ticket.place = PLACE_BESIDE
        return ticket.place != NO_PLACE

    cdef void vacate(self):
        self.first = False
        self.until = ENDLESS
        self.task = None

    cdef Ticket admit(self, double now):
        """The first in line, if it takes a free place, or None."""
        cdef Ticket ticket
        cdef object line = self.line
        with cython.critical_section(self):
            if line:
                ticket = line[0]
                if self.free(ticket, now):
                    self.first_of()
                    self.waiting.pop(ticket, None)
                    ticket.lined = False
                    return ticket
        return None

    cdef object wake_of_next(self):
        """Of the first in line: it must look when the turn ends. The caller has the lock."""
        return (<Ticket> self.line[0]).taken_wake() if self.line else None

    cdef int serve(self) except -1:
        cdef double now = self.now()
        cdef Ticket ticket = self.admit(now)
        while ticket is not None:
            ring(ticket.taken_wake())
            ticket = self.admit(now)
        return 0


cdef int ring(object wake) except -1:
    if wake is None:
        return 0
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
    cdef uint64_t turn              # FIRST: it has the place as long as the turnstile has the same
    cdef bint lined                 # in line
    cdef object wake                # then; None: its caller is awake, and will look
    cdef uint64_t thread            # that took the place, or went to the line

    def __cinit__(self, Turnstile turnstile not None):
        self.turnstile = turnstile

    cdef object taken_wake(self):
        cdef object wake = self.wake
        self.wake = None
        return wake

    def take(self):
        """Whether it has a place, now or before."""
        cdef Turnstile turnstile = self.turnstile
        cdef object line = turnstile.line
        cdef double now = turnstile.now()
        with cython.critical_section(turnstile):
            if not self.place and not line:
                self.thread = this_thread()
                turnstile.free(self, now)
        return self.place != NO_PLACE

    def join(self, wake):
        """Go to the end of the line, or stay where it is in it. wake() is called once, by any
        thread: when it has a place, has been sent away, or should join again, since `turn_ends` has
        changed. Whether it is in line; if not, it has a place."""
        cdef Turnstile turnstile = self.turnstile
        cdef object line = turnstile.line
        with cython.critical_section(turnstile):
            if not self.place:
                self.wake = wake
                if not self.lined:
                    self.lined = True
                    self.thread = this_thread()
                    line.append(self)
                    turnstile.waiting[self] = None
        turnstile.serve()           # one that was given back meanwhile met an empty line
        return self.lined

    @property
    def waits(self):
        """Whether it is in line."""
        return self.lined

    @property
    def turn_ends(self):
        """When the first place is free at the latest, on the monotonic clock, if this ticket is the
        first in line. None: not known, or others are before it."""
        cdef Turnstile turnstile = self.turnstile
        with cython.critical_section(turnstile):
            if self.lined and turnstile.line[0] is self and turnstile.until < ENDLESS:
                return turnstile.until
        return None

    def ends(self, double moment):
        """Its turn ends then, on the monotonic clock, even if the ticket is still held."""
        cdef Turnstile turnstile = self.turnstile
        cdef object wake = None
        with cython.critical_section(turnstile):
            if self.has_turn():
                turnstile.until = moment
                wake = turnstile.wake_of_next()
        ring(wake)

    def hold(self, task):
        """This task, or None for the calling thread, goes on with its turn, which has no end."""
        cdef Turnstile turnstile = self.turnstile
        cdef object one = no_task if task is None else ref(task)
        with cython.critical_section(turnstile):
            if self.has_turn():
                turnstile.holder = this_thread()
                turnstile.task = one

    cdef bint has_turn(self):
        return self.place == FIRST_PLACE and self.turn == self.turnstile.turn

    cpdef quit(self):
        """Leave the line, if it is still there. wake() is called, too, without a place."""
        cdef Turnstile turnstile = self.turnstile
        cdef object wake = None
        cdef object following = None
        cdef bint first
        with cython.critical_section(turnstile):
            if self.lined:
                first = turnstile.line[0] is self
                turnstile.strike(self)
                turnstile.waiting.pop(self, None)
                self.lined = False
                wake = self.taken_wake()
                if first:
                    following = turnstile.wake_of_next()
        try:
            ring(wake)
        finally:
            ring(following)

    def leave(self):
        """Give the place back, or leave the line. Idempotent."""
        cdef Turnstile turnstile = self.turnstile
        cdef object line = turnstile.line
        self.quit()
        with cython.critical_section(turnstile):
            if self.has_turn():
                turnstile.vacate()
            elif self.place == PLACE_BESIDE:
                turnstile.taken -= 1
            self.place = NO_PLACE
        if line:
            turnstile.serve()

    def __enter__(self):
        self.take()
        return self

    def __exit__(self, *_):
        self.leave()

    def __del__(self):
        self.leave()
