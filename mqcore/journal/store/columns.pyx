"""Many messages at once into a log: out of arrays, and out of what a reader gave.

What Python hands over is checked here, before any lock is taken: bytes, columns, times.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from libc.errno cimport EMSGSIZE, ENOMEM
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from mqcore.journal.store.block cimport VALUE_MAX
from mqcore.journal.store.gap cimport log_leap
from mqcore.journal.store.log cimport (
    DUPLICATE, Log, log_direct, log_header, log_headers_end, log_key, log_place,
    log_room, log_take, log_trim,
)
from mqcore.journal.store.nulls cimport log_null
from mqcore.journal.store.stamping cimport log_stamp

from mqcore.errors import UsageError

FARTHEST = 253402300800     # seconds: the year 10000
SECONDS = "a time is in seconds since the epoch, as of time.time() or datetime.timestamp()"
KEYLESS = 'a tombstone (None) says that its key has no value: give key=; an empty message is b""'
UNITS = ("give float seconds since the epoch, or datetime64; "
         "microseconds are times.view('datetime64[us]')")


# -- what Python gives -----------------------------------------------------------------------------

cdef int get_buffer(object value, Py_buffer* view) except -1:
    """The bytes of a message."""
    try:
        PyObject_GetBuffer(value, view, PyBUF_SIMPLE)
    except TypeError:
        raise refusal(value, "a message") from None
    except (BufferError, ValueError) as error:
        raise UsageError(f"a message must lie in one piece: {error}",
                         hint="copy a strided array with numpy.ascontiguousarray()") from None
    return 0


cdef object refusal(object value, str what):
    return UsageError(f"{what} is bytes-like, not {type(value).__name__}",
                      hint="say text.encode()" if isinstance(value, str) else
                      "encode it first: str(value).encode(), struct.pack(), json.dumps().encode()")


cpdef bytes as_bytes(object value, str what="a message"):
    """A copy of what is bytes-like; UsageError."""
    cdef Py_buffer view
    if PyBytes_CheckExact(value):
        return value
    if isinstance(value, (str, int)):
        raise refusal(value, what)
    get_buffer(value, &view)
    try:
        return PyBytes_FromStringAndSize(<const char*> view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cpdef bytes nothing(object key):
    """The bytes of a tombstone. UsageError: it has no key."""
    if key is None:
        raise UsageError("a value of None without a key means nothing", hint=KEYLESS)
    return b""


cdef tuple extras_of(object key, object headers):
    """(key or None, [(name, value), ...]) as bytes; None: neither."""
    pairs = []
    if headers:
        if isinstance(headers, dict):
            headers = headers.items()
        try:
            pairs = [(name.encode() if isinstance(name, str) else None, value)
                     for name, value in headers]
        except (TypeError, ValueError):
            raise UsageError("headers are pairs of a name and a value",
                             hint='say headers=[("type", b"order")]') from None
        if any(name is None for name, _ in pairs):
            raise UsageError("the name of a header is a str")
        pairs = [(name, as_bytes(value, "the value of a header")) for name, value in pairs]
    return (None if key is None else as_bytes(key, "a key"), pairs)


cdef list many_of(object messages, object keys, list values, list nulls):
    """Of append_many(): fills values, bytes. What is returned has the extras of each, and then
    nulls has whether it is a tombstone. None: there are neither."""
    cdef list extras = None
    if isinstance(messages, (str, bytes, bytearray, memoryview)):
        raise UsageError("append_many takes a sequence of messages",
                         hint="append() takes one message")
    try:
        messages = iter(messages)
    except TypeError:
        raise UsageError(f"append_many takes a sequence of messages, not "
                         f"{type(messages).__name__}") from None
    if keys is None:
        for value in messages:
            values.append(value if PyBytes_CheckExact(value) else
                          nothing(None) if value is None else as_bytes(value))
        return None
    if isinstance(keys, (str, bytes, bytearray, memoryview)):
        raise UsageError("keys= is a sequence of keys, one for each message",
                         hint="for one key: keys=[key] * len(messages)")
    try:
        keys = list(keys)
    except TypeError:
        raise UsageError(f"keys= is a sequence of keys, not {type(keys).__name__}") from None
    messages = list(messages)
    if len(messages) != len(keys):
        raise UsageError(f"{len(keys)} keys for {len(messages)} messages",
                         hint="give None for a message without a key")
    extras = []
    for value, key in zip(messages, keys):
        values.append(nothing(key) if value is None else as_bytes(value))
        extras.append(extras_of(key, ()))
        nulls.append(value is None)
    return extras


cdef int64_t micros(object time) except? -1:
    """Seconds since the epoch as microseconds."""
    if isinstance(time, (str, bytes, bool)):
        raise UsageError(f"time={time!r}", hint=SECONDS)
    try:
        seconds = time if isinstance(time, int) else float(time)
        if not -FARTHEST < seconds < FARTHEST:      # neither is NaN
            raise ValueError
        return round(seconds * 1e6) if isinstance(seconds, float) else seconds * 1000000
    except (TypeError, ValueError):
        raise UsageError(f"time={time!r}", hint=SECONDS) from None


cdef object times_of(object times, int64_t n):
    """int64[n] of microseconds."""
    import numpy
    found = numpy.asarray(times)
    if found.shape != (n,):
        raise UsageError(f"times of the shape {found.shape} for {n} messages")
    if found.dtype.kind == "M":
        if numpy.isnat(found).any():
            raise UsageError("NaT is no time", hint=UNITS)
        ends = numpy.array([found.min(), found.max()] if n else [], found.dtype)
        ends = ends.astype("datetime64[s]").view(numpy.int64)       # rounded down
        if not ((ends >= -FARTHEST) & (ends < FARTHEST)).all():
            raise UsageError("times are beyond the year 9999", hint=UNITS)
        found = found.astype("datetime64[us]", copy=False).view(numpy.int64)
    elif found.dtype.kind == "f":
        if not (numpy.abs(found) < FARTHEST).all():
            raise UsageError("times are beyond the year 9999, or no numbers", hint=UNITS)
        found = numpy.rint(found.astype(numpy.float64) * 1e6).astype(numpy.int64)
    else:
        raise UsageError(f"times of the type {found.dtype} say no unit", hint=UNITS)
    return numpy.ascontiguousarray(found)


cdef object contiguous(object times):
    import numpy
    return numpy.ascontiguousarray(times, numpy.int64)


cdef object values_of(object data):
    """uint8[]"""
    import numpy
    if isinstance(data, (str, int)):
        raise refusal(data, "data")
    try:
        view = memoryview(data)
    except TypeError:
        raise refusal(data, "data") from None
    if view.itemsize != 1 or not view.c_contiguous:
        raise UsageError("data is bytes, or an array of bytes, in one piece",
                         hint="say array.tobytes(), and offsets in bytes")
    return numpy.frombuffer(view, numpy.uint8) if view.nbytes else numpy.empty(0, numpy.uint8)


cdef object ends_of(object offsets):
    """int64[]"""
    import numpy
    found = numpy.asarray(offsets)
    if found.ndim != 1 or found.dtype.kind not in "iu" and found.shape[0]:
        raise UsageError(f"offsets are whole numbers, not {found.ndim} dimensions of "
                         f"{found.dtype}", hint="n messages have n + 1 offsets")
    return numpy.ascontiguousarray(found, numpy.int64)


cdef int check_ends(const int64_t[::1] ends, int64_t size) except -1:
    """Offsets begin and end within so many bytes, and ascend."""
    cdef int64_t i
    cdef bint wrong
    if ends.shape[0] < 1:
        raise UsageError("offsets have no element", hint="n messages have n + 1 offsets")
    wrong = ends[0] < 0 or ends[ends.shape[0] - 1] > size
    for i in range(ends.shape[0] - 1):
        wrong |= ends[i + 1] < ends[i]
    if wrong:
        raise UsageError(f"offsets do not ascend within the {size} bytes of data")
    return 0


cdef int put_extras(Log* log, tuple extras, bint null) except? 5:
    cdef int rc = 0
    key, headers = extras
    if null:
        rc = log_null(log)
    if rc == 0 and key is not None:
        rc = log_key(log, <const uint8_t*> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
    if rc == 0 and headers:
        for name, value in headers:
            if rc == 0:
                rc = log_header(
                    log, <const uint8_t*> PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name),
                    <const uint8_t*> PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
        if rc == 0:
            rc = log_headers_end(log)
    return rc


# -- arrays ----------------------------------------------------------------------------------------

cdef int add_each(Log* log, const uint8_t* values, const int64_t* ends, int64_t n,
                  const int64_t* times, int64_t now, const uint8_t* keys, const int64_t* key_ends,
                  int64_t* taken) noexcept nogil:
    cdef int64_t i
    cdef size_t size
    cdef int rc
    for i in range(n):
        size = ends[i + 1] - ends[i]
        rc = log_room(log, size)
        if rc:
            return rc
        if size:
            memcpy(log_place(log), values + ends[i], size)
        if keys != NULL:
            rc = log_key(log, keys + key_ends[i], key_ends[i + 1] - key_ends[i])
            if rc:
                log_trim(log)
                return rc
        rc = log_take(log, size, now if times == NULL else times[i])
        if rc and rc != DUPLICATE:
            return rc
        taken[0] += 1
    return 0


cdef int add_blocks(Log* log, const uint8_t* values, const int64_t* ends, int64_t n,
                    const int64_t* times, int64_t now, int64_t* taken) noexcept nogil:
    """A block after the other, each as many messages as fit; one alone if it is larger."""
    cdef size_t most = log.block_bytes // 12 + 2
    cdef int32_t* rebased = <int32_t*> malloc(4 * (most + 1))
    cdef int64_t i = 0, k, base
    cdef int rc = 0
    if rebased == NULL:
        return ENOMEM
    while i < n and rc == 0:
        base = ends[i]
        k = 0
        rebased[0] = 0
        while i + k < n and (k == 0 or ends[i + k + 1] - base + 12 * (k + 1)
                             <= <int64_t> log.block_bytes):
            if ends[i + k + 1] - base > VALUE_MAX - 64:
                rc = EMSGSIZE
                break
            k += 1
            rebased[k] = <int32_t> (ends[i + k] - base)
        if rc == 0:
            rc = log_direct(log, values + base, rebased, times, <uint32_t> k, now)
        if rc == 0:
            i += k
            if times != NULL:
                times += k
            taken[0] = i
    free(rebased)
    return rc


# -- records of a reader ---------------------------------------------------------------------------

cdef list rows_of(dict columns, int64_t lo, int64_t hi, object offsets, Rows* rows):
    """Fills rows; what is returned keeps its pointers valid."""
    import numpy
    cdef const void** places[16]
    cdef int i
    cdef size_t address
    hold = [offsets]
    rows.at = lo
    rows.end = hi
    rows.offsets = NULL
    if offsets is not None:
        address = offsets.ctypes.data
        rows.offsets = <const int64_t*> address
    places[0] = <const void**> &rows.times
    for i in range(16):
        places[i] = places[0] + i
    for i, name in enumerate(("times", "value_ends", "value_valid", "values", "key_ends",
                              "key_valid", "keys", "header_ends", "name_ends", "names",
                              "datum_ends", "data", "producers", "sequences", "sent", "lives")):
        column = columns.get(name)
        if column is None:
            places[i][0] = NULL
        else:
            hold.append(numpy.ascontiguousarray(column))
            address = hold[len(hold) - 1].ctypes.data
            places[i][0] = <const void*> address
    return hold


cdef int add_row(Log* log, Rows* r) noexcept nogil:
    """0, or why the row has not been taken."""
    cdef int64_t i = r.at
    cdef int32_t k
    cdef bint null = r.value_valid != NULL and not r.value_valid[i // 8] >> (i % 8) & 1
    cdef size_t size = 0 if null else r.ends[i + 1] - r.ends[i]
    cdef int rc = log_room(log, size)
    if rc:
        return rc
    if size:
        memcpy(log_place(log), r.values + r.ends[i], size)
    if null:
        rc = log_null(log)
    if rc == 0 and r.key_ends != NULL and r.key_valid[i // 8] >> (i % 8) & 1:
        rc = log_key(log, r.keys + r.key_ends[i], r.key_ends[i + 1] - r.key_ends[i])
    if rc == 0 and r.header_ends != NULL and r.header_ends[i + 1] > r.header_ends[i]:
        for k in range(r.header_ends[i], r.header_ends[i + 1]):
            if rc == 0:
                rc = log_header(log, r.names + r.name_ends[k], r.name_ends[k + 1] - r.name_ends[k],
                                r.data + r.datum_ends[k], r.datum_ends[k + 1] - r.datum_ends[k])
        if rc == 0:
            rc = log_headers_end(log)
    if rc == 0 and r.producers != NULL:
        rc = log_stamp(log, r.producers[i], r.sequences[i], r.sent[i],
                       0 if r.lives == NULL else r.lives[i])
    if rc:
        log_trim(log)
        return rc
    return log_take(log, size, r.times[i])


cdef int add_rows(Log* log, Rows* r, int64_t* taken) noexcept nogil:
    cdef int rc = 0
    while r.at < r.end:
        if r.offsets != NULL:
            if r.offsets[0] > log.next:
                rc = log_leap(log, r.offsets[0])
            r.offsets += 1
        rc = rc or add_row(log, r)
        if rc and rc != DUPLICATE:
            return rc
        rc = 0
        r.at += 1
        taken[0] += 1
    return 0
