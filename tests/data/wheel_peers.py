"""An installed mqcore against pyzmq and pynng, CURVE included: exits with 0 where all of it works.

Runs in environments that hold a wheel and these two libraries, without pytest: see tools/wheel.py
and tests/layout/test_packaging.py. With the argument `bundled`, libsodium must come out of the
wheel.
"""

import sys
from pathlib import Path

import pynng
import zmq

import mqcore as mq

TIMEOUT = 20.0
LOOPBACK = "tcp://127.0.0.1:0"


def talks_to_pyzmq(server_security: mq.security.Security | None = None, **keys: bytes) -> None:
    with mq.Rep(bind=LOOPBACK, security=server_security) as server, zmq.Context() as context:
        with context.socket(zmq.REQ) as client:
            client.setsockopt(zmq.RCVTIMEO, int(TIMEOUT * 1000))
            client.setsockopt(zmq.LINGER, 0)
            for name, value in keys.items():
                setattr(client, name, value)
            client.connect(server.endpoints[0].url)
            for size in (0, 5, 100_000):
                client.send(b"q" * size)
                assert server.recv(timeout=TIMEOUT) == b"q" * size
                server.send(b"a" * size)
                assert client.recv() == b"a" * size


def talks_to_pynng() -> None:
    with mq.Pub(bind=LOOPBACK) as feed:
        with pynng.Sub0(topics=b"forex.", recv_timeout=int(TIMEOUT * 1000)) as reader:
            reader.dial(feed.endpoints[0].url, block=True)
            feed.wait_peers(1, timeout=TIMEOUT)
            for text in (b"forex.1", b"bonds.2", b"forex.3"):
                feed.send(text)
            assert [reader.recv(), reader.recv()] == [b"forex.1", b"forex.3"]


def curve() -> None:
    server, client = mq.security.curve_keypair(), mq.security.curve_keypair()
    talks_to_pyzmq(
        mq.security.Curve(secret_key=server.secret, allow={client.public}),
        curve_serverkey=server.public.encode(), curve_publickey=client.public.encode(),
        curve_secretkey=client.secret.encode())


def libraries() -> set[str]:
    """The files of libsodium in this process that mqcore brought."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[-1] for line in lines
            if "libsodium" in line and "pyzmq" not in line and "pynng" not in line}


def main() -> None:
    talks_to_pyzmq()
    talks_to_pynng()
    curve()
    if "bundled" in sys.argv:
        site = Path(mq.__file__).parent.parent
        found = libraries()
        assert found and all(Path(file).is_relative_to(site) for file in found), found
    print(f"pyzmq {zmq.__version__}, pynng {pynng.__version__}, CURVE")


if __name__ == "__main__":
    main()
