"""What RADIO and DISH agree on. A group is any bytes, so many at most: in a datagram its length is
one byte. It lies in front of the body as a part of its own."""

cdef enum:
    GROUP_MAX = 255
