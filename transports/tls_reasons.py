"""TLS errors in plain words: which certificate, whose, and what to do about it.

OpenSSL reports three kinds of errors: the peer's certificate cannot be verified (X509_V_ERR_*
codes), the peer sent an alert (RFC 8446, section 6.2), or the peer violates the protocol.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple


class Side(NamedTuple):
    """The side that reports. `peer` is "server" or "client", `hostname` the name we asked for."""

    peer: str
    hostname: str
    trusts: str  # the source of the trusted certificates, as text


# -- the peer's certificate cannot be verified -----------------------------------------------------

#: X509_V_ERR_*: text
VERIFY = {
    9: "the {peer}'s certificate is not valid yet: compare the clocks of both machines",
    10: "the {peer}'s certificate, or that of its CA, has expired: renew it at the {peer}",
    18: "the {peer}'s certificate is self-signed and not trusted ({trusts}): add it "
        "to the file of tls_ca, if it is genuine",
    19: "the {peer}'s certificate comes from an untrusted CA ({trusts}): add that CA's "
        "certificate to the file of tls_ca, if it is genuine",
    20: "the {peer}'s certificate comes from an untrusted CA ({trusts}): add that CA's "
        "certificate to the file of tls_ca; intermediate ones belong in the {peer}'s tls_cert",
    23: "the {peer}'s certificate has been revoked: it needs a new one",
    24: "the {peer}'s certificate is signed by a certificate that is not a CA",
    26: "the {peer}'s certificate is not issued for a {peer} (extended key usage)",
    62: "the {peer}'s certificate is genuine, but not for {hostname!r}: connect by a name that is "
        "in it, or set tls_hostname to such a name",
    64: "the {peer}'s certificate is genuine, but not for the address {hostname}: connect by a "
        "name or address that is in it, or set tls_hostname to such a name",
}
VERIFY[21] = VERIFY[20]


# -- the peer sent an alert ------------------------------------------------------------------------

#: the part after "_ALERT_" in OpenSSL's reason: text
ALERTS = {
    "UNKNOWN_CA": "the {peer} does not trust the CA of our certificate: the {peer}'s tls_ca must "
                  "hold that CA's certificate",
    "CERTIFICATE_REQUIRED": "the {peer} requires a certificate from us: set tls_cert and tls_key",
    "HANDSHAKE_FAILURE": "the {peer} shares no parameters with us: it may require a certificate "
                         "(tls_cert, tls_key), or other ciphers",
    "BAD_CERTIFICATE": "the {peer} refuses our certificate: is it for the name that the {peer} "
                       "expects?",
    "CERTIFICATE_EXPIRED": "our certificate, or that of its CA, has expired: renew the file of "
                           "tls_cert",
    "CERTIFICATE_REVOKED": "our certificate has been revoked: renew the file of tls_cert",
    "CERTIFICATE_UNKNOWN": "the {peer} refuses our certificate without a reason",
    "UNSUPPORTED_CERTIFICATE": "our certificate is not issued for our role (extended key usage), "
                               "says the {peer}",
    "PROTOCOL_VERSION": "the {peer} supports none of our TLS versions (1.2 and up), or no "
                        "TLS at all",
    "INSUFFICIENT_SECURITY": "the {peer} requires stronger ciphers than we have",
    "UNRECOGNIZED_NAME": "the {peer} has no certificate for {hostname!r}",
    "NO_APPLICATION_PROTOCOL": "the {peer} requires another application protocol (ALPN)",
    "UNEXPECTED_MESSAGE": "the {peer} did not expect our message: does it speak TLS here?",
    "BAD_RECORD_MAC": "the {peer} received a damaged record from us",
    "USER_CANCELLED": "the {peer} canceled the handshake",
}

# -- the peer violates the protocol ----------------------------------------------------------------

FAULTS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client showed no certificate: it needs tls_cert and "
                                         "tls_key",
    "NO_SHARED_CIPHER": "the client has no cipher in common with us that fits our certificate",
    "NO_SHARED_GROUP": "the {peer} has no key exchange in common with us",
    "UNSUPPORTED_PROTOCOL": "the {peer} only supports TLS versions older than ours (1.2 and "
                            "up)",
    "VERSION_TOO_LOW": "the {peer} only supports TLS versions older than ours (1.2 and up)",
    "WRONG_VERSION_NUMBER": "the {peer} does not send TLS",
    "DECRYPTION_FAILED_OR_BAD_RECORD_MAC": "a record of the {peer} is forged or was damaged on the "
                                           "way",
    "NO_RENEGOTIATION": "the {peer} tried to renegotiate, which is not supported",
}


def reason(error: ssl.SSLError, side: Side) -> str:
    """The reason why the connection cannot continue."""
    words = side._asdict()
    if isinstance(error, ssl.SSLCertVerificationError):
        text = VERIFY.get(error.verify_code)
        if text is None:
            text = "the {peer}'s certificate is not valid: " + error.verify_message
        return text.format(**words)
    name = error.reason or ""
    alert = name.partition("_ALERT_")[2] or name.removeprefix("TLSV1_")
    if alert in ALERTS:
        return ALERTS[alert].format(**words)
    if name in FAULTS:
        return FAULTS[name].format(**words)
    if "_ALERT_" in name:
        return f"the {side.peer} ended the handshake (TLS alert {alert.lower().replace('_', ' ')})"
    return f"the {side.peer}'s TLS is malformed ({(name or str(error)).lower().replace('_', ' ')})"
