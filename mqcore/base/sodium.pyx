"""libsodium at run time: see sodium.pxd."""

from libc.stdint cimport uint8_t, uint32_t
from libcpp.atomic cimport atomic
from posix.dlfcn cimport RTLD_LOCAL, RTLD_NOW, dlopen, dlsym

from mqcore.base.includes cimport explicit_bzero

from mqcore.base.native import threading

cdef enum:
    CALLS = 12

ctypedef const char* Name

# First what this module is linked with: wheels are, with a libsodium of their own. A new major
# number is a new ABI in name only: every call below has kept its meaning since 1.0.
LINKED = b""
LIBRARIES = (LINKED, b"libsodium.so.26", b"libsodium.so.23", b"libsodium.so.18", b"libsodium.so",
             b"libsodium.dylib")

cdef Name[CALLS] NAMES = [
    "sodium_init", "sodium_version_string", "randombytes_buf", "crypto_box_keypair",
    "crypto_scalarmult_base", "crypto_box_beforenm", "crypto_box_easy_afternm",
    "crypto_box_open_easy_afternm", "crypto_box_detached_afternm",
    "crypto_box_open_detached_afternm", "crypto_aead_chacha20poly1305_ietf_encrypt",
    "crypto_aead_chacha20poly1305_ietf_decrypt",
]
cdef Sodium _table            # in the order of NAMES
cdef atomic[uint32_t] _found   # set once the table is whole; under the lock
_looking = threading.Lock()


cdef const Sodium* sodium() noexcept nogil:
    return &_table if _found.load() else NULL


cdef bint _fill(const char* library) noexcept nogil:
    """All calls of one library, or none."""
    cdef void* found[CALLS]
    cdef void* handle = NULL  # RTLD_DEFAULT: what is loaded with this module
    cdef void** table = <void**> &_table
    cdef int i
    if library[0]:
        handle = dlopen(library, RTLD_NOW | RTLD_LOCAL)
        if handle == NULL:
            return False
    for i in range(CALLS):
        found[i] = dlsym(handle, NAMES[i])
        if found[i] == NULL:
            return False
    for i in range(CALLS):
        table[i] = found[i]
    return _table.init() >= 0


def sodium_ready() -> str:
    """The version of libsodium, "" if this system has none. Looks for it until it is found."""
    with _looking:
        for library in LIBRARIES if not _found.load() else ():
            if _fill(library):
                _found.store(1)
                break
    return _table.version().decode() if _found.load() else ""


def keypair() -> tuple:
    """A new key pair: (public, secret), 32 bytes each, the secret as a bytearray that the caller
    clears. After sodium_ready()."""
    cdef uint8_t[32] public
    cdef uint8_t[32] secret
    _table.keypair(public, secret)
    pair = (<char*> public)[:KEY], bytearray((<char*> secret)[:KEY])
    explicit_bzero(secret, KEY)
    return pair


def public_of(const uint8_t[::1] secret not None) -> bytes:
    """The public key that belongs to a secret one of 32 bytes. After sodium_ready()."""
    cdef uint8_t[32] public
    if secret.shape[0] != KEY:
        raise ValueError("a secret key has 32 bytes")
    _table.base(public, &secret[0])
    return (<char*> public)[:KEY]
