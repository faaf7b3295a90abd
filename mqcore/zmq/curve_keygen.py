"""Print a new CURVE key pair. The keys are Z85 text. `mq keygen` writes them to files."""

from __future__ import annotations

import argparse
import json

from mqcore.zmq.borrowed import lend
from mqcore.zmq.mechanism import curve_keypair, curve_public


def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m zmq.curve_keygen", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_argument("--secret", metavar="KEY", help="print the public key of this secret key")
    options = parser.parse_args()
    if options.secret:
        secret = options.secret
        public = curve_public(secret.encode()).decode()
    else:
        public, secret = (key.decode() for key in curve_keypair())
    if options.json:
        print(json.dumps({"public": public, "secret": secret}, indent=1, sort_keys=True))
    else:
        print(f"== CURVE PUBLIC KEY ==\n{public}\n\n== CURVE SECRET KEY ==\n{secret}")


if __name__ == "__main__":
    main()


__getattr__ = lend(__name__)
