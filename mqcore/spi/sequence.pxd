"""The numbers of one source's messages: what is missing, and which numbers are not believed.

Each message has the next number. What is between two numbers is lost, and what was delivered or
counted as lost does not count again. Networks without authentication carry forged numbers, too. So
a message whose number is far from the one that is due is discarded, until a second one follows it
(RFC 3550, appendix A.1). If the next message of the source does, the source has begun anew, or was
away for long: the discarded message is lost, with the gap. Else it counts as malformed. Nor is the
first number of all certain, before another one follows it.

A source whose messages arrive with more than `AHEAD` missing between any two is not heard.
"""

from libc.stdint cimport int64_t, uint64_t

cdef enum:
    AHEAD = 4096              # numbers that one message may skip
    BEHIND = 1 << 24          # that may come again: a reordered or repeated message is not older
    FAR = 1 << 30             # between two numbers: the source has begun anew, and nothing is lost

cdef struct Sequence:         # all 0: nothing is known of the source
    uint64_t first            # the number that it began with
    uint64_t due              # the next one
    uint64_t doubted          # the last one that was discarded
    int64_t doubts            # messages discarded, all near `doubted`
    bint takes                # whether `doubted` is a message's, or only the next message's
    bint known                # `first` and `due` are there
    bint sure                 # another number has followed `first`


cdef inline void sequence_begin(Sequence* s, uint64_t number) noexcept nogil:
    """A source that is not known begins with this number, whether its message arrives or not."""
    if not s.known:
        s.known = True
        s.first = s.due = number


cdef inline void sequence_doubt(Sequence* s, uint64_t number, bint takes,
                                int64_t* malformed) noexcept nogil:
    cdef int64_t since = <int64_t> (number - s.doubted)
    if s.doubts and not -AHEAD <= since <= AHEAD:
        malformed[0] += s.doubts
        s.doubts = 0
    s.doubts += 1
    s.doubted = number
    s.takes = takes


cdef inline int64_t sequence_gap(Sequence* s, uint64_t number, bint takes,
                                 int64_t* malformed) noexcept nogil:
    """How many messages in front of this one are lost; `due` is its number then. 0: it is due, and
    the caller adds 1 to `due` if it takes a number. Below 0: discard it. takes: whether this
    message has the number; else its next message has. Asked again about a number that it has not
    discarded, it returns 0."""
    cdef uint64_t since = number - s.doubted
    cdef int64_t gap
    sequence_begin(s, number)
    gap = <int64_t> (number - s.due)
    if -(BEHIND if s.sure else AHEAD) <= gap <= AHEAD:
        malformed[0] += s.doubts
        s.sure |= gap >= 0 and number != s.first
        s.due += <uint64_t> max(gap, <int64_t> 0)
    elif s.doubts and since - s.takes <= AHEAD:
        if not 0 < gap <= FAR:
            gap = <int64_t> since
        s.due = number
        s.sure = True
    else:
        sequence_doubt(s, number, takes, malformed)
        return -1
    s.doubts = 0
    return gap
