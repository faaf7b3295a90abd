"""The names of the reasons for dropping a message: a closed list, in the order of `Drop` in
pipe.pxd."""

DROP_REASONS: tuple[tuple[str, str], ...] = (
    ("full", "the peer's high-water mark was reached and the pattern drops there; disconnected "
             "peers left a sub, xsub, dish or bus more unread than its receive high-water marks "
             "allow; udp: the kernel's buffer was full"),
    ("no_peer", "there is no peer to send it to, and the pattern does not wait"),
    ("peer_gone", "queued for a peer that disconnected, and no other peer may get it"),
    ("half_written", "the connection broke in the middle of the message"),
    ("closed", "our socket closed and its linger ended"),
    ("conflated", "a newer message replaced it"),
    ("late_answer", "a reply to a request or a survey that is over"),
    ("unexpected", "the pattern does not handle it: data sent to a PUSH or a PUB, or by a refused "
                   "peer"),
    ("malformed", "it lacks the envelope or the group that the pattern needs"),
    ("unsubscribed", "it arrived, but its topic is no longer subscribed"),
    ("cancelled", "the sender withdrew it before it was written"),
    ("hop_limit", "it passed more devices than max_hops allows"),
    ("unsendable", "the transport can never carry it (such as one larger than a datagram)"),
    ("untranslatable", "the peer's protocol cannot represent it (an envelope of ZMTP over SP)"),
)
