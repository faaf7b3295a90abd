"""Certificates for tests of TLS, made on the spot: an authority, and what it signs."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)
ROLES = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}


def name_of(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Tests"),
                      x509.NameAttribute(NameOID.COMMON_NAME, text)])


def alternative(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


class Pair:
    """A certificate with its key. `names` are DNS names and addresses; days count from now."""

    def __init__(self, subject, issuer=None, names=(), role="", ca=False, days=(-1, 30)):
        self.key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        signer = issuer or self
        self.name = name_of(subject)
        builder = (x509.CertificateBuilder().subject_name(self.name).issuer_name(signer.name)
                   .public_key(self.key.public_key()).serial_number(x509.random_serial_number())
                   .not_valid_before(now + days[0] * DAY).not_valid_after(now + days[1] * DAY)
                   .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
                   .add_extension(x509.SubjectKeyIdentifier.from_public_key(
                       self.key.public_key()), critical=False)
                   .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(
                       signer.key.public_key()), critical=False))
        if ca:      # what Python from 3.13 on asks of an authority
            builder = builder.add_extension(x509.KeyUsage(
                key_cert_sign=True, crl_sign=True, digital_signature=False, key_agreement=False,
                content_commitment=False, key_encipherment=False, data_encipherment=False,
                encipher_only=False, decipher_only=False), critical=True)
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([alternative(text) for text in names]), critical=False)
        if role:
            builder = builder.add_extension(x509.ExtendedKeyUsage([ROLES[role]]), critical=False)
        self.certificate = builder.sign(signer.key, hashes.SHA256())
        self.chain = [] if issuer is None or not issuer.chain_needed else [issuer]
        self.chain_needed = issuer is not None

    def pem(self) -> bytes:
        """The certificate, and those of the authorities between it and the root."""
        return b"".join(pair.certificate.public_bytes(serialization.Encoding.PEM)
                        for pair in (self, *self.chain))

    def key_pem(self, password: str = "") -> bytes:
        lock = serialization.BestAvailableEncryption(password.encode()) if password else \
            serialization.NoEncryption()
        return self.key.private_bytes(serialization.Encoding.PEM,
                                      serialization.PrivateFormat.PKCS8, lock)

    def save(self, folder: Path, name: str, password: str = "") -> dict[str, str]:
        """As files; what tls_cert and tls_key are then."""
        cert, key = folder / f"{name}.pem", folder / f"{name}.key"
        cert.write_bytes(self.pem())
        key.touch(mode=0o600)
        key.write_bytes(self.key_pem(password))
        return {"tls_cert": str(cert), "tls_key": str(key)}


class Authority:
    """A root, what it signs, and all of it as files in `folder`. An attribute is the options of
    that identity: `ca` {"tls_ca"}, the others {"tls_cert", "tls_key"}."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = Pair("Test Root", ca=True)
        middle = Pair("Test Middle", self.root, ca=True)
        self.pairs = {
            "server": Pair("server", self.root, ("localhost", "127.0.0.1", "::1"), "server"),
            "chained": Pair("chained", middle, ("localhost",), "server"),
            "elsewhere": Pair("elsewhere", self.root, ("elsewhere.test",), "server"),
            "expired": Pair("expired", self.root, ("localhost",), "server", days=(-9, -2)),
            "future": Pair("future", self.root, ("localhost",), "server", days=(2, 9)),
            "alone": Pair("alone", None, ("localhost",)),
            "alice": Pair("alice", self.root, ("alice.test",), "client"),
            "lapsed": Pair("lapsed", self.root, (), "client", days=(-9, -2)),
            "mallory": Pair("alice", None),
        }
        for name, pair in self.pairs.items():
            setattr(self, name, pair.save(folder, name))
        (folder / "ca.pem").write_bytes(self.root.pem())
        self.ca = {"tls_ca": str(folder / "ca.pem")}
        other = Pair("Other Root", ca=True)
        (folder / "other.pem").write_bytes(other.pem())
        self.other_ca = {"tls_ca": str(folder / "other.pem")}
