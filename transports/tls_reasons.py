"""What went wrong in TLS, in words: which certificate, whose, and what to do about it.

OpenSSL has three voices: it could not verify the peer's certificate (X509_V_ERR_* codes), the peer
could not go on and sent an alert (RFC 8446, section 6.2), or the peer's bytes break the protocol.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple


class Side(NamedTuple):
    """Who speaks. `peer` is "server" or "client", `hostname` the name that we asked for."""

    peer: str
    hostname: str
    trusts: str  # where the certificates that we trust come from, in words


# -- the peer's certificate does not hold ----------------------------------------------------------

#: X509_V_ERR_*: text
VERIFY = {
    9: "the {peer}'s certificate is not valid yet: compare the clocks of both machines",
    10: "the {peer}'s certificate, or that of its CA, has expired: renew it at the {peer}",
    18: "the {peer}'s certificate is self-signed and not among those we trust ({trusts}): put it "
        "into the file of tls_ca, if it is genuine",
    19: "the {peer}'s certificate comes from a CA that we do not trust ({trusts}): put that CA's "
        "certificate into the file of tls_ca, if it is genuine",
    20: "the {peer}'s certificate comes from a CA that we do not trust ({trusts}): put that CA's "
        "certificate into the file of tls_ca; intermediate ones belong into the {peer}'s tls_cert",
    23: "the {peer}'s certificate has been revoked: it needs a new one",
    24: "the {peer}'s certificate is signed by one that is no CA",
    26: "the {peer}'s certificate is not made for a {peer} (extended key usage)",
    62: "the {peer}'s certificate is genuine, but not for {hostname!r}: connect by a name that is "
        "in it, or give that name as tls_hostname",
    64: "the {peer}'s certificate is genuine, but not for the address {hostname}: connect by a "
        "name or address that is in it, or give that name as tls_hostname",
}
VERIFY[21] = VERIFY[20]


# -- the peer sent an alert ------------------------------------------------------------------------

#: what stands behind "_ALERT_" in OpenSSL's reason: text
ALERTS = {
    "UNKNOWN_CA": "the {peer} does not trust the CA of our certificate: the {peer}'s tls_ca must "
                  "hold that CA's certificate",
    "CERTIFICATE_REQUIRED": "the {peer} wants a certificate from us: give tls_cert and tls_key",
    "HANDSHAKE_FAILURE": "the {peer} found no terms in common: it may want a certificate from us "
                         "(tls_cert, tls_key), or other ciphers",
    "BAD_CERTIFICATE": "the {peer} refuses our certificate: is it for the name that the {peer} "
                       "expects?",
    "CERTIFICATE_EXPIRED": "our certificate, or that of its CA, has expired: renew the file of "
                           "tls_cert",
    "CERTIFICATE_REVOKED": "our certificate has been revoked: renew the file of tls_cert",
    "CERTIFICATE_UNKNOWN": "the {peer} refuses our certificate and does not say why",
    "UNSUPPORTED_CERTIFICATE": "our certificate is not made for our role (extended key usage), "
                               "says the {peer}",
    "PROTOCOL_VERSION": "the {peer} speaks none of the TLS versions that we do (1.2 and up), or no "
                        "TLS at all",
    "INSUFFICIENT_SECURITY": "the {peer} wants stronger ciphers than we have",
    "UNRECOGNIZED_NAME": "the {peer} has no certificate for {hostname!r}",
    "NO_APPLICATION_PROTOCOL": "the {peer} wants another application protocol (ALPN)",
    "UNEXPECTED_MESSAGE": "the {peer} found our bytes out of turn: does it speak TLS here?",
    "BAD_RECORD_MAC": "the {peer} found a record of ours damaged on the way",
    "USER_CANCELLED": "the {peer} gave up",
}

# -- the peer breaks the protocol ------------------------------------------------------------------

FAULTS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client showed no certificate: it needs tls_cert and "
                                         "tls_key",
    "NO_SHARED_CIPHER": "the client has no cipher in common with us that fits our certificate",
    "NO_SHARED_GROUP": "the {peer} has no key exchange in common with us",
    "UNSUPPORTED_PROTOCOL": "the {peer} speaks only TLS versions that are older than ours (1.2 and "
                            "up)",
    "VERSION_TOO_LOW": "the {peer} speaks only TLS versions that are older than ours (1.2 and up)",
    "WRONG_VERSION_NUMBER": "what the {peer} sends is no TLS",
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": "a record of the {peer} is forged or was damaged on the "
                                           "way",
    "NO_RENEGOTIATION": "the {peer} wants to renegotiate, which is never done",
}


def reason(error: ssl.SSLError, side: Side) -> str:
    """Why the connection cannot go on."""
    words = side._asdict()
    if isinstance(error, ssl.SSLCertVerificationError):
        text = VERIFY.get(error.verify_code)
        if text is None:
            text = "the {peer}'s certificate does not hold: " + error.verify_message
        return text.format(**words)
    name = error.reason or ""
    alert = name.partition("_ALERT_")[2] or name.removeprefix("TLSV1_")
    if alert in ALERTS:
        return ALERTS[alert].format(**words)
    if name in FAULTS:
        return FAULTS[name].format(**words)
    if "_ALERT_" in name:
        return f"the {side.peer} broke off (TLS alert {alert.lower().replace('_', ' ')})"
    return f"the {side.peer}'s TLS is malformed ({(name or str(error)).lower().replace('_', ' ')})"
