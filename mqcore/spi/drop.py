"""Names of the reasons for which a message is dropped: `Drop` of pipe.pxd, same order, a closed
list."""

DROP_REASONS: tuple[tuple[str, str], ...] = (
    ("full", "the peer's high-water mark was reached and the pattern drops there; departed peers "
             "left more unread than the receive marks allow; udp: the kernel's buffer was full"),
    ("no_peer", "nobody to give it to, and the pattern does not wait"),
    ("peer_gone", "queued for a peer that left, and nobody else may have it"),
    ("half_written", "the connection broke in the middle of it"),
    ("closed", "our socket closed and its linger ended"),
    ("conflated", "a newer message replaced it"),
    ("late_answer", "an answer to a request or a survey that is over"),
    ("unexpected", "the pattern has no use for it (data sent to a PUSH or a PUB)"),
    ("malformed", "it lacks the envelope or the group that the pattern needs"),
    ("unsubscribed", "it arrived, but its topic is no longer wanted"),
    ("cancelled", "the sender withdrew it before it was written"),
    ("hop_limit", "it passed more devices than max_hops allows"),
    ("unsendable", "the transport can never carry it (larger than a datagram, say)"),
    ("untranslatable", "the peer's wire has no way to say it (an envelope of ZMTP over SP)"),
)
