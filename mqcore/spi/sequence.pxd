"""The numbers of one source's messages: what is missing, and which numbers are not believed.

Each message has the next number. What is between two numbers is lost, and what was delivered or
counted as lost does not count again. Networks without authentication carry forged numbers, too. So
a number that is far from the one that is due waits for a second one that follows it (RFC 3550,
appendix A.1). Until then the due number stays, and the message is discarded. If the next message of
the source follows the discarded one, the source has begun anew, or was away for long: the gap is
lost, with the discarded message. Else the discarded one counts as malformed.
"""

from libc.stdint cimport int64_t, uint64_t

cdef enum:
    AHEAD = 4096              # numbers that one message may skip
    BEHIND = 1 << 24          # that may come again: a reordered or repeated message is not older
    FAR = 1 << 30             # between two numbers: the source has begun anew, and nothing is lost

cdef struct Sequence:         # all 0: nothing is known of the source
    uint64_t due              # the next number
    uint64_t follows          # the number after the one that is doubted
    bint known                # `due` is one
    bint doubts               # `follows` is one


cdef inline void sequence_begin(Sequence* s, uint64_t number) noexcept nogil:
    """A source that is not known begins with this number, whether its message arrives or not."""
    if not s.known:
        s.known = True
        s.due = number


cdef inline int64_t sequence_gap(Sequence* s, uint64_t number, bint takes,
                                 int64_t* malformed) noexcept nogil:
    """How many messages in front of this one are lost; `due` is its number then. 0: it is due, and
    the caller adds 1 to `due` if it takes a number. Below 0: discard it. takes: whether this
    message has the number; else its next message has. Asked again about a number that it has not
    discarded, it returns 0."""
    cdef bint follows = s.doubts and number - s.follows <= AHEAD
    cdef int64_t gap
    sequence_begin(s, number)
    gap = <int64_t> (number - s.due)
    if not -BEHIND <= gap <= AHEAD:
        if not follows:
            malformed[0] += s.doubts
            s.doubts = True
            s.follows = number + takes
            return -1
        if not 0 < gap <= FAR:
            gap = 0
        s.due = number
    else:
        malformed[0] += s.doubts
        s.due += <uint64_t> max(gap, <int64_t> 0)
    s.doubts = False
    return gap
