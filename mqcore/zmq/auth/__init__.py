"""zmq.auth: certificates in files, and ZAP handlers that judge by tables."""

from mqcore.zmq.auth import base, certs
from mqcore.zmq.auth.base import CURVE_ALLOW_ANY, Authenticator
from mqcore.zmq.auth.certs import create_certificates, load_certificate, load_certificates

__all__ = ["CURVE_ALLOW_ANY", "Authenticator", "base", "certs", "create_certificates",
           "load_certificate", "load_certificates"]
