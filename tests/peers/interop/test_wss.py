"""wss://: WebSocket over TLS, with ourselves and with a foreign client."""

import asyncio
import ssl

import pytest

pytest.importorskip("mqcore.transports.tls", reason="the tls filter is not installed")
certificates = pytest.importorskip("certificates")
client = pytest.importorskip("websockets.asyncio.client")

LIMIT = 60
SIZES = [0, 10, 125, 126, 65_535, 70_000, 1 << 20]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """What a listener shows, and whom to trust."""
    folder = tmp_path_factory.mktemp("certificates")
    root = certificates.Pair("root", ca=True)
    shown = certificates.Pair("here", root, names=("127.0.0.1", "localhost"), role="server")
    (folder / "shown.pem").write_bytes(shown.pem() + shown.key_pem())
    (folder / "shown.pem").chmod(0o600)
    (folder / "root.pem").write_bytes(root.pem())
    return folder


@pytest.fixture
def rep(ctx, files):
    s = ctx.socket("rep", recv_timeout=LIMIT, send_timeout=LIMIT)
    s.bind("wss://127.0.0.1:0/sum", tls_cert=str(files / "shown.pem"))
    return s


def test_both_sides(ctx, files, rep):
    url = rep.endpoints[0].url
    assert url.startswith("wss://127.0.0.1:") and url.endswith("/sum")
    with ctx.socket("req", recv_timeout=LIMIT, send_timeout=LIMIT) as req:
        req.connect(url, tls_ca=str(files / "root.pem"), wait=LIMIT)
        for n in SIZES:
            req.send_parts([b"", bytes([n % 251]) * n])
            assert rep.recv_parts() == [b"", bytes([n % 251]) * n]
            rep.send(b"y" * n)
            assert req.recv() == b"y" * n
        facts, = (peer.metadata for peer in rep.peers())
        assert facts["ws-path"] == b"/sum" and facts["tls-version"].startswith(b"TLSv1")


def test_a_foreign_client(files, rep):
    """websockets' asyncio client: its blocking one reads and writes one TLS object in two threads,
    and now and then loses its own request."""
    trust = ssl.create_default_context(cafile=str(files / "root.pem"))

    async def talk():
        async with client.connect(rep.endpoints[0].url, subprotocols=["ZWS2.0"], ssl=trust,
                                  max_size=None) as peer:
            await peer.send(b"\0")
            assert await peer.recv() == b"\0"
            for n in SIZES:
                await peer.send(b"\1")
                await peer.send(b"\0" + bytes(n))
                assert await rep.arecv() == bytes(n)
                await rep.asend(b"y" * n)
                assert await peer.recv() == b"\1"
                assert await peer.recv() == b"\0" + b"y" * n
        assert peer.close_code == 1000

    asyncio.run(asyncio.wait_for(talk(), 6 * LIMIT))
