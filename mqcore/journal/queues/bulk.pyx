"""What happens to many jobs at a time: the entries of a queue server, and loops over them.

A job is touched some eight times on its way through a server and a consumer, and one request has up
to 10,000 of them. What is done once a request stays in book.py, leases.py and client.py. No loop
here calls back into them, so each is one step for other threads while there is a GIL. The server
has one thread for its Book, and a consumer shares nothing but `held`, a dict.
"""

cimport cython
from libc.stdint cimport int64_t

cdef enum:          # entry.py has the same names for Python
    READY_ = 0
    HELD_ = 2
    GONE_ = 3

READY, DELAYED, HELD, GONE = range(4)


@cython.no_gc
cdef class Entry:
    """A job. `body` is None while it is on disk alone: there it is number `index` of the record at
    the offset `place`. `headers` are packed, None if there are none. `size`: bytes of body and
    headers. `ready`: not to be delivered before; `expires`: nor from then on. 0: does not matter.

    Python's collector does not look at entries, which a server has millions of. So Book.close() has
    to cut what leads from queues and leases back to them.
    """

    cdef public object id, queue, body, headers
    cdef public Lease lease
    cdef public int64_t size, place, index, attempts
    cdef public int state, priority
    cdef public double ready, expires

    def __init__(self, number, queue, body, int64_t size, int64_t place, int64_t index,
                 int priority):
        self.id = number
        self.queue = queue
        self.body = body
        self.size = size
        self.place = place
        self.index = index
        self.priority = priority
        self.state = READY_


cdef class Lease:
    """One delivery: the jobs of one answer. `holder` is whatever the caller identifies a connection
    by; None after a restart. `open` counts the entries that this lease still holds."""

    cdef public double deadline
    cdef public object holder
    cdef public list entries
    cdef public Py_ssize_t open

    def __init__(self, double deadline, holder, list entries):
        self.deadline = deadline
        self.holder = holder
        self.entries = entries
        self.open = len(entries)


# -- the server ------------------------------------------------------------------------------------

def insert(dict jobs, append, queue, bodies, int64_t first, int64_t place, int priority):
    """New entries, ready and in memory: into `jobs`, and by `append` into their lane."""
    cdef Entry entry
    cdef int64_t index = 0
    for body in bodies:
        entry = Entry.__new__(Entry)
        entry.id = first + index
        entry.queue = queue
        entry.body = body
        entry.size = len(body)
        entry.place = place
        entry.index = index
        entry.priority = priority
        entry.state = READY_
        jobs[entry.id] = entry
        append(entry)
        index += 1


def choose(lanes, Py_ssize_t most, int64_t room, double now):
    """Out of their lanes: (those to deliver, those that have expired, how many were gone). Up to
    `most` jobs of `room` bytes together, but one in any case."""
    cdef list found = [], late = []
    cdef Py_ssize_t stale = 0
    cdef Entry entry
    for lane in lanes:
        popleft = lane.popleft
        while len(found) < most and lane:
            entry = <Entry?> popleft()
            if entry.state != READY_:
                stale += 1
            elif entry.expires and entry.expires <= now:
                late.append(entry)
            elif found and entry.size > room:
                lane.appendleft(entry)
                return found, late, stale
            else:
                found.append(entry)
                room -= entry.size
    return found, late, stale


def deliver(list entries):
    """They are held, one attempt more; how many had one before."""
    cdef Py_ssize_t again = 0
    cdef Entry entry
    for entry in entries:
        entry.state = HELD_
        if entry.attempts:
            again += 1
        entry.attempts += 1
    return again


def assign(list entries, Lease lease):
    cdef Entry entry
    for entry in entries:
        entry.lease = lease


def columns(list entries):
    """(ids, attempts, bodies, headers, or None if no job has any)"""
    cdef list ids = [], attempts = [], bodies = [], headers = []
    cdef bint some = False
    cdef Entry entry
    for entry in entries:
        ids.append(entry.id)
        attempts.append(entry.attempts)
        bodies.append(entry.body)
        headers.append(entry.headers)
        if entry.headers is not None:
            some = True
    return ids, attempts, bodies, headers if some else None


