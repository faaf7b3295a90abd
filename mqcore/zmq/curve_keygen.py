"""python -m mqcore.zmq.curve_keygen: a new pair of keys, printed. `mq keygen` writes files."""

from __future__ import annotations

from mqcore.zmq.mechanism import curve_keypair

if __name__ == "__main__":
    public, secret = curve_keypair()
    print(f"== CURVE PUBLIC KEY ==\n{public.decode()}\n\n== CURVE SECRET KEY ==\n{secret.decode()}")
