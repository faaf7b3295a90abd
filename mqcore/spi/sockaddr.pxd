"""Addresses of datagrams as text and back: 192.0.2.1:5555, [2001:db8::1]:5555, and with the number
of an interface [fe80::1%2]:5555. No names, so that nothing is looked up."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memset, strchr, strncmp

cdef extern from "<arpa/inet.h>" nogil:
    ctypedef unsigned int socklen_t
    cdef struct in_addr:
        pass
    cdef struct in6_addr:
        pass
    cdef struct sockaddr_in:
        uint16_t sin_family
        uint16_t sin_port
        in_addr sin_addr
    cdef struct sockaddr_in6:
        uint16_t sin6_family
        uint16_t sin6_port
        in6_addr sin6_addr
        uint32_t sin6_scope_id
    int AF_INET, AF_INET6
    uint16_t htons(uint16_t n)
    uint16_t ntohs(uint16_t n)
    int inet_pton(int family, const char* text, void* address)
    const char* inet_ntop(int family, const void* address, char* text, socklen_t size)

cdef enum:
    SOCKADDR_TEXT = 80        # space for the longest text

cdef union AnySockaddr:
    sockaddr_in four
    sockaddr_in6 six

cdef struct Sockaddr:
    AnySockaddr at
    socklen_t size            # of what is in it


cdef inline bint _number(const uint8_t* text, size_t n, uint32_t most,
                         uint32_t* out) noexcept nogil:
    cdef size_t i
    out[0] = 0
    for i in range(n):
        if not 48 <= text[i] <= 57:
            return False
        out[0] = out[0] * 10 + text[i] - 48
    return 0 < n <= 9 and out[0] <= most


cdef inline size_t _last(const uint8_t* text, size_t n, uint8_t what) noexcept nogil:
    """Where it is; n: nowhere."""
    cdef size_t i = n
    while i:
        i -= 1
        if text[i] == what:
            return i
    return n


cdef inline bint sockaddr_parse(Sockaddr* to, const uint8_t* text, size_t n) noexcept nogil:
    """False: it is none. A zero byte at the end is libzmq's way to give them."""
    cdef char[SOCKADDR_TEXT] host
    cdef size_t colon, percent
    cdef uint32_t port, scope = 0
    memset(to, 0, sizeof(Sockaddr))
    if n and text[n - 1] == 0:
        n -= 1
    colon = _last(text, n, 58)
    if colon == n or not _number(text + colon + 1, n - colon - 1, 65535, &port) or port == 0:
        return False
    n = colon
    if n > 2 and text[0] == 91 and text[n - 1] == 93:   # in brackets: IPv6
        text += 1
        n -= 2
        percent = _last(text, n, 37)
        if percent < n:
            if not _number(text + percent + 1, n - percent - 1, 0x7fffffff, &scope):
                return False
            n = percent
        to.at.six.sin6_family = AF_INET6
        to.at.six.sin6_port = htons(<uint16_t> port)
        to.at.six.sin6_scope_id = scope
        to.size = sizeof(sockaddr_in6)
    else:
        to.at.four.sin_family = AF_INET
        to.at.four.sin_port = htons(<uint16_t> port)
        to.size = sizeof(sockaddr_in)
    if n >= SOCKADDR_TEXT or _last(text, n, 0) < n:
        return False
    memcpy(host, text, n)
    host[n] = 0
    if to.size == sizeof(sockaddr_in6):
        return inet_pton(AF_INET6, host, &to.at.six.sin6_addr) == 1
    return inet_pton(AF_INET, host, &to.at.four.sin_addr) == 1


cdef inline size_t sockaddr_text(const Sockaddr* at, char* text) noexcept nogil:
    """Its length; 0: of another family."""
    cdef char[SOCKADDR_TEXT] host
    if at.at.four.sin_family == AF_INET:
        inet_ntop(AF_INET, &at.at.four.sin_addr, host, SOCKADDR_TEXT)
        return snprintf(text, SOCKADDR_TEXT, b"%s:%u", host, <unsigned> ntohs(at.at.four.sin_port))
    if at.at.six.sin6_family != AF_INET6:
        return 0
    inet_ntop(AF_INET6, &at.at.six.sin6_addr, host, SOCKADDR_TEXT)
    if strncmp(host, b"::ffff:", 7) == 0 and strchr(host, 46) != NULL:
        # from an IPv4 peer, to a socket of both families
        return snprintf(text, SOCKADDR_TEXT, b"%s:%u", host + 7,
                        <unsigned> ntohs(at.at.six.sin6_port))
    if at.at.six.sin6_scope_id:
        return snprintf(text, SOCKADDR_TEXT, b"[%s%%%u]:%u", host, at.at.six.sin6_scope_id,
                        <unsigned> ntohs(at.at.six.sin6_port))
    return snprintf(text, SOCKADDR_TEXT, b"[%s]:%u", host, <unsigned> ntohs(at.at.six.sin6_port))
