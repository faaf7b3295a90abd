"""The mechanisms' configuration: see security.pxd."""

from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from mqcore.base.secret cimport Secret
from mqcore.base.sodium import public_of

from mqcore.security import Curve, Null, Plain


cdef const char* mechanism_name(const Security* s) noexcept nogil:
    if s == NULL or s.mechanism == 0:
        return "NULL"
    return "PLAIN" if s.mechanism == PLAIN else "CURVE"


cdef bint login_fits(const Security* s, const uint8_t* user, size_t user_size,
                     const uint8_t* password, size_t password_size) noexcept nogil:
    """Every row is looked at, so that the time tells neither who is in the table nor where."""
    cdef bint fits = False
    cdef size_t i
    cdef const Login* row
    for i in range(s.n_logins):
        row = &s.logins[i]
        if row.user_size == user_size and row.password_size == password_size:
            fits |= (same_bytes(row.user, user, user_size)
                     & same_bytes(row.password, password, password_size))
    return fits


cdef bint key_fits(const Security* s, const uint8_t* key) noexcept nogil:
    """Public keys are no secret: a search may stop early."""
    cdef size_t low = 0
    cdef size_t high = s.n_allowed
    cdef size_t middle
    cdef int order
    if s.allowed == NULL:
        return True
    while low < high:
        middle = (low + high) // 2
        order = memcmp(s.allowed + 32 * middle, key, 32)
        if order == 0:
            return True
        if order < 0:
            low = middle + 1
        else:
            high = middle
    return False


cdef class NativeSecurity:
    def __cinit__(self, security not None):
        self.kept = []
        self.c.server = security.server
        self.c.asks = security.allow is not None
        if isinstance(security, Plain):
            self.c.mechanism = PLAIN
            self.plain(security)
        elif isinstance(security, Curve):
            self.c.mechanism = CURVE
            self.curve(security)
        elif not isinstance(security, Null):
            raise TypeError(f"no mechanism: {security!r}")

    def __dealloc__(self):
        free(self.logins)

    cdef int plain(self, security) except -1:
        """The rows of the table, in the memory of the secret that they are packed in."""
        cdef Secret packed = security.logins
        cdef uint8_t* end = packed.at + packed.size
        cdef uint8_t* at = packed.at
        cdef Login* row
        self.kept.append(packed)
        self.logins = <Login*> calloc(packed.size // 2 + 1, sizeof(Login))
        if self.logins == NULL:
            raise MemoryError
        self.c.logins = self.logins
        while at < end:
            row = &self.logins[self.c.n_logins]
            row.user_size = at[0]
            row.user = at + 1
            at += 1 + row.user_size
            row.password_size = at[0]
            row.password = at + 1
            at += 1 + row.password_size
            self.c.n_logins += 1
        return 0

    cdef int curve(self, security) except -1:
        cdef Secret secret = security.secret
        cdef bytes public = public_of(secret)
        cdef bytes keys
        self.kept.append(secret)
        self.c.secret = secret.at
        memcpy(self.c.public, <const uint8_t*> public, 32)
        if not security.server:
            memcpy(self.c.server_key, <const uint8_t*> <bytes> security.server_key, 32)
        elif security.keys is not None:
            keys = b"".join(sorted(security.keys))
            self.kept.append(keys)
            self.c.allowed = <const uint8_t*> keys
            self.c.n_allowed = len(keys) // 32
        return 0


def native(security) -> NativeSecurity | None:
    """The same for C, made once. None: NULL."""
    if security is None or not security.demands:
        return None
    if security._native is None:
        security._native = NativeSecurity(security)
    return security._native
