"""ContextCore: see contexts.pxd. It only tries, without waiting; mqcore/api/sp_contexts.py waits.

A context is a number in its pattern, passed with every call. Any thread may call.
"""

cimport cython
from libc.stdint cimport uint32_t

from mqcore.base.message cimport MsgVec
from mqcore.base.status cimport MQ_AGAIN, MQ_FULL, MQ_OK, MQ_OVER, MQ_STATE
from mqcore.binding.message cimport joined, message_new, parts_list, skip_envelope
from mqcore.binding.sending cimport give_vec, take_vec
from mqcore.sock.calls cimport (
    sock_abandon, sock_close_context, sock_open_context, sock_query_as, sock_subscribe,
)
from mqcore.sock.sock cimport sock_recv_as, sock_send
from mqcore.spi.pattern cimport op_current, op_refuse

import time

from mqcore.errors import OptionError, StateError, UsageError


class SurveyOver(Exception):
    """A survey was closed, or its deadline has passed."""


@cython.no_gc_clear  # __dealloc__ needs the socket
cdef class ContextCore:
    def __cinit__(self, SocketCore core not None, *args, **kwargs):
        cdef uint32_t number = 0
        cdef int rc
        self.core = core
        core.check()
        if core.s.ops.context == NULL:
            raise UsageError(f"a {core.plugin.name} socket has no contexts")
        with nogil:
            rc = sock_open_context(core.s, &number)
        if rc != MQ_OK:
            core.fail(rc, True)
        self.number.store(number)

    def __dealloc__(self):
        # let go of by a strategy's code, with a socket's lock held: it ends with its socket
        cdef uint32_t number = self.number.load()
        if number and not self.core.plane.forked and op_current() == NULL:
            sock_close_context(self.core.s, number)

    cdef uint32_t check(self) except 0:
        cdef uint32_t number = self.number.load()
        self.core.check()
        if number == 0:
            raise StateError("the context is closed", hint="open another: socket.new_context()")
        return number

    def _check(self):
        """Raise what a call would: SocketClosed, Forked, StateError if the context is closed."""
        self.check()

    @property
    def closed(self):
        """No call is possible any more: it was closed, or its socket was."""
        return self.number.load() == 0 or self.core.closed

    @property
    def _number(self):
        """What the pattern knows it by; 0: closed."""
        return self.number.load()

    def _close(self):
        """What is outstanding is given up. Idempotent."""
        cdef uint32_t number
        op_refuse()
        number = self.number.exchange(0)
        if number and not self.core.plane.forked:
            with nogil:
                sock_close_context(self.core.s, number)

    def _try_send(self, parts, bint single):
        """0: sent; else the Status that says why not now (1: no peer, 10: full)."""
        cdef MsgVec* v
        cdef uint32_t number = self.check()
        cdef int rc
        v = self.core._parts((parts,) if single else parts)
        try:
            v.at[0].peer = number
            with nogil:
                rc = sock_send(self.core.s, v.at, v.n)
            if rc == MQ_OK:
                v.n = 0
            elif rc != MQ_AGAIN and rc != MQ_FULL:
                self.check()  # another thread may have closed it
                self.core.fail(rc, True)
            return rc
        finally:
            give_vec(self.core, v)

    def _try_recv(self, int kind):
        """What the call would return, or None if it would wait. kind: 0 recv, 1 recv_parts,
        2 recv_msg."""
        return self.received(self.check(), kind, False)

    def _try_answer(self, int kind):
        """_try_recv() of a survey: SurveyOver when that is over or closed. A StateError would look
        like one that a signal handler raises."""
        cdef uint32_t number = self.number.load()
        self.core.check()
        if number == 0:
            raise SurveyOver
        return self.received(number, kind, True)

    cdef object received(self, uint32_t number, int kind, bint answer):
        cdef MsgVec* v
        cdef int rc
        v = take_vec(self.core)
        try:
            with nogil:
                rc = sock_recv_as(self.core.s, number, v)
            if rc == MQ_AGAIN:
                return None
            if answer and (rc == MQ_OVER or rc == MQ_STATE):
                self.core.check()
                raise SurveyOver
            if rc != MQ_OK:
                self.check()
                self.core.fail(rc, False)
            if kind == 0:
                return joined(v, skip_envelope(v, 0), v.n)
            if kind == 1:
                return parts_list(v, skip_envelope(v, 0), v.n)
            return message_new(self.core, v, 0, v.n, time.time())
        finally:
            give_vec(self.core, v)

    def _subscribe(self, bytes topic, int on):
        cdef uint32_t number = self.check()
        cdef int rc
        rc = sock_subscribe(self.core.s, number, <const unsigned char*> <char*> topic, len(topic),
                            on)
        if rc != MQ_OK:
            self.core.fail(rc, True)

    def _set_pattern_option(self, str name, value):
        """For what the pattern keeps for each context."""
        try:
            return self.core._set_pattern_option(name, value, self.check())
        except OptionError:
            self.check()      # another thread may have closed it
            raise

    def _abandon(self):
        sock_abandon(self.core.s, self.check())

    def _query(self, int what):
        return sock_query_as(self.core.s, self.check(), what)