def runs_of(list entries):
    """Their ids as entry.runs() has them."""
    cdef list found = []
    cdef int64_t number, last = -2, count = 0
    cdef Entry entry
    for entry in entries:
        number = entry.id
        if number == last + 1:
            count += 1
        else:
            if count:
                found.append(count)
            found.append(entry.id)
            count = 1
        last = number
    if count:
        found.append(count)
    return found


def sort_out(dict jobs, ids, attempts):
    """(those that are held by this delivery, ids that are gone, ids that are lost). An id that is
    named twice counts once."""
    cdef list good = [], gone = [], lost = []
    cdef Entry entry
    cdef int64_t last = -1
    for number in ids:          # ids that rise are all different
        if number <= last:
            if len(set(ids)) < len(ids):
                ids, attempts = zip(*dict(zip(ids, attempts, strict=True)).items(), strict=True)
            break
        last = number
    for number, attempt in zip(ids, attempts, strict=True):
        found = jobs.get(number)
        if found is None:
            gone.append(number)
            continue
        entry = <Entry?> found
        if entry.state == HELD_ and entry.attempts == <int64_t> attempt:
            good.append(entry)
        else:
            lost.append(number)
    return good, gone, lost


def drop(dict jobs, list entries):
    """Held jobs are no more: ([(queue, jobs, bytes), ...], bytes that were in memory, bodies that
    were not, leases that hold nothing any more)."""
    cdef list groups = [], closed = []
    cdef int64_t count = 0, size = 0, memory = 0, spilled = 0
    cdef Entry entry
    cdef Lease lease
    queue = None
    for entry in entries:
        if entry.queue is not queue:
            if count:
                groups.append((queue, count, size))
            queue, count, size = entry.queue, 0, 0
        del jobs[entry.id]
        entry.state = GONE_
        count += 1
        size += entry.size
        if entry.body is None:
            spilled += 1
        else:
            memory += entry.size
            entry.body = None
        lease = entry.lease
        if lease is not None:
            entry.lease = None
            lease.open -= 1
            if not lease.open:
                closed.append(lease)
    if count:
        groups.append((queue, count, size))
    return groups, memory, spilled, closed


# -- a consumer ------------------------------------------------------------------------------------

cdef class JobFields:
    """The fields of job.Job."""

    cdef public object _queue, _headers, id, attempts, body
    cdef public double _until
    cdef public bint settled

    def __init__(self, queue, number, attempts, body, headers, double until):
        self._queue = queue
        self._headers = headers
        self._until = until
        self.id = number
        self.attempts = attempts
        self.body = body


def jobs_of(kind, queue, dict held, double until, ids, attempts, bodies, headers):
    """The jobs of an answer, which are `held` from now on, by id and attempt. TypeError,
    ValueError: it is none."""
    cdef list found = []
    cdef JobFields job
    if headers is None:
        headers = [None] * len(ids)
    for number, attempt, body, packed in zip(ids, attempts, bodies, headers, strict=True):
        job = JobFields.__new__(kind)
        job._queue = queue
        job._headers = packed
        job._until = until
        job.id = number
        job.attempts = attempt
        job.body = body
        found.append(job)
    end = until
    for job in found:
        held[job.id, job.attempts] = end
    return found


def settle(dict held, jobs):
    """They are settled, and held no longer."""
    cdef JobFields job
    for job in jobs:
        job.settled = True
        held.pop((job.id, job.attempts), None)


def handles(jobs):
    """(ids, attempts). TypeError for anything but a Job."""
    cdef list ids = [], attempts = []
    cdef JobFields job
    for job in jobs:
        if job is None:
            raise TypeError("None is no job")
        ids.append(job.id)
        attempts.append(job.attempts)
    return ids, attempts
