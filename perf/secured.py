"""Contexts for the rows over TLS, with a new certificate that is not verified.

The rows measure the traffic. Verification only concerns the handshake.
"""

from __future__ import annotations

import datetime
import ssl
import tempfile


def serving() -> ssl.SSLContext:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    made = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now - day, now + day
    ).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    text = made.public_bytes(pem) + key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(text)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def asking() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
