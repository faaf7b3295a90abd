"""The tls_* options: what bind() and connect() refuse, and what renewed files change."""

import os
import ssl

import pytest
from certificates import Pair
from mqcore.transports.tls import filter as tls
from tls_sessions import opened, options, shake

from mqcore.errors import OptionError
from mqcore.options import for_link, rows_of, validate


def refused(role, address="localhost:1", **given):
    with pytest.raises(OptionError) as caught:
        _, own = tls.split(address, role)
        tls.check(own, role, options(**given))
    return str(caught.value)


# -- what is refused -------------------------------------------------------------------------------


def test_listening_needs_a_certificate(authority):
    assert "a certificate to listen with; set tls_cert and tls_key" in refused("bind")
    assert "tls_key needs tls_cert" in refused(
        "connect", tls_key=authority.server["tls_key"])


@pytest.mark.parametrize("name", ["tls_cert", "tls_key", "tls_ca"])
def test_a_file_that_is_not_there(authority, name, tmp_path):
    given = {**authority.server, name: str(tmp_path / "nowhere")}
    text = refused("bind", **given)
    assert text.startswith(f"{name}: cannot read {tmp_path}/nowhere: No such file or directory")


@pytest.mark.skipif(os.getuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(authority, tmp_path):
    given = Pair("x").save(tmp_path, "x")
    os.chmod(given["tls_key"], 0)
    assert "cannot read" in refused("bind", **given)


def test_files_with_something_else_in_them(authority, tmp_path):
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")
    junk.chmod(0o600)
    key = authority.server["tls_key"]
    assert f"tls_cert: {junk} has no usable certificate" in refused("bind", tls_cert=str(junk),
                                                             tls_key=key)
    assert f"tls_key: {junk} has no usable private key" in refused(
        "bind", tls_cert=authority.server["tls_cert"], tls_key=str(junk))
    assert f"tls_ca: {junk} has no usable certificate" in refused("connect", tls_ca=str(junk))


def test_a_key_of_another_certificate(authority):
    text = refused("bind", tls_cert=authority.server["tls_cert"],
                   tls_key=authority.alice["tls_key"])
    assert "does not belong to the certificate" in text


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o602])
def test_a_key_that_everybody_may_use(authority, tmp_path, mode):
    given = Pair("x").save(tmp_path, "x")
    os.chmod(given["tls_key"], mode)
    text = refused("bind", **given)
    assert f"(mode {mode:04o}); chmod o= {given['tls_key']}" in text
    os.chmod(given["tls_key"], 0o640)  # a group of its own is what distributions do
    opened("bind", **given).close()


def test_certificate_and_key_in_one_file(authority, tmp_path):
    pair, both = Pair("x"), tmp_path / "both.pem"
    both.write_bytes(pair.pem() + pair.key_pem())
    both.chmod(0o644)
    assert "tls_cert: every user of this machine" in refused("bind", tls_cert=str(both))
    both.chmod(0o600)
    opened("bind", tls_cert=str(both)).close()


def test_encrypted_keys(tmp_path):
    given = Pair("x").save(tmp_path, "x", password="open sesame")
    assert "is encrypted; set tls_key_password" in refused("bind", **given)
    text = refused("bind", **given, tls_key_password="guess")
    assert "tls_key_password does not open the key" in text and "guess" not in text
    opened("bind", **given, tls_key_password="open sesame").close()


def test_folders_of_authorities(authority, tmp_path):
    assert "has no certificates; certificates must be files that end in" in refused("connect",
                                                                        tls_ca=str(tmp_path))
    for name in ("ca", "other"):
        (tmp_path / f"{name}.pem").write_bytes((authority.folder / f"{name}.pem").read_bytes())
    client = opened("connect", tls_ca=str(tmp_path))
    shake(client, opened("bind", **authority.server))
    assert client.established


def test_mutual_needs_somebody_to_trust(authority):
    assert "tls_mutual needs tls_ca" in refused("bind", **authority.server, tls_mutual=True)


def test_an_address_without_a_host(authority):
    assert 'tls_verify="ca"' in refused("connect", "/tmp/socket", **authority.ca)
    opened("connect", "/tmp/socket", **authority.ca, tls_hostname="server").close()
    opened("connect", "/tmp/socket", **authority.ca, tls_verify="ca").close()
    assert "cannot ask for a server named" in refused("connect", **authority.ca,
                                                      tls_hostname=".x")


def test_a_context_of_ones_own(authority):
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    theirs.load_cert_chain(*authority.server.values())
    ours.load_verify_locations(authority.ca["tls_ca"])
    client = opened("connect", tls_context=ours)
    shake(client, opened("bind", tls_context=theirs))
    assert client.established
    assert "for the connecting side" in refused("bind", tls_context=ours)
    assert "for the listening side" in refused("connect", tls_context=theirs)
    assert "tls_ca, tls_verify cannot be combined with tls_context" in refused(
        "connect", tls_context=ours, tls_verify="none", **authority.ca)


def test_old_versions_and_renegotiation_are_off(authority):
    context = opened("bind", **authority.server)._tls.context
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


# -- rows ------------------------------------------------------------------------------------------


def test_secrets_and_contexts_do_not_stand_in_urls():
    rows = rows_of(tls.options)
    for name in ("tls_key_password", "tls_context"):
        with pytest.raises(OptionError, match=f"option '{name}' cannot be set in a URL") as caught:
            for_link({}, [(name, "hush")], {}, extra=rows)
        assert "hush" not in str(caught.value)
    with pytest.raises(OptionError, match="must be of class ssl.SSLContext, not 5"):
        validate("tls_context", 5, extra=rows)
    with pytest.raises(OptionError) as caught:
        validate("tls_key_password", b"hush", extra=rows)
    assert "must be text, not bytes" in str(caught.value) and "hush" not in str(caught.value)


def test_no_verification_is_a_word_of_its_own():
    """None, the general word for off, must not turn it off."""
    rows = rows_of(tls.options)
    assert for_link({}, [("tls_verify", "none")], {}, extra=rows)["tls_verify"] == "none"
    for value in (None, False, "", "off"):
        with pytest.raises(OptionError):
            validate("tls_verify", value, extra=rows)


# -- renewal ---------------------------------------------------------------------------------------


def test_new_connections_use_renewed_files(authority, tmp_path, caplog):
    first, second = (Pair(name, authority.root, ("localhost",), "server")
                     for name in ("first", "second"))
    given = options(**first.save(tmp_path, "server"))
    _, own = tls.split("localhost:1", "bind")

    def served():
        client = opened("connect", **authority.ca)
        shake(client, tls.open(own, "bind", given))
        return client.facts()["user"]

    tls.check(own, "bind", given)
    context = tls.open(own, "bind", given)._tls.context
    assert tls.open(own, "bind", given)._tls.context is context  # kept while nothing changes
    assert served() == b"first"
    (tmp_path / "server.pem").write_bytes(second.pem())  # half of the pair
    assert served() == served() == b"first"
    assert caplog.text.count("new connections keep using the previous files: tls_key: the key") == 1
    second.save(tmp_path, "server")
    assert served() == b"second"
    (tmp_path / "server.key").unlink()
    assert served() == b"second"
    assert "No such file" in caplog.text
