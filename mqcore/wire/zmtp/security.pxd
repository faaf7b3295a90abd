"""What one endpoint demands of its peers and shows to them: ZMTP's mechanisms, as C.

A `Security` is read-only while a connection uses it; the object that it lies in outlives them all
(control/connection.py keeps it). Every secret is in memory of a `Secret`.
"""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t

cdef enum:                    # Security.mechanism
    PLAIN = 1
    CURVE = 2

cdef enum:
    PROOF_MAX = 255           # of a user's name, of a password

cdef struct Login:
    const uint8_t* user
    const uint8_t* password
    uint8_t user_size
    uint8_t password_size

cdef struct Security:
    int mechanism
    bint server               # it authenticates the peer; else it proves its own identity
    bint asks                 # the application authenticates: Codec.asking
    const Login* logins       # PLAIN: a client's own, or who may come
    size_t n_logins
    # CURVE, 32 bytes each
    const uint8_t* secret     # ours
    uint8_t[32] public        # ours
    uint8_t[32] server_key    # a client's: the server's public key
    const uint8_t* allowed    # n_allowed keys in order, one behind the other; NULL: any
    size_t n_allowed


cdef inline bint same_bytes(const uint8_t* a, const uint8_t* b, size_t n) noexcept nogil:
    """In a time that does not tell where they differ."""
    cdef volatile uint8_t differ = 0
    cdef size_t i
    for i in range(n):
        differ = differ | (a[i] ^ b[i])
    return differ == 0


cdef const char* mechanism_name(const Security* s) noexcept nogil     # NULL: "NULL"
# May this login, this key come in? Any thread.
cdef bint login_fits(const Security* s, const uint8_t* user, size_t user_size,
                     const uint8_t* password, size_t password_size) noexcept nogil
cdef bint key_fits(const Security* s, const uint8_t* key) noexcept nogil


cdef class NativeSecurity:
    """A `mqcore.security.Security` in this form."""
    cdef Security c
    cdef Login* logins
    cdef readonly object kept     # what the pointers point to
    cdef int plain(self, security) except -1
    cdef int curve(self, security) except -1
