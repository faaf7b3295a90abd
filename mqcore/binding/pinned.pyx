"""Buffers sent by reference, and when they may be written again."""

cimport cython

from mqcore.base.slab cimport pool_drain_released

from mqcore.base.native import time
from mqcore.base.renamed import renamed
from mqcore.base.waits import Released

from mqcore.errors import UsageError, WaitTimeout


@cython.no_gc_clear
cdef class Pin:
    """Lives as long as the data plane needs the buffer; its end is what Pinned waits for."""
    def __dealloc__(self):
        if self.token is not None:
            self.token[0] = True


_FORMER = renamed(wait="wait_done", await_="await_done")


cdef class Pinned:
    """What send_ref() returns: `done` once the buffer may be written again."""
    @property
    def done(self) -> bool:
        if not self.token[0] and self.core.plane.plane.pool.released.load() != NULL:
            pool_drain_released(self.core.plane.plane.pool)
        return self.token[0]

    def __getattr__(self, name):
        return _FORMER(self, name)

    def wait_done(self, timeout=None):
        """Until done; WaitTimeout."""
        limit = None if timeout is None else time.monotonic() + timeout
        pause = 0.0001
        while not self.done:
            if limit is not None and time.monotonic() >= limit:
                raise WaitTimeout(f"the buffer is still in use after {timeout:g} s")
            with Released():
                time.sleep(pause)
            pause = min(pause * 2, 0.01)

    async def await_done(self, timeout=None):
        """wait_done(), awaitable."""
        from mqcore.binding.sleep import sleep
        from mqcore.binding.yielding import fair

        limit = None if timeout is None else time.monotonic() + timeout
        pause = 0.0001
        await fair()
        while not self.done:
            if limit is not None and time.monotonic() >= limit:
                raise WaitTimeout(f"the buffer is still in use after {timeout:g} s")
            await sleep(pause)
            pause = min(pause * 2, 0.01)

    def __repr__(self):
        return f"<Pinned {'done' if self.done else 'in use'}>"


cdef tuple pinned_new(SocketHandle core, object data):
    cdef Pinned pinned = Pinned.__new__(Pinned)
    cdef Pin pin = Pin.__new__(Pin)
    try:
        view = memoryview(data)
    except TypeError:
        raise UsageError(f"send_ref() takes a buffer, not {type(data).__name__}",
                         hint="give bytes, a bytearray, or an array") from None
    pin.view = view.cast("B") if view.nbytes else memoryview(b"")
    pin.token = pinned.token = [False]
    pinned.core = core
    return pinned, pin
