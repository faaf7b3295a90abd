"""Result codes of the data plane. Nothing below `sock/` raises; it returns one of these."""

cdef enum Status:
    MQ_OK = 0
    MQ_AGAIN = 1          # not now: no message, or every peer is full
    MQ_NO_PEER = 2        # the named peer is not connected
    MQ_STATE = 3          # the pattern does not allow this call now (REQ/REP order)
    MQ_UNSUPPORTED = 4    # this pattern never does that (send on PULL)
    MQ_INVALID = 5        # malformed argument (ROUTER message without an id)
    MQ_NOMEM = 6
    MQ_DROPPED = 7        # taken and counted as dropped; for the caller it is done
    MQ_GONE = 8           # the peer that owed us something has left
    MQ_CLOSED = 9
    MQ_FULL = 10          # MQ_AGAIN, and the reason is an HWM
    MQ_FAILED = 11        # the pattern's own Python code raised: nothing taken
    MQ_OVER = 12          # the survey's deadline has passed
    # decoders
    MQ_NEED_DATA = 16
    MQ_DONE = 17
    MQ_PROTOCOL = 18      # remote fault: drop the peer, `reason` says why
    # system
    MQ_EOF = 32
    MQ_ERRNO = 33
